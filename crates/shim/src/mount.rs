//! Creates an unattached FUSE file system and answers its first request.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount,
        fsopen,
    },
};
use transom_wire::{
    Opcode,
    ops::init::{InitFlags, InitIn, InitOut, KERNEL_MINOR_VERSION, KERNEL_VERSION},
};
use zerocopy::FromBytes;

use crate::{
    Step,
    server::{self, Buffer},
};

/// A mounted file system and its device.
pub(crate) struct Mounted {
    /// `/dev/fuse`.
    pub(crate) device: OwnedFd,
    /// The root directory, opened with O_PATH. The file system lives as long as this or one of its files is open.
    pub(crate) root: OwnedFd,
}

/// Maximum stacking depth of file systems, including ours: the most that Linux allows, so that files of an overlay can
/// be viewed.
const STACK_DEPTH_MAX: u32 = 2;

/// Creates the file system and negotiates its features.
pub(crate) fn mount() -> Result<Mounted, (Step, Errno)> {
    let device = openat(CWD, "/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| (Step::Device, errno))?;
    let root = mount_device(&device).map_err(|errno| (Step::Mount, errno))?;
    negotiate(&device).map_err(|errno| (Step::Negotiation, errno))?;
    Ok(Mounted { device, root })
}

fn mount_device(device: &OwnedFd) -> Result<OwnedFd, Errno> {
    let context = fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let context = context.as_fd();
    fsconfig_set_string(context, "source", "transom")?;
    fsconfig_set_string(context, "fd", device.as_raw_fd().to_string())?;
    fsconfig_set_string(context, "rootmode", "40000")?;
    fsconfig_set_string(context, "user_id", "0")?;
    fsconfig_set_string(context, "group_id", "0")?;
    // Front ends run as other users, and query the size of the files they map.
    fsconfig_set_flag(context, "allow_other")?;
    fsconfig_create(context)?;
    let attributes =
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Answers INIT.
///
/// # Errors
///
/// Returns EOPNOTSUPP if the kernel does not support passthrough, and EPROTO if the first request is not INIT.
fn negotiate(device: &OwnedFd) -> Result<(), Errno> {
    let mut buffer = Buffer::new();
    let request = server::next(device, &mut buffer)?.ok_or(Errno::PROTO)?;
    let (init, _) = InitIn::read_from_prefix(request.arguments).map_err(|_| Errno::PROTO)?;
    if request.opcode() != Some(Opcode::Init) || init.major.get() != KERNEL_VERSION {
        return Err(Errno::PROTO);
    }
    let offered = InitFlags::from_bits_retain(u64::from(init.flags.get()) | u64::from(init.flags2.get()) << 32);
    let taken = InitFlags::INIT_EXT | InitFlags::PASSTHROUGH;
    if !offered.contains(taken) {
        server::refuse(device, &request, Errno::OPNOTSUPP)?;
        return Err(Errno::OPNOTSUPP);
    }
    let answer = InitOut {
        major: KERNEL_VERSION.into(),
        minor: init.minor.get().min(KERNEL_MINOR_VERSION).into(),
        flags: (taken.bits() as u32).into(),
        flags2: ((taken.bits() >> 32) as u32).into(),
        max_write: server::MAX_WRITE.into(),
        time_gran: 1.into(),
        max_stack_depth: STACK_DEPTH_MAX.into(),
        ..InitOut::default()
    };
    server::answer(device, &request, &answer)
}
