//! Copies between the window and a caller's memory: straight, wherever both sides can be reached by address.

use super::WindowMemory;
use crate::{
    Errno,
    memory::{IoSlice, IoSliceMut, Origin, Target},
};

/// Bytes that are copied at once if neither side can be reached by address.
const PIECE_LEN: usize = 512;

/// Copies from `offset` of the window. Returns how many bytes were copied, fewer if the caller's memory is not present.
///
/// Errors: those of [`WindowMemory::load`]; a part may have been copied.
pub(super) fn load_to(memory: &dyn WindowMemory, offset: u64, mut to: Target<'_>) -> Result<usize, Errno> {
    let mut done = 0;
    if let Some(pieces) = to.pieces() {
        for piece in pieces.iter() {
            memory.load_into(offset + done as u64, piece)?;
            done += piece.len();
        }
        return Ok(done);
    }
    if let Some(bytes) = memory.bytes(offset, to.len()) {
        return Ok(to.put(bytes.as_slice()));
    }
    let mut piece = [0; PIECE_LEN];
    while done < to.len() {
        let len = (to.len() - done).min(PIECE_LEN);
        memory.load(offset + done as u64, &mut piece[..len])?;
        let count = to.rest(done).put(IoSlice::new(&piece[..len]));
        done += count;
        if count < len {
            break;
        }
    }
    Ok(done)
}

/// Copies to `offset` of the window: see [`load_to`].
pub(super) fn store_from(memory: &dyn WindowMemory, offset: u64, mut from: Origin<'_>) -> Result<usize, Errno> {
    let mut done = 0;
    if let Some(pieces) = from.pieces() {
        for piece in pieces.iter() {
            memory.store_from(offset + done as u64, piece)?;
            done += piece.len();
        }
        return Ok(done);
    }
    if let Some(bytes) = memory.bytes(offset, from.len()) {
        return Ok(from.take(bytes));
    }
    let mut piece = [0; PIECE_LEN];
    while done < from.len() {
        let len = (from.len() - done).min(PIECE_LEN);
        let count = from.rest(done).take(IoSliceMut::new(&mut piece[..len]));
        memory.store(offset + done as u64, &piece[..count])?;
        done += count;
        if count < len {
            break;
        }
    }
    Ok(done)
}
