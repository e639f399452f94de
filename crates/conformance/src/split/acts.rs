//! What the guest that looks does before and while the other acts.

use super::Split;
use super::files::Both;
use crate::client::{Access, FileType, Handle, OFlags, Result};

/// How much of a file is looked at before it changes.
const LOOKED_AT_BYTES: usize = 64 << 10;

/// Flags that say how a file is used, and not what becomes of it.
const MANNER: OFlags = OFlags::NOATIME.union(OFlags::DIRECT).union(OFlags::NOFOLLOW);

impl Split<'_> {
    /// Lets the looking client cache what is about to change at `path`: the name, or its absence, attributes, names of
    /// attributes, data, and the directory's listing. Nothing moves an access time.
    pub(super) fn look_before(&self, path: &[u8]) {
        let seen = self.seen(path);
        let found = self.looking.stat(&seen, false);
        if found.is_ok_and(|attr| attr.kind() == FileType::RegularFile) {
            // An answer that is an error is cached too, or is the case's to find.
            let _ = self.looking.xattr_list(&seen, &mut [0; 4096], false);
            let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::NONBLOCK | OFlags::NOFOLLOW;
            if let Ok(file) = self.looking.open(&seen, flags, 0) {
                let _ = self.looking.read_at(file, &mut vec![0; LOOKED_AT_BYTES], 0);
                let _ = self.looking.close(file);
            }
        }
        let parent = path.iter().rposition(|byte| *byte == b'/').map_or(&b"."[..], |at| &path[..=at]);
        let flags = OFlags::RDONLY | OFlags::NOATIME | OFlags::DIRECTORY;
        if let Ok(directory) = self.looking.open(&self.seen(parent), flags, 0) {
            let _ = self.looking.read_dir(directory, 4096);
            let _ = self.looking.close(directory);
        }
    }

    /// The same for what is open.
    pub(super) fn look_before_at(&self, handle: Handle) -> Result<Handle> {
        let both = self.file(handle)?;
        if let Some(looking) = both.looking {
            let _ = self.looking.stat_handle(looking);
        }
        Ok(both.acting)
    }

    pub(super) fn file(&self, handle: Handle) -> Result<Both> {
        self.files.lock().expect("no holder of this lock panics").get(handle)
    }

    pub(super) fn add(&self, both: Both) -> Handle {
        self.files.lock().expect("no holder of this lock panics").add(both)
    }

    /// Opens for writing or makes a file, which is the acting client's work; the other opens it for reading.
    pub(super) fn open_to_change(&self, path: &[u8], flags: OFlags, mode: u32) -> Result<Handle> {
        self.look_before(path);
        let acting = self.acting.open(path, flags, mode)?;
        let access = flags & OFlags::RWMODE;
        let looking = self.open_second(path, flags, acting);
        let (may_read, may_write) = (access != OFlags::WRONLY, access != OFlags::RDONLY);
        Ok(self.add(Both { acting, looking, may_read, may_write }))
    }

    /// Opens for reading what the acting client has just opened, if it is a file that still has that name.
    fn open_second(&self, path: &[u8], flags: OFlags, acting: Handle) -> Option<Handle> {
        let expected = self.acting.stat_handle(acting).ok()?;
        if flags.contains(OFlags::TMPFILE) || expected.kind() != FileType::RegularFile {
            return None;
        }
        let flags = flags & MANNER | OFlags::RDONLY | OFlags::NONBLOCK;
        let mut may_retry = self.retries();
        loop {
            if let Ok(file) = self.looking.open(&self.seen(path), flags, 0) {
                if self.looking.stat_handle(file).is_ok_and(|attr| attr.ino == expected.ino) {
                    return Some(file);
                }
                let _ = self.looking.close(file);
            }
            // Nobody may open it a second time, or the name leads elsewhere by now: the case uses one client's.
            if self.acting.access(path, Access::READ_OK, true).is_err() || !may_retry() {
                return None;
            }
        }
    }
}
