//! IOCTL, limited to inode attributes and the channel of the agent. Anything else would let the guest choose a request to a host driver.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, StatxFlags};
use transom_wire::{Handle, agent::EXCHANGE, operation::Ioctl, ops::ioctl::IOCTL_DIR};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Context, IoctlReply, Serve},
    sysfd::{
        inode_attr::{self, FsXattr, IFlags},
        stat,
    },
};

/// Request numbers of a 64-bit kernel, whatever its programs are. Source: linux/fs.h.
///
/// `FS_IOC32_SETFLAGS` is not served: a guest's kernel translates it for 32-bit programs, and for others passes it on
/// without a check of its own.
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;

impl Serve<Ioctl> for Passthrough {
    /// # Errors
    ///
    /// ENOTTY for any other request, EPERM for a change by a caller who is neither root nor the file's owner.
    fn serve(&self, call: Call<'_, Ioctl>) -> Result<IoctlReply, Errno> {
        let (ctx, arg, data) = (&call.ctx, &call.arg, call.rest);
        let fh = Handle::from(arg.fh);
        if arg.cmd.get() == EXCHANGE {
            let reply = self.exchange(ctx, call.nodeid, fh, arg, data)?;
            return Ok(IoctlReply { data: reply.to_vec(), ..IoctlReply::default() });
        }
        let data = if arg.flags.get() & IOCTL_DIR != 0 {
            self.attributes(ctx, self.handles.directory(fh)?.as_fd(), arg.cmd.get(), data)
        } else {
            self.attributes(ctx, self.handles.file(fh)?.fd.as_fd(), arg.cmd.get(), data)
        }?;
        if data.len() > arg.out_size.get() as usize {
            return Err(Errno::INVAL);
        }
        Ok(IoctlReply { data, ..IoctlReply::default() })
    }
}

impl Passthrough {
    fn attributes(&self, ctx: &Context<'_>, fd: BorrowedFd<'_>, request: u32, data: &[u8]) -> Result<Vec<u8>, Errno> {
        match request {
            // The number encodes 8 bytes; Linux reads and writes 4.
            FS_IOC_GETFLAGS => Ok(inode_attr::get_flags(fd)?.bits().to_le_bytes()[..4].to_vec()),
            FS_IOC_SETFLAGS => {
                self.check_may_change(ctx, fd)?;
                let (flags, _) = u32::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                inode_attr::set_flags(fd, IFlags::from_bits_retain(u32::from_le(flags)))?;
                Ok(Vec::new())
            }
            FS_IOC_FSGETXATTR => Ok(inode_attr::get_fsxattr(fd)?.as_bytes().to_vec()),
            FS_IOC_FSSETXATTR => {
                self.check_may_change(ctx, fd)?;
                let (attributes, _) = FsXattr::read_from_prefix(data).map_err(|_| Errno::INVAL)?;
                inode_attr::set_fsxattr(fd, attributes)?;
                Ok(Vec::new())
            }
            _ => Err(Errno::NOTTY),
        }
    }

    /// Checks that the caller may change attributes.
    ///
    /// A file that is open for reading is enough for these requests, and kernels before 5.13 leave the check to the
    /// server.
    ///
    /// # Errors
    ///
    /// EROFS if the share is read-only, EPERM unless the caller is root or owns the file, as the guest sees owners.
    fn check_may_change(&self, ctx: &Context<'_>, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        self.check_writable()?;
        if ctx.uid == 0 {
            return Ok(());
        }
        let owner = self.guest_uid(stat::statx(fd, AtFlags::empty(), StatxFlags::UID)?.stx_uid);
        if owner.0 == ctx.uid { Ok(()) } else { Err(Errno::PERM) }
    }
}
