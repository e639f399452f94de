//! OPEN and OPENDIR.

use transom_wire::{
    Handle, NodeId, Opcode,
    linux::{O_CREAT, O_EXCL, O_NOCTTY, O_TRUNC},
    operation::{Open, Opendir, Operation},
    ops::{
        init::InitFlags,
        open::{OPEN_KILL_SUIDGID, OpenFlags, OpenIn, OpenOut},
        setattr::{SetattrIn, SetattrValid},
    },
};
use zerocopy::FromZeros;

use crate::{
    Errno, Platform,
    session::{Caller, Plain, Session},
};

impl<P: Platform> Session<P> {
    /// Opens the file `node`, with the flags of open(2); O_CREAT, O_EXCL and O_NOCTTY are not sent.
    ///
    /// O_TRUNC also truncates if the server wants a SETATTR for that, which is then sent after the OPEN. A server that
    /// does not know OPEN serves files without handles: the reply then has handle 0.
    pub fn open(&self, caller: &Caller<'_>, node: NodeId, flags: u32) -> Result<OpenOut, Errno> {
        let flags = flags & !(O_CREAT | O_EXCL | O_NOCTTY);
        let is_truncated = flags & O_TRUNC != 0;
        let is_atomic = self.negotiated().flags.contains(InitFlags::ATOMIC_O_TRUNC);
        let sent_flags = if is_atomic { flags } else { flags & !O_TRUNC };
        let known = self.send_open::<Open>(caller, node, sent_flags)?;
        if is_truncated && (!is_atomic || known.is_none()) {
            self.truncate_opened(caller, node, flags, known)?;
        }
        Ok(known.unwrap_or(without_handle(OpenFlags::KEEP_CACHE)))
    }

    /// Opens the directory `node`. A server that does not know OPENDIR serves directories without handles, as in
    /// [`Self::open`].
    pub fn opendir(&self, caller: &Caller<'_>, node: NodeId, flags: u32) -> Result<OpenOut, Errno> {
        let flags = flags & !(O_CREAT | O_EXCL | O_NOCTTY | O_TRUNC);
        let known = self.send_open::<Opendir>(caller, node, flags)?;
        Ok(known.unwrap_or(without_handle(OpenFlags::KEEP_CACHE.union(OpenFlags::CACHE_DIR))))
    }

    fn send_open<O>(&self, caller: &Caller<'_>, node: NodeId, flags: u32) -> Result<Option<OpenOut>, Errno>
    where
        O: Operation<Args = OpenIn, Reply = OpenOut>,
    {
        let arg = OpenIn { flags: flags.into(), open_flags: self.open_flags(caller, flags).into() };
        self.ask_if_known(caller, &mut Plain::<O>::new(node, caller, &arg))
    }

    /// Closes the open file again if truncating fails.
    fn truncate_opened(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        flags: u32,
        open: Option<OpenOut>,
    ) -> Result<(), Errno> {
        let mut valid = SetattrValid::SIZE;
        valid.set(SetattrValid::FH, open.is_some());
        valid.set(SetattrValid::KILL_SUIDGID, self.clears_set_id(caller));
        let mut arg = SetattrIn::new_zeroed();
        arg.valid = valid.bits().into();
        arg.fh = open.unwrap_or_default().fh;
        match (self.setattr(caller, node, &arg), open) {
            (Err(error), Some(open)) => {
                let _ = self.release(caller, node, open.fh.into(), flags, 0, 0);
                Err(error)
            }
            (answer, _) => answer.map(|_| ()),
        }
    }

    /// Returns [`OPEN_KILL_SUIDGID`] if the file is truncated and the caller's writes clear set-id bits.
    pub(super) fn open_flags(&self, caller: &Caller<'_>, flags: u32) -> u32 {
        if flags & O_TRUNC != 0 && self.clears_set_id(caller) { OPEN_KILL_SUIDGID } else { 0 }
    }

    /// Returns whether the server is to clear set-user-id bits for this caller: under HANDLE_KILLPRIV_V2, for everyone
    /// but root.
    fn clears_set_id(&self, caller: &Caller<'_>) -> bool {
        caller.uid != 0 && self.negotiated().flags.contains(InitFlags::HANDLE_KILLPRIV_V2)
    }

    /// Returns whether `fh` stands for no open file because the server does not know `opcode`, OPEN or OPENDIR.
    pub(crate) fn is_without_handle(&self, opcode: Opcode, fh: Handle) -> bool {
        fh == Handle(0) && self.is_unsupported(opcode)
    }
}

fn without_handle(flags: OpenFlags) -> OpenOut {
    OpenOut { fh: 0.into(), open_flags: flags.bits().into(), backing_id: 0.into() }
}
