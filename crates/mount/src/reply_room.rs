//! How long a reply may be: what the request itself asks for, or what no reply without data exceeds.
//!
//! The kernel that mounts does not tell; a kernel that is the guest lays its buffers out so.

use transom_wire::{Opcode, header::OutHeader, ops::write::WriteIn};

/// Bytes of the arguments that are read: all of a WRITE's, and the sizes that other requests ask for.
pub(super) const ARGS_LEN: usize = size_of::<WriteIn>();
/// Replies without data of a length that was asked for: the longest is READLINK's.
const SHORT_LEN_MAX: usize = 4096;

/// In bytes, header included. `args` are the first of the request's arguments, zeros after them.
pub(super) fn len_bytes(opcode: Option<Opcode>, args: &[u8; ARGS_LEN]) -> usize {
    let body = match opcode.map(Opcode::row) {
        Some(row) if row.reply_size_at.is_some() => row.reply_len_max(args),
        Some(_) | None => SHORT_LEN_MAX,
    };
    body.saturating_add(size_of::<OutHeader>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_has_the_room_that_it_asks_for_and_no_more() {
        let mut args = [0; ARGS_LEN];
        args[16..20].copy_from_slice(&8192u32.to_le_bytes());
        assert_eq!(len_bytes(Some(Opcode::Read), &args), 16 + 8192);
        assert_eq!(len_bytes(Some(Opcode::Getattr), &args), 16 + SHORT_LEN_MAX);
    }

    #[test]
    fn a_length_of_an_attribute_has_room_for_a_number() {
        assert_eq!(len_bytes(Some(Opcode::Getxattr), &[0; ARGS_LEN]), 16 + 8);
    }

    #[test]
    fn no_length_overflows() {
        assert!(len_bytes(Some(Opcode::Ioctl), &[0xff; ARGS_LEN]) > u32::MAX as usize);
    }

    #[test]
    fn every_size_that_is_asked_for_is_among_the_first_arguments() {
        for opcode in Opcode::ALL {
            let row = opcode.row();
            assert!(row.reply_size_at.is_none_or(|at| at + 4 <= ARGS_LEN), "{}", row.name);
            let longest = if row.reply_size_at.is_none() { row.reply_len_max(&[]) } else { 0 };
            assert!(longest <= SHORT_LEN_MAX, "{}", row.name);
        }
    }
}
