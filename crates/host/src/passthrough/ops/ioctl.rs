//! IOCTL: attributes of an inode. Anything else would reach a driver of the host by the guest's choice.

use std::os::fd::{AsFd, BorrowedFd};

use transom_wire::{
    Handle,
    ops::ioctl::{IOCTL_DIR, IoctlIn},
};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::IoctlReply,
    sysfd::inode_attr::{self, FsXattr, IFlags},
};

/// The requests as a 64-bit and as a 32-bit program of the guest numbers them. Source: linux/fs.h.
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC32_GETFLAGS: u32 = 0x8004_6601;
const FS_IOC32_SETFLAGS: u32 = 0x4004_6602;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;

impl Passthrough {
    /// Errors: ENOTTY for any other request.
    pub(in crate::passthrough) fn do_ioctl(&self, arg: &IoctlIn, data: &[u8]) -> Result<IoctlReply, Errno> {
        let fh = Handle::from(arg.fh);
        let data = if arg.flags.get() & IOCTL_DIR != 0 {
            self.attributes(self.handles.directory(fh)?.as_fd(), arg.cmd.get(), data)
        } else {
            self.attributes(self.handles.file(fh)?.fd.as_fd(), arg.cmd.get(), data)
        }?;
        if data.len() > arg.out_size.get() as usize {
            return Err(Errno::INVAL);
        }
        Ok(IoctlReply { data, ..IoctlReply::default() })
    }

    fn attributes(&self, fd: BorrowedFd<'_>, request: u32, data: &[u8]) -> Result<Vec<u8>, Errno> {
        match request {
            // The number says 8 bytes; Linux reads and writes 4.
            FS_IOC_GETFLAGS | FS_IOC32_GETFLAGS => Ok(inode_attr::get_flags(fd)?.bits().to_le_bytes()[..4].to_vec()),
            FS_IOC_SETFLAGS | FS_IOC32_SETFLAGS => {
                self.check_writable()?;
                let (flags, _) = u32::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                inode_attr::set_flags(fd, IFlags::from_bits_retain(u32::from_le(flags)))?;
                Ok(Vec::new())
            }
            FS_IOC_FSGETXATTR => Ok(inode_attr::get_fsxattr(fd)?.as_bytes().to_vec()),
            FS_IOC_FSSETXATTR => {
                self.check_writable()?;
                let (attributes, _) = FsXattr::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                inode_attr::set_fsxattr(fd, attributes)?;
                Ok(Vec::new())
            }
            _ => Err(Errno::NOTTY),
        }
    }
}
