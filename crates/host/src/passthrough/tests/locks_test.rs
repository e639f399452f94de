//! Locks as a guest's kernel requests them: who holds them, for how long, and what the host sees.

use std::path::Path;

use rustix::fs::OFlags;
use transom_wire::{
    Handle, NodeId, Opcode,
    ops::{
        flush::FlushIn,
        lk::{FileLock, LkIn, LkOut},
    },
};
use zerocopy::{FromZeros, IntoBytes};

use super::guest::Guest;
use crate::{Errno, passthrough::Config};

const READ: i32 = libc::F_RDLCK;
const WRITE: i32 = libc::F_WRLCK;
const UNLOCK: i32 = libc::F_UNLCK;

/// Creates a guest that shares a directory with one file.
fn guest(config: Config) -> (tempfile::TempDir, Guest, NodeId) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "content").unwrap();
    let guest = Guest::new(dir.path(), Config { posix_lock: true, ..config });
    let file = guest.walk("file").unwrap();
    (dir, guest, file)
}

/// Returns a request for bytes 0 to 9 from the process with the owner's number.
fn lk_in(fh: Handle, owner: u64, type_: i32) -> LkIn {
    let lk = FileLock { start: 0.into(), end: 9.into(), type_: (type_ as u32).into(), pid: (owner as u32).into() };
    LkIn { fh: fh.into(), owner: owner.into(), lk, lk_flags: 0.into(), padding: 0.into() }
}

impl Guest {
    fn lock(&self, file: NodeId, fh: Handle, owner: u64, type_: i32) -> Result<(), Errno> {
        self.tell(Opcode::Setlk, file, &[lk_in(fh, owner, type_).as_bytes()])
    }

    /// Returns the kind of a lock that conflicts with a write lock, and its holder.
    fn query(&self, file: NodeId, fh: Handle, owner: u64) -> (i32, u32) {
        let found: LkOut = self.ask(Opcode::Getlk, file, &[lk_in(fh, owner, WRITE).as_bytes()]).unwrap();
        (found.lk.type_.get() as i32, found.lk.pid.get())
    }

    /// Sends what a close by the process `owner` sends.
    fn flush_as(&self, file: NodeId, fh: Handle, owner: u64) {
        let mut arg = FlushIn::new_zeroed();
        arg.fh = fh.into();
        arg.lock_owner = owner.into();
        self.tell(Opcode::Flush, file, &[arg.as_bytes()]).unwrap();
    }
}

/// A process locks, forks, closes, opens again and locks again; then the child ends, which had the first open file.
#[test]
fn a_lock_survives_the_release_of_another_open_file() {
    let (_dir, guest, file) = guest(Config::default());
    let (parent, child, other) = (1, 2, 3);
    let first = guest.open(file, OFlags::RDWR).unwrap();
    guest.lock(file, first, parent, WRITE).unwrap();
    guest.flush_as(file, first, parent);
    let second = guest.open(file, OFlags::RDWR).unwrap();
    guest.lock(file, second, parent, WRITE).unwrap();
    guest.flush_as(file, first, child);
    guest.release(file, first);
    let third = guest.open(file, OFlags::RDWR).unwrap();
    assert_eq!(guest.lock(file, third, other, READ), Err(Errno::AGAIN));
    guest.flush_as(file, second, parent);
    guest.lock(file, third, other, READ).unwrap();
}

/// No FLUSH is sent if data could not be written back.
#[test]
fn an_owner_without_a_flush_keeps_no_lock_after_the_last_release() {
    let (_dir, guest, file) = guest(Config::default());
    let [one, two, three] = [(); 3].map(|()| guest.open(file, OFlags::RDWR).unwrap());
    guest.lock(file, one, 1, READ).unwrap();
    guest.lock(file, two, 1, WRITE).unwrap();
    guest.release(file, one);
    assert_eq!(guest.lock(file, three, 2, READ), Err(Errno::AGAIN));
    guest.release(file, two);
    guest.lock(file, three, 2, WRITE).unwrap();
}

#[test]
fn a_query_names_the_process_that_holds_the_lock() {
    let (dir, guest, file) = guest(Config::default());
    let (one, two) = (guest.open(file, OFlags::RDWR).unwrap(), guest.open(file, OFlags::RDWR).unwrap());
    guest.lock(file, one, 4001, WRITE).unwrap();
    assert_eq!(guest.query(file, two, 4002), (WRITE, 4001));
    assert_eq!(guest.query(file, one, 4001), (UNLOCK, 0));
    guest.lock(file, one, 4001, READ).unwrap();
    guest.lock(file, two, 4002, READ).unwrap();
    assert_eq!(guest.query(file, two, 4002), (READ, 4001));
    assert_eq!(guest.query(file, one, 4001), (READ, 4002));
    // Processes of the host have numbers of their own.
    guest.lock(file, one, 4001, UNLOCK).unwrap();
    guest.lock(file, two, 4002, UNLOCK).unwrap();
    let host = std::fs::File::options().read(true).write(true).open(dir.path().join("file")).unwrap();
    rustix::fs::fcntl_lock(&host, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    assert_eq!(guest.query(file, two, 4002), (WRITE, 0));
}

/// A file that is open for writing cannot be executed (ETXTBSY), and a lock must not cause that.
#[test]
fn a_read_lock_opens_nothing_for_writing() {
    for readonly in [false, true] {
        let (dir, guest, file) = guest(Config { readonly, ..Config::default() });
        let path = dir.path().join("file");
        let reader = guest.open(file, OFlags::RDONLY).unwrap();
        guest.lock(file, reader, 1, READ).unwrap();
        assert_eq!(writers_of(&path), 0);
        // The lock exists, and one that the open file does not allow is refused.
        assert_eq!(guest.query(file, reader, 2), (READ, 1));
        assert_eq!(guest.lock(file, reader, 1, WRITE), Err(Errno::BADF));
        assert_eq!(guest.lock(file, reader, 2, WRITE), Err(Errno::BADF));
        assert_eq!(writers_of(&path), 0);
    }
}

/// Returns the number of this process's descriptors that may write the file.
fn writers_of(path: &Path) -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
    let of_path = descriptors.filter(|link| std::fs::read_link(link).is_ok_and(|target| target == path));
    let flags = of_path.filter_map(|link| {
        let number = link.file_name()?.to_str()?.to_owned();
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
        i32::from_str_radix(flags.trim(), 8).ok()
    });
    flags.filter(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0).count()
}
