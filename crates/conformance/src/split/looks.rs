//! What the guest that looks answers, and when that agrees with what the other knows.

use super::Split;
use super::files::Both;
use crate::client::{Attr, Errno, FileType, Handle, OFlags, Result};

/// A call that fills a buffer; returns what it filled, and the length that it told.
pub(super) fn filled(len: usize, call: impl FnOnce(&mut [u8]) -> Result<usize>) -> Result<(usize, Vec<u8>)> {
    let mut bytes = vec![0; len];
    let told = call(&mut bytes)?;
    bytes.truncate(told);
    Ok((told, bytes))
}

/// Puts into `buf` what [`filled`] returned.
pub(super) fn put(buf: &mut [u8], (told, bytes): (usize, Vec<u8>)) -> usize {
    buf[..bytes.len()].copy_from_slice(&bytes);
    told
}

/// Whether two looks show the same file in the same state. Looking may move the access time, and the host may allocate
/// blocks in between.
pub(super) fn same(one: &Attr, other: &Attr) -> bool {
    let without = |attr: &Attr| Attr { atime: attr.mtime, blocks: 0, ..*attr };
    without(one) == without(other)
}

impl Split<'_> {
    /// Opens for reading, which the looking client answers. The other opens the file too, for what a case changes by
    /// its handle.
    pub(super) fn open_to_look(&self, path: &[u8], flags: OFlags) -> Result<Handle> {
        let seen = self.seen(path);
        let follow = !flags.contains(OFlags::NOFOLLOW);
        let is_node = |attr: &Attr| !matches!(attr.kind(), FileType::RegularFile | FileType::Directory);
        let is_path = flags.contains(OFlags::PATH);
        if !is_path && self.acting.stat(path, follow).is_ok_and(|attr| is_node(&attr)) {
            // To open a pipe or a device is to do something with it.
            let acting = self.acting.open(path, flags, 0)?;
            return Ok(self.add(Both { acting, looking: None, may_read: true, may_write: true }));
        }
        let mut may_retry = self.retries();
        loop {
            let (looking, acting) = (self.looking.open(&seen, flags, 0), self.acting.open(path, flags, 0));
            let agree = match (looking, acting) {
                (Ok(looking), Ok(acting)) => {
                    let found = self.looking.stat_handle(looking).map(|attr| attr.ino);
                    found == self.acting.stat_handle(acting).map(|attr| attr.ino)
                }
                (looking, acting) => looking.err() == acting.err(),
            };
            match (looking, acting) {
                (Ok(looking), Ok(acting)) if agree || self.patience.is_none() => {
                    return Ok(self.add(Both { acting, looking: Some(looking), may_read: true, may_write: false }));
                }
                _ => {}
            }
            let _ = looking.map(|looking| self.looking.close(looking));
            let _ = acting.map(|acting| self.acting.close(acting));
            if agree || !may_retry() {
                // What only the looking client has opened is not there any more.
                return Err(looking.err().unwrap_or(Errno::STALE));
            }
        }
    }
}
