//! ACCESS.

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags};
use transom_wire::operation::Access;

use crate::{
    Errno,
    passthrough::{Passthrough, inodes::file_type},
    server::{Call, Context, Serve},
    sysfd::stat,
};

const READ_WRITE_EXECUTE: u32 = 0o7;
const WRITE: u32 = 0o2;
const EXECUTE: u32 = 0o1;

impl Serve<Access> for Passthrough {
    /// Checks owner, group and mode. Linux does not send it: it checks by itself, with all that it knows of the
    /// caller.
    fn serve(&self, call: Call<'_, Access>) -> Result<(), Errno> {
        let (ctx, mask) = (&call.ctx, call.arg.mask.get());
        if mask & !READ_WRITE_EXECUTE != 0 {
            return Err(Errno::INVAL);
        }
        let stat = stat::statx(&self.inode(call.nodeid)?.fd, AtFlags::empty(), StatxFlags::BASIC_STATS)?;
        let is_of_the_share =
            matches!(file_type(&stat), FileType::RegularFile | FileType::Directory | FileType::Symlink);
        if mask & WRITE != 0 && is_of_the_share {
            self.check_writable()?;
        }
        if self.granted(ctx, &stat) & mask == mask { Ok(()) } else { Err(Errno::ACCESS) }
    }
}

impl Passthrough {
    fn granted(&self, ctx: &Context<'_>, stat: &Statx) -> u32 {
        let mode = u32::from(stat.stx_mode);
        if ctx.uid == 0 {
            let may_execute = file_type(stat) == FileType::Directory || mode & 0o111 != 0;
            return if may_execute { READ_WRITE_EXECUTE } else { READ_WRITE_EXECUTE - EXECUTE };
        }
        let shift = if self.guest_uid(stat.stx_uid).0 == ctx.uid {
            6
        } else if self.guest_gid(stat.stx_gid).0 == ctx.gid {
            3
        } else {
            0
        };
        mode >> shift & READ_WRITE_EXECUTE
    }
}
