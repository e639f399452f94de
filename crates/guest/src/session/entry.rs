//! Validation of attributes and entries from the server: values that no file can have are rejected before use.

use transom_wire::{
    NodeId,
    attr::{Attr, AttrOut, EntryOut},
    linux::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG},
};

use super::Session;
use crate::{Errno, Platform};

const FILE_TYPES: [u32; 7] = [S_IFDIR, S_IFREG, S_IFLNK, 0o010_000, 0o020_000, 0o060_000, 0o140_000];

impl<P: Platform> Session<P> {
    /// Validates the reply to an operation that makes a file of type `file_type`, or adds a name to it.
    ///
    /// Errors: EIO if the entry names no inode or an impossible one; a reference that came with it is given back.
    pub(crate) fn new_entry(&self, entry: EntryOut, file_type: Option<u32>) -> Result<EntryOut, Errno> {
        if entry.nodeid == 0 {
            return Err(self.impossible_eio());
        }
        let entry = self.found_entry(entry)?;
        match file_type {
            Some(file_type) if entry.attr.mode.get() & S_IFMT != file_type => {
                self.forget(entry.nodeid.into(), 1);
                Err(self.impossible_eio())
            }
            _ => Ok(entry),
        }
    }

    /// Validates the reply to a lookup, in which nodeid 0 means that the name is absent.
    pub(crate) fn found_entry(&self, mut entry: EntryOut) -> Result<EntryOut, Errno> {
        let nodeid = NodeId::from(entry.nodeid);
        if nodeid.0 == 0 {
            return Ok(entry);
        }
        if nodeid == NodeId::ROOT || !is_possible(&entry.attr) {
            self.forget(nodeid, 1);
            return Err(self.impossible_eio());
        }
        limit_times(&mut entry.attr);
        Ok(entry)
    }

    pub(crate) fn attributes(&self, mut out: AttrOut) -> Result<AttrOut, Errno> {
        if !is_possible(&out.attr) {
            return Err(self.impossible_eio());
        }
        limit_times(&mut out.attr);
        Ok(out)
    }
}

fn is_possible(attr: &Attr) -> bool {
    let file_type = attr.mode.get() & !0o7777;
    FILE_TYPES.contains(&file_type) && attr.size.get() <= i64::MAX as u64
}

/// Limits nanoseconds to valid values: a server that reports a whole second there does no harm, and Linux accepts it
/// too.
fn limit_times(attr: &mut Attr) {
    for nsec in [&mut attr.atimensec, &mut attr.mtimensec, &mut attr.ctimensec] {
        *nsec = nsec.get().min(999_999_999).into();
    }
}
