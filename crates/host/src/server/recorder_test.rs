//! A file system that records what reaches it, and a driver that sends it any bytes.

use std::sync::Mutex;

use transom_wire::operation::{
    BatchForget, Forget, Getattr, Lookup, Readdir, Removemapping, Setxattr, Statfs, Symlink,
};
use transom_wire::{
    Opcode,
    attr::{AttrOut, EntryOut},
    header::{InHeader, OutHeader},
    ops::{
        init::{InitFlags, InitIn},
        statfs::StatfsOut,
    },
};
use vm_memory::VolatileSlice;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::*;

/// Records each request, as text.
#[derive(Default)]
pub(super) struct Recorder {
    pub(super) seen: Mutex<Vec<String>>,
    /// The features in its reply to INIT, which include some that nobody offers.
    pub(super) flags: InitFlags,
    /// The reply to a request of the agent, if it is not the usual one.
    pub(super) to_agent: Mutex<Option<AgentReply>>,
}

impl Recorder {
    fn note(&self, what: String) {
        self.seen.lock().unwrap().push(what);
    }

    /// Returns what was recorded since the last call.
    pub(super) fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

impl FileSystem for Recorder {
    fn init(&self, offer: &InitOffer) -> Result<InitAnswer, Errno> {
        self.note(format!("init {} {:#x} {}", offer.minor, offer.flags.bits(), offer.max_readahead));
        Ok(InitAnswer {
            flags: self.flags,
            max_readahead: 11,
            max_background: 12,
            congestion_threshold: 13,
            max_write: 14,
            time_gran: 15,
            max_pages: 16,
            map_alignment: 17,
        })
    }

    fn destroy(&self, _: End) {}

    fn serve_agent(&self, _: &Context<'_>, call: AgentCall<'_>) -> Result<AgentReply, Errno> {
        self.note(format!("{call:?}"));
        Ok(self.to_agent.lock().unwrap().take().unwrap_or(AgentReply::Usual))
    }
}

impl Serve<Lookup> for Recorder {
    fn serve(&self, call: Call<'_, Lookup>) -> Result<EntryOut, Errno> {
        self.note(format!("lookup {:?}", call.name));
        Err(Errno::NOENT)
    }
}

impl Serve<Getattr> for Recorder {
    fn serve(&self, _: Call<'_, Getattr>) -> Result<AttrOut, Errno> {
        Ok(AttrOut::default())
    }
}

impl Serve<Statfs> for Recorder {
    fn serve(&self, call: Call<'_, Statfs>) -> Result<StatfsOut, Errno> {
        let Context { unique, uid, gid, pid, .. } = call.ctx;
        self.note(format!("statfs {unique:?} {uid} {gid} {pid} {:?}", call.nodeid));
        Ok(StatfsOut::new_zeroed())
    }
}

impl Serve<Forget> for Recorder {
    fn serve(&self, _: Call<'_, Forget>) -> Result<(), Errno> {
        Ok(())
    }
}

impl Serve<BatchForget> for Recorder {
    fn serve(&self, call: Call<'_, BatchForget>) -> Result<(), Errno> {
        let last = call.rest.last().map(|one| (one.nodeid.get(), one.nlookup.get()));
        self.note(format!("forget {} {last:?}", call.rest.len()));
        Ok(())
    }
}

impl Serve<Removemapping> for Recorder {
    fn serve(&self, call: Call<'_, Removemapping>) -> Result<(), Errno> {
        self.note(format!("unmap {}", call.rest.len()));
        Ok(())
    }
}

impl Serve<Symlink> for Recorder {
    fn serve(&self, call: Call<'_, Symlink>) -> Result<EntryOut, Errno> {
        self.note(format!("symlink {:?} {}", call.name.0, call.name.1.len()));
        Ok(EntryOut::default())
    }
}

impl Serve<Setxattr> for Recorder {
    fn serve(&self, call: Call<'_, Setxattr>) -> Result<(), Errno> {
        let flags = (call.arg.flags.get(), call.arg.setxattr_flags.get());
        self.note(format!("setxattr {} {} {flags:?}", call.name.len(), call.rest.len()));
        Ok(())
    }
}

impl Serve<Readdir> for Recorder {
    /// Fills the reply with entries of 32 bytes.
    fn serve(&self, call: Call<'_, Readdir>) -> Result<(), Errno> {
        let mut count = 0;
        while call.out.push(1, count + 1, 4, b"12345678").is_ok() {
            count += 1;
        }
        self.note(format!("readdir {} {count}", call.arg.size.get()));
        Ok(())
    }
}

crate::unserved!(Recorder, except Lookup Getattr Statfs Forget BatchForget Removemapping Symlink Setxattr Readdir);

/// Returns a request for node 1, of group `gid`.
pub(super) fn message_of(gid: u32, opcode: Opcode, body: &[u8]) -> Vec<u8> {
    let mut header = InHeader::new_zeroed();
    header.len = ((size_of::<InHeader>() + body.len()) as u32).into();
    header.opcode = (opcode as u32).into();
    (header.unique, header.nodeid) = (98.into(), 1.into());
    (header.uid, header.gid, header.pid) = (5.into(), gid.into(), 7.into());
    [header.as_bytes(), body].concat()
}

/// Hands in a request with `room` bytes for the reply. Returns the outcome, and the reply.
pub(super) fn hand_in(server: &Server<Recorder>, mut request: Vec<u8>, room: usize) -> (Done, Vec<u8>) {
    let mut reply = vec![0xee; room];
    let (readable, writable) = ([VolatileSlice::from(&mut *request)], [VolatileSlice::from(&mut *reply)]);
    let outcome = server.handle(&readable, &writable, &mut Scratch::default(), BlockingMode::MayBlock);
    let ServeOutcome::Done(done) = outcome else { panic!("{outcome:?}") };
    reply.truncate(done.used_len_bytes as usize);
    (done, reply)
}

/// Sends a request of an ordinary process; returns its result.
pub(super) fn ask(server: &Server<Recorder>, opcode: Opcode, body: &[u8]) -> Result<(), Errno> {
    let (done, reply) = hand_in(server, message_of(6, opcode, body), 2 << 20);
    if !opcode.has_no_reply() {
        let header = OutHeader::read_from_prefix(&reply).unwrap().0;
        assert_eq!((header.len.get() as usize, header.unique.get()), (reply.len(), 98));
        assert_eq!(-header.error.get(), done.result.err().map_or(0, Errno::raw_os_error));
    }
    done.result
}

/// Returns a server with a session, in which `flags` are on.
pub(super) fn begun_with(flags: InitFlags) -> Server<Recorder> {
    let server = Server::new(Recorder { flags, ..Recorder::default() });
    let mut init = InitIn::new_zeroed();
    (init.major, init.minor, init.flags) = (7.into(), 45.into(), u32::MAX.into());
    assert_eq!(ask(&server, Opcode::Init, init.as_bytes()), Ok(()));
    server.file_system().seen();
    server
}
