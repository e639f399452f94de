//! Requests of the agent, which replays changes of the host in the guest: recognised by their group, and never
//! performed if they would change something.
//!
//! The file system says what becomes of them ([`AgentCall`], [`AgentReply`]); this file parses the requests.

use rustix::fs::FileType;
use transom_wire::{
    Name, NodeId, Opcode,
    agent::{AGENT_GID, EXCHANGE},
    attr::{AttrOut, EntryOut},
    linux::RENAME_EXCHANGE,
    ops::{
        ioctl::IoctlIn,
        mkdir::MkdirIn,
        mknod::MknodIn,
        open::{OpenIn, OpenOut},
        rename::{Rename2In, RenameIn},
        setattr::{SetattrIn, SetattrValid},
    },
};

use super::{FileSystem, Server, reply::Reply, request::Request};
use crate::Errno;

/// A request of the agent.
#[derive(Debug, Clone, Copy)]
pub enum AgentCall<'a> {
    /// LOOKUP.
    Lookup(NodeId, Name<'a>),
    /// MKNOD, MKDIR or SYMLINK, with the file type of the mode.
    Make(NodeId, Name<'a>, FileType),
    /// UNLINK, or RMDIR if true.
    Remove(NodeId, Name<'a>, bool),
    /// RENAME or RENAME2, an exchange if true.
    Rename((NodeId, Name<'a>), (NodeId, Name<'a>), bool),
    /// OPEN.
    Open(NodeId, OpenIn),
    /// SETATTR.
    Setattr(NodeId, SetattrValid),
    /// GETATTR.
    Getattr(NodeId),
}

/// What becomes of a request of the agent.
#[derive(Debug)]
pub enum AgentReply {
    /// It is served as any other.
    Usual,
    /// It is answered as done.
    Done,
    /// It is answered with this entry.
    Entry(EntryOut),
    /// It is answered with these attributes.
    Attributes(AttrOut),
    /// It is answered with this open file.
    Opened(OpenOut),
}

/// Returns whether a request is the agent's.
pub(super) fn is_agents(gid: u32) -> bool {
    gid == AGENT_GID
}

impl<F: FileSystem> Server<F> {
    /// Serves a request of the agent.
    ///
    /// # Errors
    ///
    /// EPERM for a change that is not announced.
    #[cold]
    pub(super) fn serve_agent(&self, opcode: Opcode, req: Request<'_>, reply: &mut Reply<'_>) -> Result<(), Errno> {
        let Some(call) = parse(opcode, req.clone())? else { return self.dispatch(opcode, req, reply) };
        match self.fs.serve_agent(&req.context, call)? {
            AgentReply::Usual => self.dispatch(opcode, req, reply),
            AgentReply::Done => reply.empty(),
            AgentReply::Entry(entry) => reply.send(&entry),
            AgentReply::Attributes(attributes) => reply.send(&attributes),
            AgentReply::Opened(opened) => reply.send(&opened),
        }
    }
}

/// Returns the call if the file system decides about it, or `None` if it is served as any other. Errors: EPERM if the
/// agent never sends it.
fn parse(opcode: Opcode, mut req: Request<'_>) -> Result<Option<AgentCall<'_>>, Errno> {
    let nodeid = req.nodeid;
    Ok(Some(match opcode {
        Opcode::Lookup => AgentCall::Lookup(nodeid, req.name()?),
        Opcode::Mknod => {
            let file_type = type_of(req.take::<MknodIn>()?.mode.get());
            AgentCall::Make(nodeid, req.name()?, file_type)
        }
        Opcode::Mkdir => {
            req.take::<MkdirIn>()?;
            AgentCall::Make(nodeid, req.name()?, FileType::Directory)
        }
        Opcode::Symlink => AgentCall::Make(nodeid, req.name()?, FileType::Symlink),
        Opcode::Unlink => AgentCall::Remove(nodeid, req.name()?, false),
        Opcode::Rmdir => AgentCall::Remove(nodeid, req.name()?, true),
        Opcode::Rename => {
            let new_parent = req.take::<RenameIn>()?.newdir.into();
            AgentCall::Rename((nodeid, req.name()?), (new_parent, req.name()?), false)
        }
        Opcode::Rename2 => {
            let arg = req.take::<Rename2In>()?;
            let is_exchange = arg.flags.get() & RENAME_EXCHANGE != 0;
            AgentCall::Rename((nodeid, req.name()?), (arg.newdir.into(), req.name()?), is_exchange)
        }
        Opcode::Open => AgentCall::Open(nodeid, req.take()?),
        Opcode::Setattr => AgentCall::Setattr(nodeid, req.take::<SetattrIn>()?.valid().ok_or(Errno::INVAL)?),
        Opcode::Getattr => AgentCall::Getattr(nodeid),
        Opcode::Link
        | Opcode::Create
        | Opcode::Tmpfile
        | Opcode::Write
        | Opcode::Setxattr
        | Opcode::Removexattr
        | Opcode::Fallocate
        | Opcode::CopyFileRange
        | Opcode::CopyFileRange64
        | Opcode::Setlk
        | Opcode::Setlkw
        | Opcode::Setupmapping
        | Opcode::Ioctl
        | Opcode::Init
        | Opcode::Destroy
        | Opcode::Forget
        | Opcode::BatchForget
        | Opcode::Readlink
        | Opcode::Read
        | Opcode::Statfs
        | Opcode::Release
        | Opcode::Fsync
        | Opcode::Getxattr
        | Opcode::Listxattr
        | Opcode::Flush
        | Opcode::Opendir
        | Opcode::Readdir
        | Opcode::Readdirplus
        | Opcode::Releasedir
        | Opcode::Fsyncdir
        | Opcode::Getlk
        | Opcode::Access
        | Opcode::Interrupt
        | Opcode::Bmap
        | Opcode::Poll
        | Opcode::NotifyReply
        | Opcode::Lseek
        | Opcode::Syncfs
        | Opcode::Statx
        | Opcode::Removemapping => return is_harmless(opcode, req)?.then_some(None).ok_or(Errno::PERM),
    }))
}

/// Returns the type in the mode of MKNOD, where none is a regular file.
fn type_of(mode: u32) -> FileType {
    match FileType::from_raw_mode(mode) {
        FileType::Unknown => FileType::RegularFile,
        file_type => file_type,
    }
}

/// Returns whether a request of another kind changes nothing, according to the table. Its column `changes` does not
/// have locks, mappings and files without a name; they are named here.
fn is_harmless(opcode: Opcode, mut req: Request<'_>) -> Result<bool, Errno> {
    let is_effective = matches!(opcode, Opcode::Setlk | Opcode::Setlkw | Opcode::Setupmapping | Opcode::Tmpfile);
    let is_exchange = opcode == Opcode::Ioctl && req.take::<IoctlIn>()?.cmd.get() == EXCHANGE;
    Ok(is_exchange || (opcode.row().changes.is_empty() && !is_effective))
}
