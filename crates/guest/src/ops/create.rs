//! CREATE and TMPFILE.

use transom_wire::{
    Name, NodeId, Opcode,
    attr::EntryOut,
    linux::{O_NOCTTY, S_IFREG},
    ops::{create::CreateIn, init::InitFlags, open::OpenOut},
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{
    Errno, Platform,
    session::{Caller, Head, NAMED, Session},
};

/// The reply to either operation.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Created {
    entry: EntryOut,
    open: OpenOut,
}

impl<P: Platform> Session<P> {
    /// Creates the regular file `name` in `parent` if it is absent, and opens it.
    ///
    /// `mode` holds permissions, `flags` those of open(2). The entry counts one reference. With a server that does not
    /// know CREATE, sends MKNOD and OPEN instead, and so fails with EEXIST if the name exists.
    pub fn create(
        &self,
        caller: &Caller<'_>,
        parent: NodeId,
        name: Name<'_>,
        mode: u32,
        flags: u32,
    ) -> Result<(EntryOut, OpenOut), Errno> {
        let known = self.if_known(Opcode::Create, || {
            self.send_create(caller, Opcode::Create, parent, name.as_bytes(), mode, flags)
        })?;
        match known {
            Some(created) => Ok(created),
            None => self.make_then_open(caller, parent, name, mode, flags),
        }
    }

    /// Creates an unnamed regular file in the file system of `parent`, and opens it.
    ///
    /// See [`Self::create`]. Errors: EOPNOTSUPP if the server does not know TMPFILE.
    pub fn tmpfile(
        &self,
        caller: &Caller<'_>,
        parent: NodeId,
        mode: u32,
        flags: u32,
    ) -> Result<(EntryOut, OpenOut), Errno> {
        // Linux sends the name of a root directory as a placeholder.
        let known =
            self.if_known(Opcode::Tmpfile, || self.send_create(caller, Opcode::Tmpfile, parent, b"/", mode, flags))?;
        known.ok_or(Errno::OPNOTSUPP)
    }

    fn send_create(
        &self,
        caller: &Caller<'_>,
        opcode: Opcode,
        parent: NodeId,
        name: &[u8],
        mode: u32,
        flags: u32,
    ) -> Result<(EntryOut, OpenOut), Errno> {
        let arg = CreateIn {
            flags: (flags & !O_NOCTTY).into(),
            mode: self.masked(caller, S_IFREG | mode & 0o7777).into(),
            umask: caller.umask.into(),
            open_flags: self.open_flags(caller, flags).into(),
        };
        let mut head = Head::<NAMED>::new(opcode, parent, caller);
        head.arg(&arg).string(name).extension(self.group_extension(caller));
        let Created { entry, open } = self.ask(caller, &mut head)?;
        match self.new_entry(entry, Some(S_IFREG)) {
            Ok(entry) => Ok((entry, open)),
            Err(error) => {
                // The server has opened the file nevertheless.
                let _ = self.release(caller, entry.nodeid.into(), open.fh.into(), flags, 0, 0);
                Err(error)
            }
        }
    }

    fn make_then_open(
        &self,
        caller: &Caller<'_>,
        parent: NodeId,
        name: Name<'_>,
        mode: u32,
        flags: u32,
    ) -> Result<(EntryOut, OpenOut), Errno> {
        let entry = self.mknod(caller, parent, name, S_IFREG | mode & 0o7777, 0)?;
        match self.open(caller, entry.nodeid.into(), flags) {
            Ok(open) => Ok((entry, open)),
            Err(error) => {
                self.forget(entry.nodeid.into(), 1);
                Err(error)
            }
        }
    }

    /// Returns a new file's mode, cleared of the caller's umask if the server leaves that to the client.
    pub(super) fn masked(&self, caller: &Caller<'_>, mode: u32) -> u32 {
        match self.negotiated().flags.contains(InitFlags::DONT_MASK) {
            true => mode,
            false => mode & !(caller.umask & 0o777),
        }
    }
}
