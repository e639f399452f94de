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

/// What answers either.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Created {
    entry: EntryOut,
    open: OpenOut,
}

impl<P: Platform> Session<P> {
    /// Makes the regular file `name` in `parent` where it is absent, and opens it.
    ///
    /// `mode` are permissions, `flags` those of open(2). The entry counts one reference. With a server that does not
    /// know CREATE it is MKNOD and OPEN, and so fails with EEXIST where the name exists.
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

    /// Makes a regular file without a name in the file system of `parent`, and opens it.
    ///
    /// As [`Self::create`]. Errors: EOPNOTSUPP where the server does not know it.
    pub fn tmpfile(
        &self,
        caller: &Caller<'_>,
        parent: NodeId,
        mode: u32,
        flags: u32,
    ) -> Result<(EntryOut, OpenOut), Errno> {
        // Linux sends the name of a root directory, which stands for none.
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
                // The file was opened all the same.
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

    /// A new file's mode, without what the caller's umask takes away where the server leaves that to the client.
    pub(super) fn masked(&self, caller: &Caller<'_>, mode: u32) -> u32 {
        match self.negotiated().flags.contains(InitFlags::DONT_MASK) {
            true => mode,
            false => mode & !(caller.umask & 0o777),
        }
    }
}
