//! SYMLINK.

use alloc::vec::Vec;

use transom_wire::{Name, NodeId, Opcode, attr::EntryOut, limits::SYMLINK_LEN_MAX, linux::S_IFLNK, operation::Symlink};
use zerocopy::IntoBytes;

use crate::{
    Errno, Platform,
    channel::Source,
    session::{Caller, EXTENSION_UNITS, Session, header},
};

impl<P: Platform> Session<P> {
    /// Creates the symbolic link `name` in `parent` with the target `target`. The entry counts one reference.
    ///
    /// Errors: ENOENT for an empty target, ENAMETOOLONG for one of more than 4095 bytes, EINVAL for one with a NUL.
    pub fn symlink(
        &self,
        caller: &Caller<'_>,
        parent: NodeId,
        name: Name<'_>,
        target: &[u8],
    ) -> Result<EntryOut, Errno> {
        match target.len() {
            0 => return Err(Errno::NOENT),
            1..=SYMLINK_LEN_MAX if !target.contains(&0) => {}
            1..=SYMLINK_LEN_MAX => return Err(Errno::INVAL),
            _ => return Err(Errno::NAMETOOLONG),
        }
        let extension = self.group_extension(caller);
        let mut header = header(Opcode::Symlink, parent, caller);
        header.total_extlen = if extension.is_some() { EXTENSION_UNITS } else { 0 }.into();
        // A target may be a page long, which does not fit the stack of a small kernel.
        let mut head = Vec::with_capacity(header.as_bytes().len() + name.as_bytes().len() + target.len() + 2 + 16);
        for part in
            [header.as_bytes(), name.as_bytes(), &[0], target, &[0], extension.as_ref().map_or(&[], |e| e.as_bytes())]
        {
            head.extend_from_slice(part);
        }
        self.new_entry(self.exchange::<Symlink>(caller, &mut head, Source::Empty)?, Some(S_IFLNK))
    }
}
