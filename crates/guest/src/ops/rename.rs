//! RENAME and RENAME2.

use transom_wire::{
    Name, NodeId, Opcode,
    ops::rename::{Rename2In, RenameIn},
};

use crate::{
    Errno, Platform,
    session::{Caller, Head, Session, TWICE_NAMED},
};

impl<P: Platform> Session<P> {
    /// Renames `from` to `to`; each is a directory and a name in it. `flags` are those of renameat2(2).
    ///
    /// Errors: EINVAL for flags if the server does not know RENAME2.
    pub fn rename(
        &self,
        caller: &Caller<'_>,
        from: (NodeId, Name<'_>),
        to: (NodeId, Name<'_>),
        flags: u32,
    ) -> Result<(), Errno> {
        if flags == 0 {
            let arg = RenameIn { newdir: to.0.into() };
            let mut head = Head::<TWICE_NAMED>::new(Opcode::Rename, from.0, caller);
            return self.tell(caller, head.arg(&arg).name(from.1).name(to.1));
        }
        let arg = Rename2In { newdir: to.0.into(), flags: flags.into(), padding: 0.into() };
        let mut head = Head::<TWICE_NAMED>::new(Opcode::Rename2, from.0, caller);
        head.arg(&arg).name(from.1).name(to.1);
        let known = self.if_known(Opcode::Rename2, || self.tell(caller, &mut head))?;
        known.ok_or(Errno::INVAL)
    }
}
