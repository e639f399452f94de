//! MKNOD.

use rustix::fs::{AtFlags, FileType, makedev};
use transom_wire::{Name, NodeId, attr::EntryOut, device_number, ops::mknod::MknodIn};

use crate::{
    Errno,
    passthrough::{Passthrough, creator::permissions},
    server::Context,
};

impl Passthrough {
    /// FIFOs, sockets and devices are names here; what they stand for lives in the guest's kernel.
    pub(in crate::passthrough) fn do_mknod(
        &self,
        ctx: &Context<'_>,
        parent: NodeId,
        name: Name<'_>,
        arg: &MknodIn,
    ) -> Result<EntryOut, Errno> {
        self.check_writable()?;
        let mode = arg.mode.get();
        let file_type = match mode & libc::S_IFMT {
            0 => FileType::RegularFile,
            libc::S_IFDIR => return Err(Errno::PERM),
            libc::S_IFLNK => return Err(Errno::INVAL),
            _ => FileType::from_raw_mode(mode),
        };
        if file_type == FileType::Unknown {
            return Err(Errno::INVAL);
        }
        let (major, minor) = device_number::decode(arg.rdev.get());
        self.inodes.check_room()?;
        let dir = self.inodes.get(parent)?;
        {
            let _creator = self.creator(ctx, arg.umask.get())?;
            let device = makedev(major, minor);
            rustix::fs::mknodat(&dir.fd, name.as_bytes(), file_type, permissions(mode), device)?;
        }
        self.created(ctx, parent, &dir, name.as_bytes(), AtFlags::empty())
    }
}
