//! A load's target by calls of the guest library, in a session with a daemon that has a window.

#![expect(unsafe_code, reason = "a mapping is reached by address")]

use std::path::Path;

use transom_user::{
    fault::copy::copy,
    guest::{
        Errno,
        cache::CacheOptions,
        dax::{Dax, DaxOptions},
        fs::{File, Fs, OpenOptions},
        session::SessionConfig,
    },
    map::{MapFile as _, Mapping, Protection, Sharing},
    platform::Process,
    share::Share,
};

use super::load::{FILES, PROGRESS, Target, name};

/// A session of the library with a daemon that has a window, through which all of its files are reached.
pub(super) struct Library {
    fs: Fs<Process>,
    files: Vec<File<Process>>,
    mappings: Vec<Mapping>,
    progress: File<Process>,
    _share: Share,
}

impl Library {
    /// Connects to the daemon at `socket`. Errors: it is gone, or has no window.
    pub(super) fn connect(socket: &Path) -> anyhow::Result<Self> {
        let share = Share::builder().socket(socket).connect()?;
        let dax = DaxOptions { dax: Dax::Always, ..DaxOptions::default() };
        let fs = Fs::new(share.volume(SessionConfig::default(), CacheOptions::default(), dax)?.into());
        let both = OpenOptions::new().read(true).write(true);
        let files = (0..FILES).map(|file| fs.open(name(file), &both)).collect::<Result<Vec<_>, _>>()?;
        let mappings = files
            .iter()
            .map(|file| {
                let len = file.metadata()?.len();
                file.map(0..len, Protection::ReadWrite, Sharing::Shared)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let progress = fs.open(PROGRESS, &both.create(true).mode(0o644))?;
        Ok(Self { fs, files, mappings, progress, _share: share })
    }

    fn with_names(&self, prefix: &str) -> Result<(), Errno> {
        let fs = &self.fs;
        let at = |suffix: &str| format!("{prefix}-{suffix}");
        for suffix in ["new", "renamed", "link", "symlink"] {
            if fs.symlink_metadata(at(suffix)).is_ok() {
                fs.remove_file(at(suffix))?;
            }
        }
        if fs.exists(at("dir"))? {
            fs.remove_dir_all(at("dir"))?;
        }
        let new = fs.create(at("new"))?;
        new.write_all(b"new")?;
        new.set_len(100)?;
        fs.rename(at("new"), at("renamed"))?;
        fs.hard_link(at("renamed"), at("link"))?;
        fs.symlink("nothing", at("symlink"))?;
        fs.create_dir(at("dir"), 0o755)?;
        fs.rename(at("link"), format!("{}/inside", at("dir")))?;
        let mut entries = fs.read_dir(".")?;
        while entries.next_entry()?.is_some() {}
        fs.remove_file(at("renamed"))
    }
}

impl Target for Library {
    fn read(&self, file: usize, at: u64, bytes: &mut [u8]) -> Result<(), String> {
        match self.files[file].read_at(at, bytes) {
            Ok(read) if read == bytes.len() => Ok(()),
            Ok(read) => Err(format!("read: {read} of {} bytes", bytes.len())),
            Err(errno) => Err(format!("read: {errno}")),
        }
    }

    fn write(&self, file: usize, at: u64, bytes: &[u8]) -> Result<(), String> {
        match self.files[file].write_at(at, bytes) {
            Ok(written) if written == bytes.len() => Ok(()),
            Ok(written) => Err(format!("write: {written} of {} bytes", bytes.len())),
            Err(errno) => Err(format!("write: {errno}")),
        }
    }

    fn map(&self, file: usize, at: u64, bytes: &mut [u8], is_store: bool) -> Result<(), String> {
        if is_store {
            // Half a block would be stored if this process was killed meanwhile.
            return self.write(file, at, bytes).and_then(|()| self.sync(file));
        }
        let start = self.mappings[file].as_ptr().as_ptr().wrapping_add(at as usize);
        // SAFETY: the range lies in the mapping, which is as long as the file; `bytes` is as long as the range.
        let copied = unsafe { copy(bytes.as_mut_ptr(), start, bytes.len()) };
        if copied == bytes.len() { Ok(()) } else { Err(format!("a load: {copied} bytes")) }
    }

    fn sync(&self, file: usize) -> Result<(), String> {
        self.files[file].sync_all().map_err(|errno| format!("fsync: {errno}"))
    }

    fn names(&self, prefix: &str) -> Result<(), String> {
        self.with_names(prefix).map_err(|errno| format!("names: {errno}"))
    }

    fn record(&self, steps: u64) -> Result<(), String> {
        let text = format!("{steps:>20}");
        self.progress.write_at(0, text.as_bytes()).map(drop).map_err(|errno| format!("progress: {errno}"))
    }
}
