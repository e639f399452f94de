//! The table of operations: takes the arguments, calls the method, sends the answer.
//!
//! Before a method runs that changes something or counts a lookup, the room for its answer is checked, so that no effect
//! is left whose answer could not be given.

use transom_wire::{
    Handle, Opcode,
    attr::{AttrOut, EntryOut},
    limits::{DATA_LEN_MAX, FORGET_COUNT_MAX, SYMLINK_LEN_MAX, XATTR_NAME_LEN_MAX, XATTR_VALUE_LEN_MAX},
    ops::{
        access::AccessIn,
        copy_file_range::{CopyFileRangeIn, CopyFileRangeOut},
        create::CreateIn,
        fallocate::FallocateIn,
        flush::FlushIn,
        forget::{BatchForgetIn, ForgetIn, ForgetOne},
        fsync::FsyncIn,
        getattr::{GETATTR_FH, GetattrIn},
        init::InitOut,
        interrupt::InterruptIn,
        ioctl::IoctlIn,
        link::LinkIn,
        lk::{LkIn, LkOut},
        lseek::{LseekIn, LseekOut},
        mkdir::MkdirIn,
        mknod::MknodIn,
        open::{OpenIn, OpenOut},
        read::ReadIn,
        release::ReleaseIn,
        removemapping::{RemovemappingIn, RemovemappingOne},
        rename::{Rename2In, RenameIn},
        setattr::{SetattrIn, SetattrValid},
        setupmapping::SetupmappingIn,
        statfs::StatfsOut,
        statx::{StatxIn, StatxOut},
        write::{WriteIn, WriteOut},
        xattr::{GetxattrIn, GetxattrOut, SetxattrIn, SetxattrInCompat},
    },
};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    End, FileSystem, Server, XattrReply,
    dirents::{Dirents, DirentsPlus},
    reply::Reply,
    request::Request,
    slices::GuestSlices,
};
use crate::Errno;

impl<F: FileSystem> Server<F> {
    pub(super) fn dispatch(&self, opcode: Opcode, mut req: Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        match opcode {
            Opcode::Init => {
                reply.need(size_of::<InitOut>())?;
                let patience = req.context.patience;
                reply.send(&self.session.begin(&self.fs, req.rest(), patience)?)
            }
            Opcode::Destroy => {
                self.session.end(&self.fs, End::Destroy, req.context.patience)?;
                reply.empty()
            }
            Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt | Opcode::NotifyReply => {
                self.without_reply(opcode, req)
            }
            Opcode::Lookup
            | Opcode::Symlink
            | Opcode::Mknod
            | Opcode::Mkdir
            | Opcode::Link
            | Opcode::Create
            | Opcode::Tmpfile => self.gives_entry(opcode, req, reply),
            Opcode::Unlink | Opcode::Rmdir | Opcode::Rename | Opcode::Rename2 => {
                self.changes_names(opcode, req)?;
                reply.empty()
            }
            Opcode::Setxattr | Opcode::Getxattr | Opcode::Listxattr | Opcode::Removexattr => {
                self.xattr(opcode, req, reply)
            }
            Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw => self.lock(opcode, req, reply),
            Opcode::Getattr | Opcode::Setattr | Opcode::Readlink | Opcode::Statfs | Opcode::Access | Opcode::Statx => {
                self.attributes(opcode, req, reply)
            }
            Opcode::Readdir => {
                let mut arg: ReadIn = req.take()?;
                let mut entries = Dirents::new(clip_entries(&mut arg, reply));
                self.fs.readdir(&req.context, req.nodeid, &arg, &mut entries)?;
                reply.bytes(entries.as_bytes())
            }
            Opcode::Readdirplus => {
                let mut arg: ReadIn = req.take()?;
                let mut entries = DirentsPlus::new(clip_entries(&mut arg, reply));
                self.fs.readdirplus(&req.context, req.nodeid, &arg, &mut entries)?;
                reply.bytes(entries.as_bytes())
            }
            Opcode::Read => {
                let mut arg: ReadIn = req.take()?;
                let room = clip(&mut arg, reply);
                let mut data = GuestSlices::new();
                reply.data_slices(room, &mut data);
                let len = self.fs.read(&req.context, req.nodeid, &arg, &data)?;
                reply.data(len.min(room))
            }
            Opcode::Write => self.write(req, reply),
            Opcode::Open
            | Opcode::Opendir
            | Opcode::Release
            | Opcode::Releasedir
            | Opcode::Flush
            | Opcode::Fsync
            | Opcode::Fsyncdir
            | Opcode::Fallocate
            | Opcode::Lseek
            | Opcode::CopyFileRange
            | Opcode::CopyFileRange64
            | Opcode::Ioctl
            | Opcode::Syncfs => self.open_file(opcode, req, reply),
            Opcode::Setupmapping => {
                let arg: SetupmappingIn = req.take()?;
                self.fs.setupmapping(&req.context, req.nodeid, &arg)?;
                reply.empty()
            }
            Opcode::Removemapping => {
                let count = req.take::<RemovemappingIn>()?.count.get() as usize;
                let ranges = <[RemovemappingOne]>::ref_from_prefix_with_elems(req.rest(), count);
                self.fs.removemapping(&req.context, req.nodeid, ranges.map_err(|_| Errno::INVAL)?.0)?;
                reply.empty()
            }
            // Block numbers of the host mean nothing to a guest, and readiness of a regular file is always true.
            Opcode::Bmap | Opcode::Poll => Err(Errno::NOSYS),
        }
    }

    fn without_reply(&self, opcode: Opcode, mut req: Request<'_>) -> Result<(), Errno> {
        match opcode {
            Opcode::Forget => self.fs.forget(req.nodeid, req.take::<ForgetIn>()?.nlookup.get()),
            Opcode::BatchForget => {
                let count = req.take::<BatchForgetIn>()?.count.get() as usize;
                for _ in 0..count.min(FORGET_COUNT_MAX) {
                    let one: ForgetOne = req.take()?;
                    self.fs.forget(one.nodeid.into(), one.nlookup.get());
                }
            }
            Opcode::Interrupt => self.fs.interrupt(req.take::<InterruptIn>()?.unique.into()),
            _ => {}
        }
        Ok(())
    }

    fn gives_entry(&self, opcode: Opcode, mut req: Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        reply.need(size_of::<EntryOut>())?;
        let parent = req.nodeid;
        let entry = match opcode {
            Opcode::Lookup => {
                let name = req.name()?;
                self.fs.lookup(&req.context, parent, name)?
            }
            Opcode::Symlink => {
                let (name, target) = (req.name()?, req.string()?);
                req.extensions()?;
                match target.len() {
                    0 => return Err(Errno::NOENT),
                    1..=SYMLINK_LEN_MAX => self.fs.symlink(&req.context, parent, name, target)?,
                    _ => return Err(Errno::NAMETOOLONG),
                }
            }
            Opcode::Mknod => {
                let (arg, name): (MknodIn, _) = (req.take()?, req.name()?);
                req.extensions()?;
                self.fs.mknod(&req.context, parent, name, &arg)?
            }
            Opcode::Mkdir => {
                let (arg, name): (MkdirIn, _) = (req.take()?, req.name()?);
                req.extensions()?;
                self.fs.mkdir(&req.context, parent, name, &arg)?
            }
            Opcode::Link => {
                let (arg, name): (LinkIn, _) = (req.take()?, req.name()?);
                self.fs.link(&req.context, arg.oldnodeid.into(), parent, name)?
            }
            _ => return self.creates_open_file(opcode, req, reply),
        };
        reply.send(&entry)
    }

    fn creates_open_file(&self, opcode: Opcode, mut req: Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        reply.need(size_of::<(EntryOut, OpenOut)>())?;
        let arg: CreateIn = req.take()?;
        let (entry, open) = if opcode == Opcode::Tmpfile {
            // The name that Linux sends with TMPFILE stands for none.
            req.string()?;
            req.extensions()?;
            self.fs.tmpfile(&req.context, req.nodeid, &arg)?
        } else {
            let name = req.name()?;
            req.extensions()?;
            self.fs.create(&req.context, req.nodeid, name, &arg)?
        };
        reply.two([entry.as_bytes(), open.as_bytes()])
    }

    fn changes_names(&self, opcode: Opcode, mut req: Request<'_>) -> Result<(), Errno> {
        let ctx = req.context;
        let (newdir, flags) = match opcode {
            Opcode::Unlink => return self.fs.unlink(&ctx, req.nodeid, req.name()?),
            Opcode::Rmdir => return self.fs.rmdir(&ctx, req.nodeid, req.name()?),
            Opcode::Rename => (req.take::<RenameIn>()?.newdir, 0),
            _ => {
                let arg: Rename2In = req.take()?;
                (arg.newdir, arg.flags.get())
            }
        };
        let (from, to) = (req.name()?, req.name()?);
        self.fs.rename(&ctx, (req.nodeid, from), (newdir.into(), to), flags)
    }

    fn attributes(&self, opcode: Opcode, mut req: Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let (ctx, nodeid) = (req.context, req.nodeid);
        match opcode {
            Opcode::Getattr => {
                let arg: GetattrIn = req.take()?;
                let fh = (arg.getattr_flags.get() & GETATTR_FH != 0).then(|| Handle::from(arg.fh));
                reply.send(&self.fs.getattr(&ctx, nodeid, fh)?)
            }
            Opcode::Setattr => {
                reply.need(size_of::<AttrOut>())?;
                let arg: SetattrIn = req.take()?;
                let valid = SetattrValid::from_bits(arg.valid.get()).ok_or(Errno::INVAL)?;
                reply.send(&self.fs.setattr(&ctx, nodeid, valid, &arg)?)
            }
            Opcode::Readlink => reply.bytes(&self.fs.readlink(&ctx, nodeid)?),
            Opcode::Statfs => reply.send::<StatfsOut>(&self.fs.statfs(&ctx, nodeid)?),
            Opcode::Access => {
                let arg: AccessIn = req.take()?;
                self.fs.access(&ctx, nodeid, arg.mask.get())?;
                reply.empty()
            }
            _ => reply.send::<StatxOut>(&self.fs.statx(&ctx, nodeid, &req.take::<StatxIn>()?)?),
        }
    }

    fn write(&self, mut req: Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        reply.need(size_of::<WriteOut>())?;
        let arg: WriteIn = req.take()?;
        let mut data = GuestSlices::new();
        req.data_slices(arg.size.get() as usize, &mut data)?;
        let written = self.fs.write(&req.context, req.nodeid, &arg, &data)?;
        reply.data_len_bytes = written.into();
        reply.send(&WriteOut { size: written.into(), padding: 0.into() })
    }

    fn open_file(&self, opcode: Opcode, mut req: Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let (ctx, nodeid) = (req.context, req.nodeid);
        match opcode {
            Opcode::Open | Opcode::Opendir => {
                reply.need(size_of::<OpenOut>())?;
                let arg: OpenIn = req.take()?;
                let is_dir = opcode == Opcode::Opendir;
                let open = if is_dir { self.fs.opendir(&ctx, nodeid, &arg) } else { self.fs.open(&ctx, nodeid, &arg) };
                return reply.send(&open?);
            }
            Opcode::Lseek => {
                let offset = self.fs.lseek(&ctx, nodeid, &req.take::<LseekIn>()?)?;
                return reply.send(&LseekOut { offset: offset.into() });
            }
            Opcode::CopyFileRange | Opcode::CopyFileRange64 => return self.copy_file_range(opcode, req, reply),
            Opcode::Ioctl => {
                let arg: IoctlIn = req.take()?;
                let data = req.rest().get(..arg.in_size.get() as usize).ok_or(Errno::INVAL)?;
                let answer = self.fs.ioctl(&ctx, nodeid, &arg, data)?;
                return reply.two([answer.out.as_bytes(), &answer.data]);
            }
            Opcode::Release => self.fs.release(&ctx, nodeid, &req.take::<ReleaseIn>()?)?,
            Opcode::Releasedir => self.fs.releasedir(&ctx, nodeid, &req.take::<ReleaseIn>()?)?,
            Opcode::Flush => self.fs.flush(&ctx, nodeid, &req.take::<FlushIn>()?)?,
            Opcode::Fsync => self.fs.fsync(&ctx, nodeid, &req.take::<FsyncIn>()?)?,
            Opcode::Fsyncdir => self.fs.fsyncdir(&ctx, nodeid, &req.take::<FsyncIn>()?)?,
            Opcode::Fallocate => self.fs.fallocate(&ctx, nodeid, &req.take::<FallocateIn>()?)?,
            _ => self.fs.syncfs(&ctx, nodeid)?,
        }
        reply.empty()
    }

    fn copy_file_range(&self, opcode: Opcode, mut req: Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        reply.need(size_of::<CopyFileRangeOut>())?;
        let mut arg: CopyFileRangeIn = req.take()?;
        if opcode == Opcode::CopyFileRange64 {
            let bytes_copied = self.fs.copy_file_range(&req.context, req.nodeid, &arg)?;
            reply.data_len_bytes = bytes_copied;
            return reply.send(&CopyFileRangeOut { bytes_copied: bytes_copied.into() });
        }
        // The answer has 32 bits; a whole number of pages keeps the guest's next request aligned.
        arg.len = arg.len.get().min(u64::from(!0xfff_u32)).into();
        let size = self.fs.copy_file_range(&req.context, req.nodeid, &arg)? as u32;
        reply.data_len_bytes = size.into();
        reply.send(&WriteOut { size: size.into(), padding: 0.into() })
    }

    fn xattr(&self, opcode: Opcode, mut req: Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let (ctx, nodeid) = (req.context, req.nodeid);
        let answer = match opcode {
            Opcode::Setxattr => {
                let arg = self.setxattr_arguments(&mut req)?;
                let name = xattr_name(&mut req)?;
                if arg.size.get() as usize > XATTR_VALUE_LEN_MAX {
                    return Err(Errno::TOOBIG);
                }
                let value = req.rest().get(..arg.size.get() as usize).ok_or(Errno::INVAL)?;
                self.fs.setxattr(&ctx, nodeid, name, value, &arg)?;
                return reply.empty();
            }
            Opcode::Removexattr => {
                self.fs.removexattr(&ctx, nodeid, xattr_name(&mut req)?)?;
                return reply.empty();
            }
            Opcode::Getxattr => {
                let arg: GetxattrIn = req.take()?;
                self.fs.getxattr(&ctx, nodeid, xattr_name(&mut req)?, arg.size.get())?
            }
            _ => self.fs.listxattr(&ctx, nodeid, req.take::<GetxattrIn>()?.size.get())?,
        };
        match answer {
            XattrReply::Size(size) => reply.send(&GetxattrOut { size: size.into(), padding: 0.into() }),
            XattrReply::Bytes(bytes) => reply.bytes(&bytes),
        }
    }

    fn setxattr_arguments(&self, req: &mut Request<'_>) -> Result<SetxattrIn, Errno> {
        if self.session.has_setxattr_ext() {
            return req.take();
        }
        let SetxattrInCompat { size, flags } = req.take()?;
        Ok(SetxattrIn { size, flags, setxattr_flags: 0.into(), padding: 0.into() })
    }

    fn lock(&self, opcode: Opcode, mut req: Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let (ctx, nodeid) = (req.context, req.nodeid);
        let arg: LkIn = req.take()?;
        match opcode {
            Opcode::Getlk => {
                let lk = self.fs.getlk(&ctx, nodeid, &arg)?;
                return reply.send(&LkOut { lk });
            }
            Opcode::Setlk => self.fs.setlk(&ctx, nodeid, &arg)?,
            _ => self.fs.setlkw(&ctx, nodeid, &arg)?,
        }
        reply.empty()
    }
}

/// Cuts the size that the guest asks for to the room that its buffers have.
fn clip(arg: &mut ReadIn, reply: &Reply<'_>) -> usize {
    let room = reply.room_up_to(arg.size.get());
    arg.size = (room as u32).into();
    room
}

/// As [`clip`], and to what we are ready to gather: entries do not go straight into the guest's buffers.
fn clip_entries(arg: &mut ReadIn, reply: &Reply<'_>) -> usize {
    arg.size = arg.size.get().min(DATA_LEN_MAX).into();
    clip(arg, reply)
}

fn xattr_name<'a>(req: &mut Request<'a>) -> Result<&'a [u8], Errno> {
    match req.string()? {
        [] => Err(Errno::RANGE),
        name if name.len() > XATTR_NAME_LEN_MAX => Err(Errno::RANGE),
        name => Ok(name),
    }
}
