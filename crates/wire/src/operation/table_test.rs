//! The rows against `linux/fuse.h` and the effects of system calls, not against the code that reads the rows.

extern crate std;

use std::{vec, vec::Vec};

use super::*;
use crate::{
    linux::{O_APPEND, O_EXCL, O_TRUNC},
    ops::write::WriteFlags,
};

/// Number, bytes of arguments, bytes of the fixed reply, names: `enum fuse_opcode` and the sizes of the header's
/// structures.
const HEADER: &[(u32, usize, Option<usize>, usize)] = &[
    (1, 0, Some(128), 1),
    (2, 8, None, 0),
    (3, 16, Some(104), 0),
    (4, 88, Some(104), 0),
    (5, 0, None, 0),
    (6, 0, Some(128), 2),
    (8, 16, Some(128), 1),
    (9, 8, Some(128), 1),
    (10, 0, Some(0), 1),
    (11, 0, Some(0), 1),
    (12, 8, Some(0), 2),
    (13, 8, Some(128), 1),
    (14, 8, Some(16), 0),
    (15, 40, None, 0),
    (16, 40, Some(8), 0),
    (17, 0, Some(80), 0),
    (18, 24, Some(0), 0),
    (20, 16, Some(0), 0),
    (21, 16, Some(0), 1),
    (22, 8, None, 1),
    (23, 8, None, 0),
    (24, 0, Some(0), 1),
    (25, 24, Some(0), 0),
    (26, 64, Some(64), 0),
    (27, 8, Some(16), 0),
    (28, 40, None, 0),
    (29, 24, Some(0), 0),
    (30, 16, Some(0), 0),
    (31, 48, Some(24), 0),
    (32, 48, Some(0), 0),
    (33, 48, Some(0), 0),
    (34, 8, Some(0), 0),
    (35, 16, Some(144), 1),
    (36, 8, None, 0),
    (37, 16, Some(8), 0),
    (38, 0, Some(0), 0),
    (39, 32, None, 0),
    (40, 24, Some(8), 0),
    (41, 0, None, 0),
    (42, 8, None, 0),
    (43, 32, Some(0), 0),
    (44, 40, None, 0),
    (45, 16, Some(0), 2),
    (46, 24, Some(8), 0),
    (47, 56, Some(8), 0),
    (48, 40, Some(0), 0),
    (49, 4, Some(0), 0),
    (50, 8, Some(0), 0),
    (51, 16, Some(144), 1),
    (52, 24, Some(288), 0),
    (53, 56, Some(8), 0),
];

fn row(number: u32) -> &'static Row {
    Opcode::from_u32(number).unwrap().row()
}

#[test]
fn numbers_lengths_and_names_are_those_of_the_header() {
    assert_eq!(HEADER.len(), Opcode::ALL.len(), "a row of the table is missing here");
    for &(number, args_len, reply_len, names) in HEADER {
        let row = row(number);
        assert_eq!(row.opcode as u32, number);
        assert_eq!((row.args_len, row.names), (args_len, names), "{}", row.name);
        let fixed = if let Shape::Fixed(len) = row.reply { Some(len) } else { None };
        assert_eq!(fixed, reply_len, "{}", row.name);
        // `struct fuse_ioctl_out` precedes the data of an IOCTL, which has an effect.
        let head = if number == 39 { 16 } else { 0 };
        assert_eq!(row.reply_len_min(), reply_len.unwrap_or(head), "{}", row.name);
    }
    for unused in [0, 7, 19, 54, u32::MAX] {
        assert_eq!(Opcode::from_u32(unused), None);
    }
}

/// `FUSE_FORGET`, `FUSE_INTERRUPT`, `FUSE_NOTIFY_REPLY`, `FUSE_BATCH_FORGET`.
#[test]
fn four_operations_have_no_reply() {
    let silent = |number: &u32| !row(*number).has_reply();
    assert!(HEADER.iter().map(|one| one.0).filter(silent).eq([2, 36, 41, 42]));
}

/// Arguments of `len` bytes with one little-endian word of them set.
fn with(len: usize, at: usize, word: u32) -> Vec<u8> {
    let mut args = vec![0; len];
    args[at..at + 4].copy_from_slice(&word.to_le_bytes());
    args
}

#[test]
fn a_reply_is_as_long_as_its_request_asks() {
    // `fuse_read_in.size` lies at 16, `fuse_getxattr_in.size` at 0, `fuse_ioctl_in.out_size` at 28.
    for number in [15, 28, 44] {
        assert_eq!(row(number).reply_len_max(&with(40, 16, 8192)), 8192);
    }
    for number in [22, 23] {
        assert_eq!(row(number).reply_len_max(&with(8, 0, 0)), 8, "a length of its own");
        assert_eq!(row(number).reply_len_max(&with(8, 0, 200)), 200);
    }
    assert_eq!(row(39).reply_len_max(&with(32, 28, 100)), 16 + 100);
    assert!(row(39).reply_len_max(&[0xff; 32]) > u32::MAX as usize, "no length overflows");
    assert_eq!(row(5).reply_len_max(&[]), 4095);
    assert_eq!((row(3).reply_len_max(&[0; 16]), row(2).reply_len_max(&[0; 8])), (104, 0));
}

#[test]
fn replies_name_inodes_and_open_files_where_the_header_says() {
    for (number, nodeid_at, handle_at) in [
        (1, Some(0), None),
        (6, Some(0), None),
        (8, Some(0), None),
        (9, Some(0), None),
        (13, Some(0), None),
        (14, None, Some(0)),
        (27, None, Some(0)),
        (35, Some(0), Some(128)),
        (51, Some(0), Some(128)),
    ] {
        let row = row(number);
        assert_eq!((row.reply_nodeid_at, row.reply_handle_at), (nodeid_at, handle_at), "{}", row.name);
    }
    // `fuse_entry_out.attr` lies at 40, `fuse_attr_out.attr` at 16.
    for (number, attr_at) in [(1, 40), (35, 40), (3, 16), (4, 16)] {
        assert_eq!(row(number).reply_attr_at, Some(attr_at), "{}", row(number).name);
    }
    let naming = |row: &&Row| row.reply_nodeid_at.is_some() || row.reply_handle_at.is_some();
    assert_eq!(Opcode::ALL.iter().map(|opcode| opcode.row()).filter(naming).count(), 9);
}

#[test]
fn arguments_name_inodes_and_open_files_where_the_header_says() {
    // `fh` begins each of these structures.
    for number in [15, 16, 18, 20, 25, 28, 29, 30, 31, 32, 33, 39, 40, 43, 44, 46] {
        assert!(row(number).handles_in(&[0; 88]).eq([0]), "{}", row(number).name);
    }
    for number in [47, 53] {
        assert!(row(number).handles_in(&[0; 56]).eq([0, 24]));
        assert_eq!(row(number).nodeids, [16]);
    }
    // FUSE_GETATTR_FH is bit 0, FATTR_FH bit 6.
    for (number, len, bit, at) in [(3, 16, 1, 8), (52, 24, 1, 8), (4, 88, 1 << 6, 8)] {
        assert!(row(number).handles_in(&with(len, 0, bit)).eq([at]), "{}", row(number).name);
        assert!(row(number).handles_in(&with(len, 0, !bit)).eq([]), "{}", row(number).name);
    }
    for number in [12, 13, 45] {
        assert_eq!(row(number).nodeids, [0], "{}", row(number).name);
    }
    let naming = |opcode: &&Opcode| !opcode.row().handles.is_empty() || !opcode.row().nodeids.is_empty();
    assert_eq!(Opcode::ALL.iter().filter(naming).count(), 16 + 2 + 3 + 3);
}

fn changes(number: u32, args: &[u8]) -> Vec<Changed> {
    row(number).changes_of(args).collect()
}

/// The effects on link counts, times, sizes and names according to the manual pages of the system calls.
#[test]
fn changes_are_those_of_the_system_calls() {
    use Changed::*;
    for number in [12, 45] {
        assert_eq!(changes(number, &[0; 16]), [Names, NewNames, Named, Replaced], "rename(2)");
    }
    for number in [10, 11] {
        assert_eq!(changes(number, &[]), [Names, Named], "unlink(2)");
    }
    for number in [6, 8, 9] {
        assert_eq!(changes(number, &[0; 16]), [Names], "mknod(2)");
    }
    assert_eq!(changes(13, &[0; 8]), [Names, Argument], "link(2)");
    for number in [16, 43] {
        assert_eq!(changes(number, &[0; 40]), [Node, Data], "write(2), fallocate(2)");
    }
    for number in [47, 53] {
        assert_eq!(changes(number, &[0; 56]), [Argument, ArgumentData], "copy_file_range(2)");
    }
    // FATTR_SIZE is bit 3, FATTR_MODE bit 0.
    assert_eq!(changes(4, &with(88, 0, 1)), [Node], "chmod(2)");
    assert_eq!(changes(4, &with(88, 0, 1 << 3)), [Node, Data], "truncate(2)");
    for number in [21, 24] {
        assert_eq!(changes(number, &[0; 16]), [Node], "setxattr(2)");
    }
    assert_eq!(changes(14, &with(8, 0, 2)), [], "open(2)");
    assert_eq!(changes(14, &with(8, 0, 2 | O_TRUNC)), [Node, Data], "open(2) with O_TRUNC");
    assert_eq!(changes(35, &with(16, 0, 2)), [Names], "creat(2)");
    assert_eq!(changes(35, &with(16, 0, 2 | O_TRUNC)), [Names, Entry, EntryData], "a file that exists");
    assert_eq!(changes(51, &with(16, 0, 2 | O_TRUNC)), [], "O_TMPFILE");
    // FS_IOC_GETFLAGS and FS_IOC_SETFLAGS.
    assert_eq!(
        (changes(39, &with(32, 12, 0x8008_6601)), changes(39, &with(32, 12, 0x4008_6602))),
        (vec![], vec![Node])
    );
    // The exchange with an agent: _IOWR, but all that it changes is its argument.
    assert_eq!(changes(39, &with(32, 12, 0xd000_f57a)), []);
}

#[test]
fn nothing_else_changes_anything() {
    let changing = [4, 6, 8, 9, 10, 11, 12, 13, 14, 16, 21, 24, 35, 39, 43, 45, 47, 53];
    let found = HEADER.iter().map(|one| one.0).filter(|&number| !row(number).changes.is_empty());
    assert!(found.eq(changing));
}

fn repeats(number: u32, args: &[u8]) -> bool {
    row(number).repeats.holds(args)
}

#[test]
fn what_two_calls_would_do_differently_is_not_repeated() {
    // `fuse_write_in`: write_flags at 20, flags at 32.
    assert!(repeats(16, &with(40, 32, 1)));
    assert!(!repeats(16, &with(40, 32, 1 | O_APPEND)));
    let mut cached = with(40, 32, 1 | O_APPEND);
    cached[20] = WriteFlags::CACHE.bits() as u8;
    assert!(repeats(16, &cached), "pages of a cache have their place");
    // `fuse_fallocate_in.mode` at 24: COLLAPSE_RANGE 8, INSERT_RANGE 0x20, PUNCH_HOLE | KEEP_SIZE 3.
    assert_eq!([0, 3, 8, 0x20].map(|mode| repeats(43, &with(32, 24, mode))), [true, true, false, false]);
    // `fuse_setxattr_in.flags` at 4: XATTR_CREATE 1, XATTR_REPLACE 2.
    assert_eq!([0, 1, 2].map(|flags| repeats(21, &with(16, 4, flags))), [true, false, false]);
    assert_eq!([0, O_EXCL].map(|flags| repeats(35, &with(16, 0, flags))), [true, false]);
    const CONDITIONAL: [u32; 4] = [16, 21, 35, 43];
    const NEVER: [u32; 21] = [2, 6, 8, 9, 10, 11, 12, 13, 24, 25, 26, 36, 38, 39, 41, 42, 45, 47, 48, 49, 53];
    const ALWAYS: [u32; 26] =
        [1, 3, 4, 5, 14, 15, 17, 18, 20, 22, 23, 27, 28, 29, 30, 31, 32, 33, 34, 37, 40, 44, 46, 50, 51, 52];
    for number in NEVER {
        assert!(!repeats(number, &[0; 88]), "{}", row(number).name);
    }
    for number in ALWAYS {
        assert!(repeats(number, &[0; 88]), "{}", row(number).name);
    }
    let mut listed = [&CONDITIONAL[..], &NEVER[..], &ALWAYS[..]].concat();
    listed.sort_unstable();
    assert!(HEADER.iter().map(|one| one.0).eq(listed), "each operation is in one list");
}

/// An operation that changes names may be repeated only if its flags make the second one harmless.
#[test]
fn names_are_never_changed_twice() {
    for opcode in Opcode::ALL {
        let row = opcode.row();
        let has_names = row.changes.iter().any(|change| matches!(change.what, Changed::Names | Changed::NewNames));
        assert!(!has_names || row.repeats != Condition::Always, "{}", row.name);
    }
}

#[test]
fn offsets_lie_within_the_arguments() {
    for opcode in Opcode::ALL {
        let row = opcode.row();
        let longs = row.handles.iter().map(|handle| handle.at).chain(row.nodeids.iter().copied());
        assert!(longs.map(|at| at + 8).all(|end| end <= row.args_len), "{}", row.name);
        let words = [row.rest_size_at, row.reply_size_at];
        assert!(words.into_iter().flatten().all(|at| at + 4 <= row.args_len), "{}", row.name);
        let is_sized = !matches!(row.rest, RestKind::None | RestKind::Extensions);
        assert_eq!(row.rest_size_at.is_some(), is_sized, "{}", row.name);
        let is_asked = matches!(row.reply, Shape::UpTo { .. } | Shape::UpToOr { .. });
        assert_eq!(row.reply_size_at.is_some(), is_asked, "{}", row.name);
    }
}

#[test]
fn names_of_operations_are_different() {
    for (at, one) in Opcode::ALL.iter().enumerate() {
        assert!(Opcode::ALL[at + 1..].iter().all(|other| other.name() != one.name()), "{}", one.name());
    }
}
