//! READLINK.

use alloc::{vec, vec::Vec};

use transom_wire::{NodeId, limits::SYMLINK_LEN_MAX, operation::Readlink};

use crate::{
    Errno, Platform,
    channel::Sink,
    session::{Caller, Plain, Session},
};

impl<P: Platform> Session<P> {
    /// Returns the target of the symbolic link `node`: 1 to 4095 bytes without NUL.
    pub fn readlink(&self, caller: &Caller<'_>, node: NodeId) -> Result<Vec<u8>, Errno> {
        let mut target = vec![0; SYMLINK_LEN_MAX];
        let mut head = Plain::<Readlink>::new(node, caller, &());
        let len = self.fetch(caller, &mut head, Sink::Bytes(&mut target))?;
        target.truncate(len);
        if target.is_empty() || target.contains(&0) {
            return Err(self.impossible_eio());
        }
        Ok(target)
    }
}
