//! Names below a directory, and operations on an inode through an `O_PATH` descriptor.

use std::os::fd::{AsFd, OwnedFd};

use rustix::{
    fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Timestamps, Uid},
    io::Errno,
    path::Arg,
};

/// Keeps every lookup below the share: never leave the directory, never follow a link.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_SYMLINKS);

/// Maximum number of retries of a lookup that raced with a rename. Linux asks for a retry, and one is nearly always
/// enough.
const RACE_RETRIES_MAX: u32 = 64;

/// Opens `name` in `dir`, never leaving `dir` and never following a symbolic link.
///
/// `O_PATH | O_NOFOLLOW` opens a symbolic link itself; without both, a link is refused with ELOOP. `mode` is used with
/// `O_CREAT` and `O_TMPFILE` only. `O_CLOEXEC` is always set. Blocks on the host's file system. Source: openat2(2).
pub fn open_beneath(dir: impl AsFd, name: impl Arg + Copy, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let mut retries = 0;
    loop {
        match rustix::fs::openat2(&dir, name, flags | OFlags::CLOEXEC, mode, BENEATH) {
            Err(Errno::AGAIN) if retries < RACE_RETRIES_MAX => retries += 1,
            outcome => return outcome,
        }
    }
}

/// Like [`open_beneath`], using only what the host has in memory: returns EAGAIN rather than wait for a disk or a
/// network.
///
/// # Errors
///
/// EAGAIN also with `O_CREAT`, `O_TRUNC` and `O_TMPFILE`; EINVAL before Linux 5.12.
pub fn open_cached(dir: impl AsFd, name: impl Arg, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat2(dir, name, flags | OFlags::CLOEXEC, Mode::empty(), BENEATH | ResolveFlags::CACHED)
}

/// Changes the owner of the inode behind `fd`, which may be a symbolic link itself; `None` leaves an id unchanged.
pub fn chown(fd: impl AsFd, uid: Option<Uid>, gid: Option<Gid>) -> Result<(), Errno> {
    rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH)
}

/// Sets the times of the inode behind `fd`, which may be a symbolic link itself. Needs Linux 5.8 if `fd` is `O_PATH`.
pub fn set_times(fd: impl AsFd, times: &Timestamps) -> Result<(), Errno> {
    rustix::fs::utimensat(fd, c"", times, AtFlags::EMPTY_PATH)
}

/// Returns the target of the symbolic link behind `fd`, which is `O_PATH`.
pub fn readlink(fd: impl AsFd) -> Result<Vec<u8>, Errno> {
    rustix::fs::readlinkat(fd, c"", Vec::new()).map(std::ffi::CString::into_bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use rustix::fs::Timespec;

    use super::*;

    const LINK: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW);

    fn share() -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        let fd = rustix::fs::open(dir.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        (dir, fd)
    }

    #[test]
    fn neither_parents_nor_absolute_paths_nor_links_are_followed() {
        let (dir, fd) = share();
        symlink("/etc", dir.path().join("out")).unwrap();
        symlink(".", dir.path().join("in")).unwrap();
        assert_eq!(open_beneath(&fd, "..", OFlags::PATH, Mode::empty()).err(), Some(Errno::XDEV));
        assert_eq!(open_beneath(&fd, "/etc", OFlags::PATH, Mode::empty()).err(), Some(Errno::XDEV));
        assert_eq!(open_beneath(&fd, "out", OFlags::RDONLY, Mode::empty()).err(), Some(Errno::LOOP));
        assert_eq!(open_beneath(&fd, "out/passwd", LINK, Mode::empty()).err(), Some(Errno::LOOP));
        assert_eq!(open_beneath(&fd, "in/in", LINK, Mode::empty()).err(), Some(Errno::LOOP));
        let link = open_beneath(&fd, "out", LINK, Mode::empty()).unwrap();
        assert_eq!(readlink(&link).unwrap(), b"/etc");
    }

    #[test]
    fn creation_takes_the_mode_and_close_on_exec() {
        let (dir, fd) = share();
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
        let file = open_beneath(&fd, "new", flags, Mode::from_raw_mode(0o600)).unwrap();
        assert!(rustix::io::fcntl_getfd(&file).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        assert_eq!(dir.path().join("new").metadata().unwrap().mode() & 0o7777, 0o600);
        assert_eq!(open_beneath(&fd, "new", flags, Mode::from_raw_mode(0o600)).err(), Some(Errno::EXIST));
    }

    #[test]
    fn what_was_just_used_opens_from_memory_and_creation_never_does() {
        let (dir, fd) = share();
        std::fs::write(dir.path().join("a"), "a").unwrap();
        assert!(open_cached(&fd, "a", LINK).is_ok());
        assert_eq!(open_cached(&fd, "b", OFlags::CREATE | OFlags::RDWR).err(), Some(Errno::AGAIN));
    }

    #[test]
    fn a_links_own_times_and_owner_change() {
        let (dir, fd) = share();
        let path = dir.path().join("link");
        symlink("nowhere", &path).unwrap();
        let link = open_beneath(&fd, "link", LINK, Mode::empty()).unwrap();
        let at = |tv_sec| Timespec { tv_sec, tv_nsec: 5 };
        set_times(&link, &Timestamps { last_access: at(1), last_modification: at(-2) }).unwrap();
        let stat = path.symlink_metadata().unwrap();
        assert_eq!((stat.atime(), stat.mtime(), stat.mtime_nsec()), (1, -2, 5));
        match chown(&link, Some(Uid::from_raw(1234)), None) {
            Err(Errno::PERM) => println!("SKIPPED: giving a file away needs CAP_CHOWN"),
            outcome => {
                outcome.unwrap();
                let stat = path.symlink_metadata().unwrap();
                assert_eq!((stat.uid(), stat.gid()), (1234, rustix::process::getegid().as_raw()));
            }
        }
    }
}
