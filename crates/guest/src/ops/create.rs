//! CREATE and TMPFILE.

use transom_wire::{
    Name, NodeId,
    attr::EntryOut,
    linux::{O_NOCTTY, S_IFREG},
    operation::{Create, Tmpfile},
    ops::{
        create::{CreateIn, CreateOut},
        init::InitFlags,
        open::OpenOut,
    },
};

use crate::{
    Errno, Platform,
    session::{Caller, Named, Session},
};

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
        let mut head = Named::<Create>::new(parent, caller, &self.create_in(caller, mode, flags));
        head.name(name).extension(self.group_extension(caller));
        match self.ask_if_known(caller, &mut head)? {
            Some(created) => self.created(caller, created, flags),
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
        let mut head = Named::<Tmpfile>::new(parent, caller, &self.create_in(caller, mode, flags));
        head.placeholder().extension(self.group_extension(caller));
        let created = self.ask_if_known(caller, &mut head)?.ok_or(Errno::OPNOTSUPP)?;
        self.created(caller, created, flags)
    }

    fn create_in(&self, caller: &Caller<'_>, mode: u32, flags: u32) -> CreateIn {
        CreateIn {
            flags: (flags & !O_NOCTTY).into(),
            mode: self.masked(caller, S_IFREG | mode & 0o7777).into(),
            umask: caller.umask.into(),
            open_flags: self.open_flags(caller, flags).into(),
        }
    }

    /// Validates the reply to either operation.
    fn created(&self, caller: &Caller<'_>, out: CreateOut, flags: u32) -> Result<(EntryOut, OpenOut), Errno> {
        let CreateOut { entry, open } = out;
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
