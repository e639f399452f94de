//! REMOVEMAPPING.

use transom_wire::{
    NodeId,
    header::InHeader,
    operation::Removemapping,
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
            let arg = RemovemappingIn { count: (batch.len() as u32).into() };
            let mut head = Head::<Removemapping, MESSAGE_LEN>::new(node, caller, &arg);
            for &moffset in batch {
                head.item(&RemovemappingOne { moffset: moffset.into(), len: len.into() });
            }
            result = result.and(self.ask(caller, &mut head));
        }
        result
    }
}
