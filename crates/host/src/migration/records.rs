//! Our own records behind virtiofsd's state, which it does not read: a mark, then each with its tag and its length.

use std::{borrow::Cow, collections::HashMap};

use transom_wire::ops::init::InitFlags;

use super::{
    Error, Location, PATH_LEN_MAX, State,
    postcard::{Reader, Writer},
};

/// What our records begin with.
const MARK: &[u8] = b"transomd";
/// All that was negotiated: the 64 flags of FUSE_INIT.
const FLAGS: u64 = 1;
/// The paths that are not UTF-8: the inode's number and the path of each.
const PATHS: u64 = 2;
/// Bytes of the shortest path with its inode.
const PATH_LEN_MIN: usize = 2;

/// Reads all records into `state`.
pub(super) fn read<'a>(bytes: &'a [u8], state: &mut State<'a>) -> Result<(), Error> {
    if bytes.is_empty() {
        return Ok(());
    }
    let records = bytes.strip_prefix(MARK).ok_or(Error::Trailing(bytes.len()))?;
    let mut reader = Reader::new(records);
    let mut last_tag = 0;
    while !reader.rest().is_empty() {
        let tag = reader.u64()?;
        // Records are in order, so none comes twice: each costs a walk through all inodes.
        if tag <= last_tag {
            return Err(Error::Malformed("a record twice, or out of order"));
        }
        last_tag = tag;
        let mut record = Reader::new(reader.bytes("bytes in a record", usize::MAX)?);
        match tag {
            FLAGS => state.flags = Some(InitFlags::from_bits_retain(record.u64()?)),
            PATHS => paths(&mut record, state)?,
            _ => return Err(Error::Record(tag)),
        }
        if !record.rest().is_empty() {
            return Err(Error::Trailing(record.rest().len()));
        }
    }
    Ok(())
}

fn paths<'a>(record: &mut Reader<'a>, state: &mut State<'a>) -> Result<(), Error> {
    let count = record.count("paths", state.inodes.len(), PATH_LEN_MIN)?;
    let mut paths = HashMap::with_capacity(count);
    for _ in 0..count {
        let inode = record.u64()?;
        paths.insert(inode, record.bytes("bytes in a path", PATH_LEN_MAX)?);
    }
    for inode in state.inodes.iter_mut().filter(|inode| inode.location == Location::Lost) {
        if let Some(path) = paths.get(&inode.id) {
            inode.location = Location::Path(Cow::Borrowed(path));
        }
    }
    Ok(())
}

/// Writes the records that `state` needs.
pub(super) fn write(state: &State<'_>, writer: &mut Writer) {
    let is_odd = |path: &[u8]| std::str::from_utf8(path).is_err();
    let odd: Vec<_> = state
        .inodes
        .iter()
        .filter_map(|inode| match &inode.location {
            Location::Path(path) if is_odd(path) => Some((inode.id, path)),
            _ => None,
        })
        .collect();
    if state.flags.is_none() && odd.is_empty() {
        return;
    }
    writer.0.extend_from_slice(MARK);
    if let Some(flags) = state.flags {
        let mut record = Writer::default();
        record.u64(flags.bits());
        writer.u64(FLAGS);
        writer.bytes(&record.0);
    }
    if !odd.is_empty() {
        let mut record = Writer::default();
        record.u64(odd.len() as u64);
        for (inode, path) in odd {
            record.u64(inode);
            record.bytes(path);
        }
        writer.u64(PATHS);
        writer.bytes(&record.0);
    }
}
