//! Our own records behind virtiofsd's state, which it does not read: a mark, then each with its tag and its length.

use std::{borrow::Cow, collections::HashMap};

use transom_wire::ops::init::InitFlags;

use super::{
    Carried, Error, Location, LockHolder, LockedFile, LockedRange, PATH_LEN_MAX, State, WaitingRequest,
    postcard::{Reader, Writer},
};

/// What our records begin with.
const MARK: &[u8] = b"transomd";
/// All that was negotiated: the 64 flags of FUSE_INIT.
const FLAGS: u64 = 1;
/// The paths that are not UTF-8: the inode's number and the path of each.
const PATHS: u64 = 2;
/// What the descriptors are that come with the state: the kind and the number of each.
const CARRIED: u64 = 3;
/// The holders of POSIX locks.
const LOCKS: u64 = 4;
/// How locked files look: size and time of change.
const LOCKED_FILES: u64 = 5;
/// The requests that wait for a lock: ring and first descriptor.
const WAITING: u64 = 6;
/// Bytes of the shortest path with its inode.
const PATH_LEN_MIN: usize = 2;
/// Bytes of the shortest description of a descriptor.
const CARRIED_LEN_MIN: usize = 2;
/// Bytes of the shortest holder of locks: inode, owner, process, two truth values, two counts.
const HOLDER_LEN_MIN: usize = 7;
/// Bytes of the shortest range: first, last byte, kind.
const RANGE_LEN_MIN: usize = 3;

/// Bytes of the shortest locked file: inode, size, seconds, nanoseconds.
const LOCKED_FILE_LEN_MIN: usize = 4;
/// Bytes of the shortest waiting request.
const WAITING_LEN_MIN: usize = 2;
/// Twice what a daemon allows by default: of holders of locks, ranges of one of them, and open files that it has used.
const HOLDERS_MAX: usize = 2 * 4096;
const RANGES_MAX: usize = 2 * 8192;
const HOLDER_FILES_MAX: usize = 2 * 256;
/// More requests than wait for locks.
const WAITING_MAX: usize = 1 << 16;

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
            CARRIED => state.carried = carried(&mut record)?,
            LOCKS => state.locks = locks(&mut record)?,
            LOCKED_FILES => state.locked_files = locked_files(&mut record)?,
            WAITING => state.waiting = waiting(&mut record)?,
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

fn carried(record: &mut Reader<'_>) -> Result<Vec<Carried>, Error> {
    let count = record.count("descriptors", usize::MAX, CARRIED_LEN_MIN)?;
    let one = |record: &mut Reader<'_>| match (record.u32()?, record.u64()?) {
        (0, id) => Ok(Carried::OpenFile(id)),
        (1, id) => Ok(Carried::Inode(id)),
        (2, id) => Ok(Carried::OpenDirectory(id)),
        _ => Err(Error::Malformed("an unknown kind of descriptor")),
    };
    (0..count).map(|_| one(record)).collect()
}

fn locks(record: &mut Reader<'_>) -> Result<Vec<LockHolder>, Error> {
    let count = record.count("holders of locks", HOLDERS_MAX, HOLDER_LEN_MIN)?;
    (0..count).map(|_| holder(record)).collect()
}

fn holder(record: &mut Reader<'_>) -> Result<LockHolder, Error> {
    let (inode, owner, pid) = (record.u64()?, record.u64()?, record.u32()?);
    let (has_several_pids, has_locked) = (record.bool()?, record.bool()?);
    let files = record.count("open files", HOLDER_FILES_MAX, 1)?;
    let files = (0..files).map(|_| record.u64()).collect::<Result<_, _>>()?;
    let ranges = record.count("locks", RANGES_MAX, RANGE_LEN_MIN)?;
    let range = |record: &mut Reader<'_>| {
        Ok(LockedRange { start: record.u64()?, end: record.u64()?, is_exclusive: record.bool()? })
    };
    let ranges = (0..ranges).map(|_| range(record)).collect::<Result<_, Error>>()?;
    Ok(LockHolder { inode, owner, pid, has_several_pids, has_locked, files, ranges })
}

fn locked_files(record: &mut Reader<'_>) -> Result<Vec<LockedFile>, Error> {
    let count = record.count("locked files", HOLDERS_MAX, LOCKED_FILE_LEN_MIN)?;
    let one = |record: &mut Reader<'_>| {
        let (inode, len_bytes, changed_at) = (record.u64()?, record.u64()?, (record.u64()?, record.u32()?));
        Ok(LockedFile { inode, len_bytes, changed_at })
    };
    (0..count).map(|_| one(record)).collect()
}

fn waiting(record: &mut Reader<'_>) -> Result<Vec<WaitingRequest>, Error> {
    let count = record.count("waiting requests", WAITING_MAX, WAITING_LEN_MIN)?;
    let number = |value: u32| u16::try_from(value).map_err(|_| Error::Malformed("a waiting request of no ring"));
    let one =
        |record: &mut Reader<'_>| Ok(WaitingRequest { queue: number(record.u32()?)?, head: number(record.u32()?)? });
    (0..count).map(|_| one(record)).collect()
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
    let has_locks = !(state.locks.is_empty() && state.locked_files.is_empty() && state.waiting.is_empty());
    if state.flags.is_none() && odd.is_empty() && state.carried.is_empty() && !has_locks {
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
    write_carried(&state.carried, writer);
    write_locks(&state.locks, writer);
    write_locked_files(&state.locked_files, writer);
    write_waiting(&state.waiting, writer);
}

fn write_carried(carried: &[Carried], writer: &mut Writer) {
    if carried.is_empty() {
        return;
    }
    let mut record = Writer::default();
    record.u64(carried.len() as u64);
    for one in carried {
        let (kind, id) = match *one {
            Carried::OpenFile(id) => (0, id),
            Carried::Inode(id) => (1, id),
            Carried::OpenDirectory(id) => (2, id),
        };
        record.u64(kind);
        record.u64(id);
    }
    writer.u64(CARRIED);
    writer.bytes(&record.0);
}

fn write_locks(locks: &[LockHolder], writer: &mut Writer) {
    if locks.is_empty() {
        return;
    }
    let mut record = Writer::default();
    record.u64(locks.len() as u64);
    for holder in locks {
        record.u64(holder.inode);
        record.u64(holder.owner);
        record.u64(holder.pid.into());
        record.bool(holder.has_several_pids);
        record.bool(holder.has_locked);
        record.u64(holder.files.len() as u64);
        holder.files.iter().for_each(|&file| record.u64(file));
        record.u64(holder.ranges.len() as u64);
        for range in &holder.ranges {
            record.u64(range.start);
            record.u64(range.end);
            record.bool(range.is_exclusive);
        }
    }
    writer.u64(LOCKS);
    writer.bytes(&record.0);
}

fn write_locked_files(files: &[LockedFile], writer: &mut Writer) {
    if files.is_empty() {
        return;
    }
    let mut record = Writer::default();
    record.u64(files.len() as u64);
    for file in files {
        let (seconds, nanoseconds) = file.changed_at;
        [file.inode, file.len_bytes, seconds, nanoseconds.into()].into_iter().for_each(|number| record.u64(number));
    }
    writer.u64(LOCKED_FILES);
    writer.bytes(&record.0);
}

fn write_waiting(waiting: &[WaitingRequest], writer: &mut Writer) {
    if waiting.is_empty() {
        return;
    }
    let mut record = Writer::default();
    record.u64(waiting.len() as u64);
    for request in waiting {
        record.u64(request.queue.into());
        record.u64(request.head.into());
    }
    writer.u64(WAITING);
    writer.bytes(&record.0);
}
