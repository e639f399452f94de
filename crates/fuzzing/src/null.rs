//! A file system on which every operation succeeds, and which checks its arguments.

use transom_host::{
    Errno,
    server::{
        AgentCall, AgentReply, Call, Changing, Context, End, FileSystem, InitAnswer, InitOffer, IoctlReply, Serve,
        XattrReply,
    },
};
use transom_wire::{
    Name,
    attr::{AttrOut, EntryOut},
    limits::{DATA_LEN_MAX, SYMLINK_LEN_MAX, XATTR_NAME_LEN_MAX, XATTR_VALUE_LEN_MAX},
    operation::{
        Create, Forget, Getattr, Getxattr, Ioctl, Link, Listxattr, Lookup, Mkdir, Mknod, Open, Read, Readdir,
        Readdirplus, Readlink, Removemapping, Removexattr, Rename, Rename2, Rmdir, Setattr, Setxattr, Symlink, Tmpfile,
        Unlink, Write,
    },
    ops::{create::CreateOut, open::OpenOut, write::WriteOut},
};

/// Says yes.
pub(super) struct Null {
    /// Whether requests are those of the agent in a guest, which must change nothing.
    pub(super) is_agents: bool,
}

fn check(name: Name<'_>) {
    let bytes = name.as_bytes();
    assert!((1..=255).contains(&bytes.len()) && !bytes.contains(&b'/') && !bytes.contains(&0), "{name:?}");
    assert!(bytes != b"." && bytes != b"..");
}

fn check_xattr(name: &[u8]) {
    assert!((1..=XATTR_NAME_LEN_MAX).contains(&name.len()) && !name.contains(&0));
}

/// Asks to be deferred wherever that is allowed, now and then.
fn defer(ctx: &Context<'_>) -> Result<(), Errno> {
    match ctx.blocking {
        transom_host::server::BlockingMode::MustNotBlock if ctx.pid % 2 == 1 => Err(Errno::AGAIN),
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

    fn serve_agent(&self, _: &Context<'_>, call: AgentCall<'_>) -> Result<AgentReply, Errno> {
        assert!(self.is_agents);
        Ok(match call {
            AgentCall::Lookup(_, name) => {
                check(name);
                AgentReply::Usual
            }
            AgentCall::Getattr(_) => AgentReply::Usual,
            AgentCall::Make(_, name, _) => {
                check(name);
                AgentReply::Entry(EntryOut::default())
            }
            AgentCall::Remove(_, name, _) => {
                check(name);
                AgentReply::Done
            }
            AgentCall::Rename((_, old), (_, new), _) => {
                check(old);
                check(new);
                AgentReply::Done
            }
            AgentCall::Open(..) => AgentReply::Opened(OpenOut::default()),
            AgentCall::Setattr(..) => AgentReply::Attributes(AttrOut::default()),
        })
    }

    fn changing<T>(&self, request: &Changing<'_>, serve: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        assert!(!self.is_agents || request.changes().next().is_none(), "a change by the agent: {request:?}");
        serve()
    }
}

impl Serve<Lookup> for Null {
    fn serve(&self, call: Call<'_, Lookup>) -> Result<EntryOut, Errno> {
        let (ctx, name) = (&call.ctx, call.name);
        check(name);
        defer(ctx)?;
        Ok(EntryOut::default())
    }
}

impl Serve<Forget> for Null {
    fn serve(&self, _: Call<'_, Forget>) -> Result<(), Errno> {
        Ok(())
    }
}

impl Serve<Getattr> for Null {
    fn serve(&self, _: Call<'_, Getattr>) -> Result<AttrOut, Errno> {
        Ok(AttrOut::default())
    }
}

impl Serve<Setattr> for Null {
    fn serve(&self, _: Call<'_, Setattr>) -> Result<AttrOut, Errno> {
        Ok(AttrOut::default())
    }
}

impl Serve<Readlink> for Null {
    fn serve(&self, _: Call<'_, Readlink>) -> Result<Vec<u8>, Errno> {
        Ok(vec![b'x'; 100])
    }
}

impl Serve<Symlink> for Null {
    fn serve(&self, call: Call<'_, Symlink>) -> Result<EntryOut, Errno> {
        let (name, target) = call.name;
        check(name);
        assert!((1..=SYMLINK_LEN_MAX).contains(&target.len()) && !target.contains(&0));
        Ok(EntryOut::default())
    }
}

impl Serve<Mknod> for Null {
    fn serve(&self, call: Call<'_, Mknod>) -> Result<EntryOut, Errno> {
        let name = call.name;
        check(name);
        Ok(EntryOut::default())
    }
}

impl Serve<Mkdir> for Null {
    fn serve(&self, call: Call<'_, Mkdir>) -> Result<EntryOut, Errno> {
        let (ctx, name) = (&call.ctx, call.name);
        check(name);
        if let Some((name, value)) = ctx.extensions.secctx {
            check_xattr(name);
            assert!((1..=XATTR_VALUE_LEN_MAX).contains(&value.len()));
        }
        Ok(EntryOut::default())
    }
}

impl Serve<Unlink> for Null {
    fn serve(&self, call: Call<'_, Unlink>) -> Result<(), Errno> {
        let name = call.name;
        check(name);
        Ok(())
    }
}

impl Serve<Rmdir> for Null {
    fn serve(&self, call: Call<'_, Rmdir>) -> Result<(), Errno> {
        let name = call.name;
        check(name);
        Ok(())
    }
}

impl Serve<Rename> for Null {
    fn serve(&self, call: Call<'_, Rename>) -> Result<(), Errno> {
        check(call.name.0);
        check(call.name.1);
        Ok(())
    }
}

impl Serve<Rename2> for Null {
    fn serve(&self, call: Call<'_, Rename2>) -> Result<(), Errno> {
        check(call.name.0);
        check(call.name.1);
        Ok(())
    }
}

impl Serve<Link> for Null {
    fn serve(&self, call: Call<'_, Link>) -> Result<EntryOut, Errno> {
        let name = call.name;
        check(name);
        Ok(EntryOut::default())
    }
}

impl Serve<Open> for Null {
    fn serve(&self, _: Call<'_, Open>) -> Result<OpenOut, Errno> {
        Ok(OpenOut::default())
    }
}

impl Serve<Read> for Null {
    fn serve(&self, call: Call<'_, Read>) -> Result<usize, Errno> {
        let (ctx, arg, data) = (&call.ctx, &call.arg, call.out);
        defer(ctx)?;
        let room: usize = data.iter().map(|slice| slice.len()).sum();
        assert_eq!(room, arg.size.get() as usize);
        data.iter().for_each(|slice| slice.copy_from(&vec![7u8; slice.len()]));
        Ok(room)
    }
}

impl Serve<Write> for Null {
    fn serve(&self, call: Call<'_, Write>) -> Result<WriteOut, Errno> {
        let (ctx, arg, data) = (&call.ctx, &call.arg, call.rest);
        defer(ctx)?;
        let len: usize = data.iter().map(|slice| slice.len()).sum();
        assert_eq!(len, arg.size.get() as usize);
        Ok(WriteOut::new(arg.size.get()))
    }
}

impl Serve<Setxattr> for Null {
    fn serve(&self, call: Call<'_, Setxattr>) -> Result<(), Errno> {
        let (name, value, arg) = (call.name, call.rest, &call.arg);
        check_xattr(name);
        assert_eq!(value.len(), arg.size.get() as usize);
        assert!(value.len() <= XATTR_VALUE_LEN_MAX);
        Ok(())
    }
}

impl Serve<Getxattr> for Null {
    fn serve(&self, call: Call<'_, Getxattr>) -> Result<XattrReply, Errno> {
        let (name, size) = (call.name, call.arg.size.get());
        check_xattr(name);
        Ok(if size == 0 { XattrReply::Size(100) } else { XattrReply::Bytes(vec![0; 100]) })
    }
}

impl Serve<Listxattr> for Null {
    fn serve(&self, call: Call<'_, Listxattr>) -> Result<XattrReply, Errno> {
        let size = call.arg.size.get();
        Ok(if size == 0 { XattrReply::Size(100) } else { XattrReply::Bytes(vec![0; 100]) })
    }
}

impl Serve<Removexattr> for Null {
    fn serve(&self, call: Call<'_, Removexattr>) -> Result<(), Errno> {
        let name = call.name;
        check_xattr(name);
        Ok(())
    }
}

impl Serve<Readdir> for Null {
    fn serve(&self, call: Call<'_, Readdir>) -> Result<(), Errno> {
        let (ctx, arg, entries) = (&call.ctx, &call.arg, call.out);
        defer(ctx)?;
        assert!(arg.size.get() <= DATA_LEN_MAX);
        while entries.push(1, 1, 1, &[b'x'; 13]).is_ok() {}
        Ok(())
    }
}

impl Serve<Readdirplus> for Null {
    fn serve(&self, call: Call<'_, Readdirplus>) -> Result<(), Errno> {
        let (ctx, arg, entries) = (&call.ctx, &call.arg, call.out);
        defer(ctx)?;
        assert!(arg.size.get() <= DATA_LEN_MAX);
        while entries.push(&EntryOut::default(), 1, 1, 1, &[b'x'; 13]).is_ok() {}
        Ok(())
    }
}

impl Serve<Create> for Null {
    fn serve(&self, call: Call<'_, Create>) -> Result<CreateOut, Errno> {
        let name = call.name;
        check(name);
        Ok(CreateOut::default())
    }
}

impl Serve<Removemapping> for Null {
    fn serve(&self, call: Call<'_, Removemapping>) -> Result<(), Errno> {
        let ranges = call.rest;
        assert!(size_of_val(ranges) <= transom_wire::limits::MESSAGE_LEN_MAX);
        Ok(())
    }
}

impl Serve<Tmpfile> for Null {
    fn serve(&self, _: Call<'_, Tmpfile>) -> Result<CreateOut, Errno> {
        Ok(CreateOut::default())
    }
}

impl Serve<Ioctl> for Null {
    fn serve(&self, call: Call<'_, Ioctl>) -> Result<IoctlReply, Errno> {
        let (arg, data) = (&call.arg, call.rest);
        assert_eq!(data.len(), arg.in_size.get() as usize);
        Ok(IoctlReply { data: vec![0; (arg.out_size.get() as usize).min(64)], ..IoctlReply::default() })
    }
}

transom_host::unserved!(Null, except Lookup Forget Getattr Setattr Readlink Symlink Mknod Mkdir Unlink Rmdir Rename
    Rename2 Link Open Read Write Setxattr Getxattr Listxattr Removexattr Readdir
    Readdirplus Create Removemapping Tmpfile Ioctl);
