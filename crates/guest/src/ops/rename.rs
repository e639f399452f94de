//! RENAME and RENAME2.

use transom_wire::{
    Name, NodeId,
    operation::{Rename, Rename2},
    ops::rename::{Rename2In, RenameIn},
};

use crate::{
    Errno, Platform,
    session::{Caller, Session, TwiceNamed},
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
            return self.ask(caller, TwiceNamed::<Rename>::new(from.0, caller, &arg).names(from.1, to.1));
        }
        let arg = Rename2In { newdir: to.0.into(), flags: flags.into(), padding: 0.into() };
        let mut head = TwiceNamed::<Rename2>::new(from.0, caller, &arg);
        self.ask_if_known(caller, head.names(from.1, to.1))?.ok_or(Errno::INVAL)
    }
}
