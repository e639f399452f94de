//! MKNOD.

use rustix::fs::{AtFlags, FileType, makedev};
use transom_wire::{attr::EntryOut, device_number};

use crate::{
    Errno,
    operation::Mknod,
    passthrough::{Passthrough, creator::permissions},
    server::{Call, Serve},
};

impl Serve<Mknod> for Passthrough {
    /// FIFOs, sockets and devices are only names here; the objects live in the guest's kernel.
    fn serve(&self, call: Call<'_, Mknod>) -> Result<EntryOut, Errno> {
        let (ctx, parent, name, arg) = (&call.ctx, call.nodeid, call.name, &call.arg);
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
        self.check_creatable(&dir, name.as_bytes())?;
        if !self.has_made(ctx, &dir, name.as_bytes())? {
            let _creator = self.creator(ctx, arg.umask.get())?;
            let device = makedev(major, minor);
            rustix::fs::mknodat(&dir.fd, name.as_bytes(), file_type, permissions(mode), device)?;
            self.journal_step("done");
        }
        self.created(ctx, parent, &dir, name.as_bytes(), AtFlags::empty())
    }
}
