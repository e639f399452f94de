//! REMOVEMAPPING.

use transom_wire::{
    NodeId, Opcode,
    header::InHeader,
    ops::removemapping::{RemovemappingIn, RemovemappingOne},
};

use crate::{
    Errno, Platform,
    session::{Caller, Head, Session},
};

/// Ranges in one message, so that it fits the stack.
const BATCH: usize = 32;
const MESSAGE_LEN: usize = size_of::<InHeader>() + size_of::<RemovemappingIn>() + BATCH * size_of::<RemovemappingOne>();

impl<P: Platform> Session<P> {
    /// Unmaps `len` bytes at each of `moffsets` of the window; `node` is the inode that is mapped there.
    ///
    /// Sends as many requests as needed. Continues after an error, and returns the first one.
    pub fn removemapping(&self, caller: &Caller<'_>, node: NodeId, moffsets: &[u64], len: u64) -> Result<(), Errno> {
        let mut result = Ok(());
        for batch in moffsets.chunks(BATCH) {
            let mut head = Head::<MESSAGE_LEN>::new(Opcode::Removemapping, node, caller);
            head.arg(&RemovemappingIn { count: (batch.len() as u32).into() });
            for &moffset in batch {
                head.arg(&RemovemappingOne { moffset: moffset.into(), len: len.into() });
            }
            result = result.and(self.tell(caller, &mut head));
        }
        result
    }
}
