//! A file system that says yes to everything, and checks what it is asked.

use transom_host::{
    Errno,
    server::{
        Context, Dirents, DirentsPlus, End, FileSystem, GuestSlice, InitAnswer, InitOffer, IoctlReply, XattrReply,
    },
};
use transom_wire::{
    Handle, Name, NodeId,
    attr::{AttrOut, EntryOut},
    limits::{DATA_LEN_MAX, SYMLINK_LEN_MAX, XATTR_NAME_LEN_MAX, XATTR_VALUE_LEN_MAX},
    ops::{
        create::CreateIn,
        ioctl::IoctlIn,
        mkdir::MkdirIn,
        mknod::MknodIn,
        open::{OpenIn, OpenOut},
        read::ReadIn,
        removemapping::RemovemappingOne,
        setattr::{SetattrIn, SetattrValid},
        write::WriteIn,
        xattr::SetxattrIn,
    },
};

/// Says yes.
pub(super) struct Null;

fn check(name: Name<'_>) {
    let bytes = name.as_bytes();
    assert!((1..=255).contains(&bytes.len()) && !bytes.contains(&b'/') && !bytes.contains(&0), "{name:?}");
    assert!(bytes != b"." && bytes != b"..");
}

fn check_xattr(name: &[u8]) {
    assert!((1..=XATTR_NAME_LEN_MAX).contains(&name.len()) && !name.contains(&0));
}

/// Asks for patience wherever that is allowed, now and then.
fn defer(ctx: &Context<'_>) -> Result<(), Errno> {
    match ctx.patience {
        transom_host::server::Patience::Try if ctx.pid % 2 == 1 => Err(Errno::AGAIN),
        _ => Ok(()),
    }
}

impl FileSystem for Null {
    fn init(&self, offer: &InitOffer) -> Result<InitAnswer, Errno> {
        Ok(InitAnswer {
            flags: offer.flags,
            max_readahead: offer.max_readahead,
            max_background: 1,
            congestion_threshold: 1,
            max_write: DATA_LEN_MAX,
            time_gran: 1,
            max_pages: 256,
            map_alignment: 0,
        })
    }

    fn destroy(&self, _: End) {}

    fn lookup(&self, ctx: &Context<'_>, _: NodeId, name: Name<'_>) -> Result<EntryOut, Errno> {
        check(name);
        defer(ctx)?;
        Ok(EntryOut::default())
    }

    fn forget(&self, _: NodeId, _: u64) {}

    fn getattr(&self, _: &Context<'_>, _: NodeId, _: Option<Handle>) -> Result<AttrOut, Errno> {
        Ok(AttrOut::default())
    }

    fn setattr(&self, _: &Context<'_>, _: NodeId, _: SetattrValid, _: &SetattrIn) -> Result<AttrOut, Errno> {
        Ok(AttrOut::default())
    }

    fn readlink(&self, _: &Context<'_>, _: NodeId) -> Result<Vec<u8>, Errno> {
        Ok(vec![b'x'; 100])
    }

    fn symlink(&self, _: &Context<'_>, _: NodeId, name: Name<'_>, target: &[u8]) -> Result<EntryOut, Errno> {
        check(name);
        assert!((1..=SYMLINK_LEN_MAX).contains(&target.len()) && !target.contains(&0));
        Ok(EntryOut::default())
    }

    fn mknod(&self, _: &Context<'_>, _: NodeId, name: Name<'_>, _: &MknodIn) -> Result<EntryOut, Errno> {
        check(name);
        Ok(EntryOut::default())
    }

    fn mkdir(&self, ctx: &Context<'_>, _: NodeId, name: Name<'_>, _: &MkdirIn) -> Result<EntryOut, Errno> {
        check(name);
        if let Some((name, value)) = ctx.extensions.secctx {
            check_xattr(name);
            assert!((1..=XATTR_VALUE_LEN_MAX).contains(&value.len()));
        }
        Ok(EntryOut::default())
    }

    fn unlink(&self, _: &Context<'_>, _: NodeId, name: Name<'_>) -> Result<(), Errno> {
        check(name);
        Ok(())
    }

    fn rmdir(&self, _: &Context<'_>, _: NodeId, name: Name<'_>) -> Result<(), Errno> {
        check(name);
        Ok(())
    }

    fn rename(&self, _: &Context<'_>, from: (NodeId, Name<'_>), to: (NodeId, Name<'_>), _: u32) -> Result<(), Errno> {
        check(from.1);
        check(to.1);
        Ok(())
    }

    fn link(&self, _: &Context<'_>, _: NodeId, _: NodeId, name: Name<'_>) -> Result<EntryOut, Errno> {
        check(name);
        Ok(EntryOut::default())
    }

    fn open(&self, _: &Context<'_>, _: NodeId, _: &OpenIn) -> Result<OpenOut, Errno> {
        Ok(OpenOut::default())
    }

    fn read(&self, ctx: &Context<'_>, _: NodeId, arg: &ReadIn, data: &[GuestSlice<'_>]) -> Result<usize, Errno> {
        defer(ctx)?;
        let room: usize = data.iter().map(|slice| slice.len()).sum();
        assert_eq!(room, arg.size.get() as usize);
        data.iter().for_each(|slice| slice.copy_from(&vec![7u8; slice.len()]));
        Ok(room)
    }

    fn write(&self, ctx: &Context<'_>, _: NodeId, arg: &WriteIn, data: &[GuestSlice<'_>]) -> Result<u32, Errno> {
        defer(ctx)?;
        let len: usize = data.iter().map(|slice| slice.len()).sum();
        assert_eq!(len, arg.size.get() as usize);
        Ok(arg.size.get())
    }

    fn setxattr(&self, _: &Context<'_>, _: NodeId, name: &[u8], value: &[u8], arg: &SetxattrIn) -> Result<(), Errno> {
        check_xattr(name);
        assert_eq!(value.len(), arg.size.get() as usize);
        assert!(value.len() <= XATTR_VALUE_LEN_MAX);
        Ok(())
    }

    fn getxattr(&self, _: &Context<'_>, _: NodeId, name: &[u8], size: u32) -> Result<XattrReply, Errno> {
        check_xattr(name);
        Ok(if size == 0 { XattrReply::Size(100) } else { XattrReply::Bytes(vec![0; 100]) })
    }

    fn listxattr(&self, _: &Context<'_>, _: NodeId, size: u32) -> Result<XattrReply, Errno> {
        Ok(if size == 0 { XattrReply::Size(100) } else { XattrReply::Bytes(vec![0; 100]) })
    }

    fn removexattr(&self, _: &Context<'_>, _: NodeId, name: &[u8]) -> Result<(), Errno> {
        check_xattr(name);
        Ok(())
    }

    fn readdir(&self, ctx: &Context<'_>, _: NodeId, arg: &ReadIn, entries: &mut Dirents) -> Result<(), Errno> {
        defer(ctx)?;
        assert!(arg.size.get() <= DATA_LEN_MAX);
        while entries.push(1, 1, 1, &[b'x'; 13]).is_ok() {}
        Ok(())
    }

    fn readdirplus(&self, ctx: &Context<'_>, _: NodeId, arg: &ReadIn, entries: &mut DirentsPlus) -> Result<(), Errno> {
        defer(ctx)?;
        assert!(arg.size.get() <= DATA_LEN_MAX);
        while entries.push(&EntryOut::default(), 1, 1, 1, &[b'x'; 13]).is_ok() {}
        Ok(())
    }

    fn create(&self, _: &Context<'_>, _: NodeId, name: Name<'_>, _: &CreateIn) -> Result<(EntryOut, OpenOut), Errno> {
        check(name);
        Ok((EntryOut::default(), OpenOut::default()))
    }

    fn removemapping(&self, _: &Context<'_>, _: NodeId, ranges: &[RemovemappingOne]) -> Result<(), Errno> {
        assert!(size_of_val(ranges) <= transom_wire::limits::MESSAGE_LEN_MAX);
        Ok(())
    }

    fn tmpfile(&self, _: &Context<'_>, _: NodeId, _: &CreateIn) -> Result<(EntryOut, OpenOut), Errno> {
        Ok((EntryOut::default(), OpenOut::default()))
    }

    fn ioctl(&self, _: &Context<'_>, _: NodeId, arg: &IoctlIn, data: &[u8]) -> Result<IoctlReply, Errno> {
        assert_eq!(data.len(), arg.in_size.get() as usize);
        Ok(IoctlReply { data: vec![0; (arg.out_size.get() as usize).min(64)], ..IoctlReply::default() })
    }
}
