//! Shares accessed by the guest library: one guest, or one for each job.

use std::{io, sync::Arc};

use transom_user::{
    guest::{
        Errno,
        cache::{CacheMode, CacheOptions},
        dax::{Dax, DaxOptions, entry::Order},
        fs::{File, FileType, Fs, OpenOptions},
        session::SessionConfig,
    },
    map::{self, Protection, Sharing},
    platform::Process,
    share::Share,
};

use transom_wire::linux::O_DIRECT;

use super::{
    super::map_how::{Entries, MapHow},
    How, Opened, Storage,
};
use crate::workload::mapping::Mapping;

/// Guests in this process.
pub struct Library {
    // Dropped first, because it ends the sessions over the devices.
    guests: Vec<Fs<Process>>,
    _mounts: Vec<Share>,
}

impl Library {
    /// Creates a guest for each of `mounts`, at least one. They cache for as long as the servers allow, and use the
    /// window of a server that has one for all files.
    pub fn new(mounts: Vec<Share>) -> anyhow::Result<Self> {
        anyhow::ensure!(!mounts.is_empty(), "no guest to work with");
        let options = CacheOptions { mode: CacheMode::Auto, ..CacheOptions::default() };
        let dax = DaxOptions { dax: Dax::Always, size_min_bytes: 0 };
        let guests =
            mounts.iter().map(|mount| Ok(Fs::new(Arc::new(mount.volume(SessionConfig::default(), options, dax)?))));
        Ok(Self { guests: guests.collect::<anyhow::Result<_>>()?, _mounts: mounts })
    }

    fn fs(&self) -> &Fs<Process> {
        &self.guests[0]
    }
}

impl Storage for Library {
    fn for_job(&self, number: u16) -> Box<dyn Storage + '_> {
        let guest = &self.guests[usize::from(number) % self.guests.len()];
        Box::new(Self { guests: vec![guest.with_queue(number)], _mounts: Vec::new() })
    }

    fn open(&self, path: &str, how: How) -> io::Result<Box<dyn Opened + '_>> {
        let How { is_write, is_new, is_append, is_direct } = how;
        let options = OpenOptions::new().read(!is_write).write(is_write && !is_append).create(is_new).truncate(is_new);
        let options = options.append(is_append).custom_flags(if is_direct { O_DIRECT } else { 0 });
        let file = self.fs().open(path, &options).map_err(error)?;
        Ok(Box::new(OpenedFile(file)))
    }

    fn stat(&self, path: &str) -> io::Result<()> {
        self.fs().symlink_metadata(path).map(drop).map_err(error)
    }

    fn read_dir(&self, path: &str, each: &mut dyn FnMut(&str, bool) -> io::Result<()>) -> io::Result<()> {
        for entry in self.fs().read_dir(path).map_err(error)? {
            let entry = entry.map_err(error)?;
            each(&String::from_utf8_lossy(&entry.name), entry.file_type == Some(FileType::Directory))?;
        }
        Ok(())
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.fs().create_dir(path, 0o755).map_err(error)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.fs().remove_dir(path).map_err(error)
    }

    fn remove_file(&self, path: &str) -> io::Result<()> {
        self.fs().remove_file(path).map_err(error)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.fs().rename(from, to).map_err(error)
    }

    fn set_mode(&self, path: &str, mode: u32) -> io::Result<()> {
        self.fs().set_permissions(path, mode).map_err(error)
    }

    fn map(&self, path: &str, len_bytes: usize, how: MapHow) -> io::Result<Mapping> {
        let options = OpenOptions::new().read(true).write(how.is_shared);
        let file = self.fs().open(path, &options).map_err(error)?;
        let (protection, sharing) = match how.is_shared {
            true => (Protection::ReadWrite, Sharing::Shared),
            false => (Protection::Read, Sharing::Private),
        };
        let order = if how.entries == Entries::Small { Order::Small } else { Order::Huge };
        let open = Arc::clone(file.as_open_file());
        let mapping = map::Mapping::with_order(open, 0..len_bytes as u64, protection, sharing, order);
        let mapping = mapping.map_err(|errno| match errno {
            Errno::NODEV => io::Error::new(io::ErrorKind::Unsupported, "no window to map files through"),
            errno => error(errno),
        })?;
        Ok(Mapping::by_library(mapping))
    }

    fn forget(&self) -> io::Result<()> {
        for guest in &self.guests {
            guest.volume().drop_names();
        }
        Ok(())
    }
}

struct OpenedFile(File<Process>);

impl Opened for OpenedFile {
    fn read_exact_at(&self, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            let len = self.0.read_at(offset, bytes).map_err(error)?;
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            bytes = &mut bytes[len..];
            offset += len as u64;
        }
        Ok(())
    }

    fn write_all_at(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            let len = self.0.write_at(offset, bytes).map_err(error)?;
            if len == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = &bytes[len..];
            offset += len as u64;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_all().map_err(error)
    }
}

fn error(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.raw())
}
