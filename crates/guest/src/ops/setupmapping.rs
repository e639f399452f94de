//! SETUPMAPPING.

use transom_wire::{
    NodeId,
    operation::Setupmapping,
    ops::setupmapping::{SETUPMAPPING_READ, SETUPMAPPING_WRITE, SetupmappingIn},
};

use crate::{
    Errno, Platform,
    session::{Caller, Plain, Session},
};

/// The handle that stands for the inode, as Linux sends it: a mapping outlives the open file through which it was
/// requested.
const NO_HANDLE: u64 = u64::MAX;

impl<P: Platform> Session<P> {
    /// Maps `len` bytes of `node` from `foffset` to `moffset` of the window, for reading or for both, and replaces what
    /// is mapped there.
    ///
    /// All three are in bytes, and multiples of the alignment that INIT negotiated. Errors: those of opening the file,
    /// EINVAL beyond the window, EOPNOTSUPP if the server does not map this file.
    pub fn setupmapping(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        foffset: u64,
        len: u64,
        moffset: u64,
        is_writable: bool,
    ) -> Result<(), Errno> {
        let flags = SETUPMAPPING_READ | if is_writable { SETUPMAPPING_WRITE } else { 0 };
        let arg = SetupmappingIn {
            fh: NO_HANDLE.into(),
            foffset: foffset.into(),
            len: len.into(),
            flags: flags.into(),
            moffset: moffset.into(),
        };
        self.ask(caller, &mut Plain::<Setupmapping>::new(node, caller, &arg))
    }
}
