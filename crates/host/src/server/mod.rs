//! The FUSE server: takes one request from a driver's buffers, has a [`FileSystem`] serve it, and writes the reply.
//!
//! [`Server::handle`] is the entry point. The driver's message is copied once ([`request`]) and parsed from the copy;
//! file data stays in place, and is transferred between the file and the driver's buffers by the file system's own
//! system call. [`dispatch`] finds an operation's implementation by the table in `wire`, [`decode`] parses the parts
//! of its request, [`call`] defines what a file system receives, and [`answer`] writes what it returns. [`agent`]
//! recognises requests that replay changes of the host. [`session`] handles INIT and DESTROY, the only operations that
//! take a lock here, except while a session ends.

mod agent;
mod answer;
mod call;
mod changing;
mod context;
mod decode;
mod dirents;
mod dispatch;
mod filesystem;
mod in_progress;
mod noted;
mod reply;
mod request;
mod session;
mod slices;
mod target;

#[cfg(test)]
mod agent_test;
#[cfg(test)]
mod init_test;
#[cfg(test)]
mod limits_test;
#[cfg(test)]
mod parts_test;
#[cfg(test)]
mod recorder_test;
#[cfg(test)]
mod server_test;
#[cfg(test)]
mod session_test;

pub use agent::{AgentCall, AgentReply};
pub use answer::{IoctlReply, XattrReply};
pub use call::{Call, Serve, Served};
pub use changing::Changing;
pub use context::{BlockingMode, Context};
pub use dirents::{Dirents, DirentsPlus, Full};
pub use filesystem::{End, FileSystem, InitAnswer, InitOffer};
pub use noted::Noted;
pub use request::Scratch;
pub(crate) use slices::total_len;
pub use slices::{GuestSlice, GuestSlices, SLICES_INLINE};
pub use target::ExecutionTarget;

use std::os::fd::OwnedFd;

use transom_wire::{Opcode, header::InHeader};

use crate::{Errno, migration, sysfd::LeftDescriptors};
use reply::Reply;
use request::Request;
use session::Session;

/// Serves consecutive FUSE sessions with `F`.
pub struct Server<F> {
    fs: F,
    session: Session,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServeOutcome {
    /// The request is finished.
    Done(Done),
    /// The request would block. Hand it in again on that target, with [`BlockingMode::MayBlock`].
    Defer(ExecutionTarget),
}

/// A finished request, for the transport and the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Done {
    /// Bytes written, from the beginning of the writable buffers.
    pub used_len_bytes: u32,
    /// The opcode in the request's header, or `None` if the request was too short to have one.
    pub opcode: Option<u32>,
    /// The result in the reply, if a reply was due.
    pub result: Result<(), Errno>,
    /// Bytes of file data transferred by READ, WRITE or COPY_FILE_RANGE.
    pub data_len_bytes: u64,
}

impl<F: FileSystem> Server<F> {
    /// Creates a server without a session.
    pub fn new(fs: F) -> Self {
        Self { fs, session: Session::default() }
    }

    /// Returns the file system.
    pub fn file_system(&self) -> &F {
        &self.fs
    }

    /// Serves the request in `readable` and writes the reply to `writable`.
    ///
    /// Blocks only with [`BlockingMode::MayBlock`]. May be called from any number of threads at once.
    pub fn handle(
        &self,
        readable: &[GuestSlice<'_>],
        writable: &[GuestSlice<'_>],
        scratch: &mut Scratch,
        blocking: BlockingMode,
    ) -> ServeOutcome {
        let mut reply = Reply::new(writable);
        let header = match request::read_header(readable) {
            Some(header) => header,
            None => return ServeOutcome::Done(Done::unreadable()),
        };
        reply.unique = header.unique;
        let opcode = Opcode::from_u32(header.opcode.get());
        if blocking == BlockingMode::MustNotBlock
            && let Some(target) = opcode.and_then(ExecutionTarget::without_trying)
        {
            return ServeOutcome::Defer(target);
        }
        let result = self.serve(&header, opcode, readable, scratch, blocking, &mut reply);
        scratch.trim();
        if blocking == BlockingMode::MustNotBlock
            && result == Err(Errno::AGAIN)
            && let Some(target) = opcode.and_then(|opcode| ExecutionTarget::after_trying(opcode, header.unique.into()))
        {
            return ServeOutcome::Defer(target);
        }
        let has_reply = opcode.is_none_or(|opcode| !opcode.has_no_reply());
        let used_len_bytes = match (has_reply, result) {
            (false, _) => 0,
            (true, Ok(())) => reply.len_bytes(),
            (true, Err(errno)) => reply.error(errno),
        };
        ServeOutcome::Done(Done {
            used_len_bytes,
            opcode: Some(header.opcode.get()),
            result,
            data_len_bytes: reply.data_len_bytes,
        })
    }

    /// Replies with `errno` without reading the request, if its buffers or the transport do not allow serving it.
    pub fn refuse(&self, readable: &[GuestSlice<'_>], writable: &[GuestSlice<'_>], errno: Errno) -> Done {
        let Some(header) = request::read_header(readable) else { return Done::unreadable() };
        let mut reply = Reply::new(writable);
        reply.unique = header.unique;
        let opcode = header.opcode.get();
        let has_reply = Opcode::from_u32(opcode).is_none_or(|opcode| !opcode.has_no_reply());
        let used_len_bytes = if has_reply { reply.error(errno) } else { 0 };
        Done { used_len_bytes, opcode: Some(opcode), result: Err(errno), data_len_bytes: 0 }
    }

    /// Ends the session: releases everything that the driver held. The next request has to be INIT.
    ///
    /// For a reset or a lost connection. Waits for requests in progress.
    pub fn end_session(&self) {
        // Without a session there is nothing to end.
        let _ = self.session.end(&self.fs, End::Reset, BlockingMode::MayBlock);
    }

    /// Returns the state of the session, with which [`Server::load_state`] of another server goes on.
    ///
    /// The driver's requests must be stopped until the session has ended or goes on here. Blocks on the host's file
    /// system.
    ///
    /// # Errors
    ///
    /// If something of the session cannot be carried over.
    pub fn save_state(&self, waiting: Vec<migration::WaitingRequest>) -> Result<Vec<u8>, migration::Error> {
        self.session.save(&self.fs, waiting)
    }

    /// Ends the session, if there is one, and goes on with the one in `state`. Returns the requests that are to be
    /// served again. Blocks on the host's file system.
    ///
    /// # Errors
    ///
    /// If that session cannot go on here. There is no session then.
    pub fn load_state(&self, state: &[u8]) -> Result<Vec<migration::WaitingRequest>, migration::Error> {
        self.session.load(&self.fs, state)
    }

    /// Returns the session for another process of this host, which calls [`Server::take_over`].
    ///
    /// As for [`Server::save_state`], the driver's requests must be stopped. If the other process goes on with the
    /// session, this one must end without ending the session: both have the same locks.
    ///
    /// # Errors
    ///
    /// If something of the session cannot be handed over.
    pub fn hand_over(&self) -> Result<migration::HandOver, migration::Error> {
        self.session.hand_over(&self.fs)
    }

    /// Goes on with a session of another process of this host. There must be no session here.
    ///
    /// # Errors
    ///
    /// If that session cannot go on here. This process must end then without ending a session.
    pub fn take_over(&self, state: &[u8], descriptors: Vec<OwnedFd>) -> Result<(), migration::Error> {
        self.session.take_over(&self.fs, state, descriptors)
    }

    /// Goes on with the session of a process that has died, if it had one, from the file system's journal. There must
    /// be no session here.
    ///
    /// # Errors
    ///
    /// If that session cannot go on here.
    pub fn recover(&self, left: &mut LeftDescriptors) -> Result<(), migration::Error> {
        self.session.recover(&self.fs, left)
    }

    /// Returns the identifier of the request in `readable`, or 0 if it is too short to have one.
    pub fn unique_of(&self, readable: &[GuestSlice<'_>]) -> u64 {
        request::read_header(readable).map_or(0, |header| header.unique.get())
    }

    fn serve(
        &self,
        header: &InHeader,
        opcode: Option<Opcode>,
        readable: &[GuestSlice<'_>],
        scratch: &mut Scratch,
        blocking: BlockingMode,
        reply: &mut Reply<'_>,
    ) -> Result<(), Errno> {
        let opcode = opcode.ok_or(Errno::NOSYS)?;
        let _admission = if opcode.is_of_session() { None } else { Some(self.session.admit()?) };
        let row = opcode.row();
        if row.has_reply() {
            reply.need(row.reply_len_min())?;
        }
        let request = Request::read(header, row, readable, scratch, blocking)?;
        if agent::is_agents(header.gid.get()) {
            self.serve_agent(opcode, request, reply)
        } else {
            self.dispatch(opcode, request, reply)
        }
    }
}

impl Done {
    fn unreadable() -> Self {
        Self { used_len_bytes: 0, opcode: None, result: Err(Errno::PROTO), data_len_bytes: 0 }
    }
}
