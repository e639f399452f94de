//! Differences from the bare directory that are known and explained, as allow lists for [`compare`](crate::compare).
//!
//! Each list is a file in `data`, named after its constant. A run takes the lists of everything it consists of: its
//! kind of guest, its cache mode, its daemon.

/// Any Linux guest.
pub const LINUX_GUEST: &str = include_str!("../data/linux-guest.allow");
/// Linux 6.1, in addition to any Linux guest.
pub const LINUX_6_1: &str = include_str!("../data/linux-6.1.allow");
/// Files that bypass the guest's page cache.
pub const DIRECT_IO: &str = include_str!("../data/direct-io.allow");
/// Writes that the guest's kernel collects.
pub const WRITEBACK: &str = include_str!("../data/writeback.allow");
/// Files that a Linux guest maps through a DAX window.
pub const DAX: &str = include_str!("../data/dax.allow");
/// An overlay that the guest mounts of two shares, compared with overlayfs of the host.
pub const OVERLAY_GUEST: &str = include_str!("../data/overlay-guest.allow");
/// A mount that passes files through.
pub const PASSTHROUGH: &str = include_str!("../data/passthrough.allow");
/// pjdfstest in a guest that lacks some of the programs it uses.
pub const MINIMAL_ROOT: &str = include_str!("../data/minimal-root.allow");
/// Rust virtiofsd as the daemon.
pub const VIRTIOFSD: &str = include_str!("../data/virtiofsd.allow");
/// Rust virtiofsd with a Linux 6.1 guest, in addition to [`VIRTIOFSD`] and [`LINUX_6_1`].
pub const VIRTIOFSD_LINUX_6_1: &str = include_str!("../data/virtiofsd-linux-6.1.allow");
/// Rust virtiofsd and writes that the guest's kernel collects, in addition to [`VIRTIOFSD`] and [`WRITEBACK`].
pub const VIRTIOFSD_WRITEBACK: &str = include_str!("../data/virtiofsd-writeback.allow");

/// Cases that are not split between two guests; see [`split`](crate::split).
pub const SPLIT: &str = include_str!("../data/split.allow");

/// The guest library, with the small kernel that its tests put over it.
pub const LIBRARY_GUEST: &str = include_str!("../data/library-guest.allow");
/// The paths of the guest library, in addition to [`LIBRARY_GUEST`].
pub const LIBRARY_PATHS: &str = include_str!("../data/library-paths.allow");
/// The guest library on Rust virtiofsd, in addition to [`LIBRARY_GUEST`] and [`VIRTIOFSD`].
pub const LIBRARY_GUEST_VIRTIOFSD: &str = include_str!("../data/library-guest-virtiofsd.allow");
/// The guest library on QEMU's virtiofsd, in C, in addition to [`LIBRARY_GUEST`].
pub const LIBRARY_GUEST_VIRTIOFSD_C: &str = include_str!("../data/library-guest-virtiofsd-c.allow");

/// Programs of two callers on any mount.
pub const TWO_CALLERS: &str = include_str!("../data/two-callers.allow");
/// Programs of two callers on files that bypass the page cache, in addition to [`TWO_CALLERS`].
pub const TWO_CALLERS_DIRECT_IO: &str = include_str!("../data/two-callers-direct-io.allow");
/// Programs of two callers where the kernel collects writes, in addition to [`TWO_CALLERS`].
pub const TWO_CALLERS_WRITEBACK: &str = include_str!("../data/two-callers-writeback.allow");
/// Programs of two callers on files that are passed through, in addition to [`TWO_CALLERS`].
pub const TWO_CALLERS_PASSTHROUGH: &str = include_str!("../data/two-callers-passthrough.allow");
