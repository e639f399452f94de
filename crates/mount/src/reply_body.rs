//! Bodies of replies in shared memory, for stages that look into them.
//!
//! The daemon can change the bytes at any time: each is read once, and a wrong one leads to nothing worse than a wrong
//! reply would.

use transom_wire::dirent::{DirentPlus, padded_len};
use zerocopy::FromBytes as _;

use super::fuse_device::SharedBuffer;

/// Returns the offsets of the entries of a READDIRPLUS.
pub(super) fn entries<'a>(body: &'a SharedBuffer<'_>) -> impl Iterator<Item = usize> + 'a {
    let mut next = 0;
    std::iter::from_fn(move || {
        let offset = next;
        let head: [u8; size_of::<DirentPlus>()] = read(body, offset)?;
        let name_len = DirentPlus::read_from_bytes(&head).ok()?.dirent.namelen.get() as usize;
        next = offset.checked_add(padded_len(size_of::<DirentPlus>(), name_len))?;
        Some(offset)
    })
}

/// Returns the name of the entry of a READDIRPLUS at `offset`.
pub(super) fn read_name(body: &SharedBuffer<'_>, offset: usize) -> Option<Vec<u8>> {
    let head: [u8; size_of::<DirentPlus>()] = read(body, offset)?;
    let len = DirentPlus::read_from_bytes(&head).ok()?.dirent.namelen.get() as usize;
    let begin = offset + head.len();
    (begin.checked_add(len)? <= body.len_bytes).then(|| {
        let mut name = vec![0; len];
        body.memory.read(body.offset + begin, &mut name);
        name
    })
}

/// Reads `LEN` bytes at `offset`, or returns `None` if the reply is too short.
pub(super) fn read<const LEN: usize>(body: &SharedBuffer<'_>, offset: usize) -> Option<[u8; LEN]> {
    (offset.checked_add(LEN)? <= body.len_bytes).then(|| {
        let mut bytes = [0; LEN];
        body.memory.read(body.offset + offset, &mut bytes);
        bytes
    })
}

/// Writes `bytes` at `offset`, which [`read`] has found to lie within the reply.
pub(super) fn write(body: &SharedBuffer<'_>, offset: usize, bytes: &[u8]) {
    if offset + bytes.len() <= body.len_bytes {
        body.memory.write(body.offset + offset, bytes);
    }
}
