//! `statx` with all fields for an inode's identity and attributes.

use std::os::fd::AsFd;

use rustix::{
    fs::{AtFlags, Statx, StatxFlags},
    io::Errno,
};

/// A mount of the host: unique for the host's lifetime since Linux 6.8, before that unique among the present mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MountId(pub u64);

/// Requests a mount identifier that is never reused; kernels before 6.8 ignore it.
pub const STATX_MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// All fields of FUSE attributes, the birth time, and the mount.
pub const IDENTITY: StatxFlags =
    StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID).union(STATX_MNT_ID_UNIQUE);

/// Returns the attributes of the inode that `fd` refers to, which may be `O_PATH`. Does not follow a symbolic link.
///
/// `sync` is `AtFlags::empty()`, `AtFlags::STATX_FORCE_SYNC` or `AtFlags::STATX_DONT_SYNC`.
pub fn statx(fd: impl AsFd, sync: AtFlags, mask: StatxFlags) -> Result<Statx, Errno> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | sync, mask)
}

/// Returns the attributes of the inode of `name` in `dir`; of a symbolic link itself. `name` is one component, neither
/// `.` nor `..`, so that the inode lies in `dir` or is mounted there. Blocks on the host's file system.
pub fn statx_at(dir: impl AsFd, name: &[u8], mask: StatxFlags) -> Result<Statx, Errno> {
    rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT, mask)
}

/// Returns the mount in a result of `statx`, if there is one: Linux returns it since 5.8, if [`IDENTITY`] was
/// requested.
pub fn mount_id(statx: &Statx) -> Option<MountId> {
    let answered = StatxFlags::from_bits_retain(statx.stx_mask);
    answered.intersects(StatxFlags::MNT_ID | STATX_MNT_ID_UNIQUE).then_some(MountId(statx.stx_mnt_id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_inodes_of_one_file_system_tell_one_mount_and_two_numbers() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("nowhere", dir.path().join("link")).unwrap();
        let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW;
        let root = rustix::fs::open(dir.path(), flags, rustix::fs::Mode::empty()).unwrap();
        let link = rustix::fs::openat(&root, "link", flags, rustix::fs::Mode::empty()).unwrap();
        let root = statx(&root, AtFlags::empty(), IDENTITY).unwrap();
        let link = statx(&link, AtFlags::empty(), IDENTITY).unwrap();
        assert!(mount_id(&root).is_some());
        assert_eq!(mount_id(&root), mount_id(&link));
        assert_ne!(root.stx_ino, link.stx_ino);
        assert_eq!(u32::from(link.stx_mode) & libc::S_IFMT, libc::S_IFLNK);
    }
}
