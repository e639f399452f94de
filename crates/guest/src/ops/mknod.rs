//! MKNOD.

use transom_wire::{
    Name, NodeId,
    attr::EntryOut,
    linux::{S_IFMT, S_IFREG},
    operation::Mknod,
    ops::mknod::MknodIn,
};

use crate::{
    Errno, Platform,
    session::{Caller, Named, Session},
};

impl<P: Platform> Session<P> {
    /// Creates the file `name` in `parent`. `mode` holds its type (0 for a regular file) and permissions, `rdev` its
    /// device in the kernel's 32-bit form. The entry counts one reference.
    pub fn mknod(
        &self,
        caller: &Caller<'_>,
        parent: NodeId,
        name: Name<'_>,
        mode: u32,
        rdev: u32,
    ) -> Result<EntryOut, Errno> {
        let file_type = if mode & S_IFMT == 0 { S_IFREG } else { mode & S_IFMT };
        let arg = MknodIn {
            mode: self.masked(caller, file_type | mode & 0o7777).into(),
            rdev: rdev.into(),
            umask: caller.umask.into(),
            padding: 0.into(),
        };
        let mut head = Named::<Mknod>::new(parent, caller, &arg);
        head.name(name).extension(self.group_extension(caller));
        self.new_entry(self.ask(caller, &mut head)?, Some(file_type))
    }
}
