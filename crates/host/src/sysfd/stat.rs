//! `statx` with everything that an inode's identity and attributes need.

use std::os::fd::AsFd;

use rustix::{
    fs::{AtFlags, Statx, StatxFlags},
    io::Errno,
};

/// A mount of the host: unique for the host's lifetime from Linux 6.8 on, unique among the present mounts before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MountId(pub u64);

/// Asks for an identifier of the mount that is never given twice; kernels before 6.8 ignore it.
pub const STATX_MNT_ID_UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// All that a FUSE attribute holds, the time of birth, and the mount.
pub const IDENTITY: StatxFlags =
    StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(StatxFlags::MNT_ID).union(STATX_MNT_ID_UNIQUE);

/// Returns the attributes of what `fd` refers to; `O_PATH` is enough, and a symbolic link is not followed.
///
/// `sync` is `AtFlags::empty()`, `AtFlags::STATX_FORCE_SYNC` or `AtFlags::STATX_DONT_SYNC`.
pub fn statx(fd: impl AsFd, sync: AtFlags, mask: StatxFlags) -> Result<Statx, Errno> {
    rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW | sync, mask)
}

/// Returns the mount that `statx` answered, if it answered one: Linux does from 5.8 on, where [`IDENTITY`] was asked
/// for.
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
