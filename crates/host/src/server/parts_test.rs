//! Lists of buffers, and the bytes of directory entries.

use transom_wire::{attr::EntryOut, dirent::Dirent};
use vm_memory::VolatileSlice;
use zerocopy::{FromBytes, FromZeros};

use super::{
    dirents::{Dirents, DirentsPlus},
    slices::{self, GuestSlice, GuestSlices},
    *,
};

/// Cuts `bytes` at each of `cuts`, which may repeat, and hands the pieces to `act`.
fn in_pieces<T>(bytes: &mut [u8], cuts: &[usize], act: impl FnOnce(&[GuestSlice<'_>]) -> T) -> T {
    let (mut rest, mut at, mut pieces) = (bytes, 0, Vec::new());
    for &cut in cuts {
        let (piece, behind) = rest.split_at_mut(cut - at);
        pieces.push(VolatileSlice::from(piece));
        (rest, at) = (behind, cut);
    }
    pieces.push(VolatileSlice::from(rest));
    act(&pieces)
}

const CUTS: [&[usize]; 5] = [&[], &[0], &[3, 3, 7], &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], &[5, 10]];

#[test]
fn a_copy_begins_at_its_offset_and_ends_with_the_shorter_side() {
    for cuts in CUTS {
        for offset in 0..=12 {
            for len in 0..=12 {
                let count = len.min(10usize.saturating_sub(offset));
                let mut bytes: Vec<u8> = (0..10).collect();
                let mut target = vec![0xee; len];
                let copied = in_pieces(&mut bytes, cuts, |pieces| slices::copy_out(pieces, offset, &mut target));
                let expected: Vec<u8> =
                    (0..len).map(|at| if at < count { (offset + at) as u8 } else { 0xee }).collect();
                assert_eq!((copied, target), (count, expected), "{cuts:?} {offset} {len}");

                let source = vec![7; len];
                let copied = in_pieces(&mut bytes, cuts, |pieces| slices::copy_in(pieces, offset, &source));
                let is_new = |at: usize| (offset..offset + count).contains(&at);
                let expected: Vec<u8> = (0..10).map(|at| if is_new(at) { 7 } else { at as u8 }).collect();
                assert_eq!((copied, bytes), (count, expected), "{cuts:?} {offset} {len}");
            }
        }
    }
}

#[test]
fn a_section_has_the_bytes_from_its_offset_and_no_empty_piece() {
    for cuts in CUTS {
        for offset in 0..=12 {
            for len in 0..=12 {
                let mut bytes: Vec<u8> = (0..10).collect();
                let (found, total) = in_pieces(&mut bytes, cuts, |pieces| {
                    let mut part = GuestSlices::new();
                    slices::range(pieces, offset, len, &mut part);
                    assert!(part.iter().all(|piece| !piece.is_empty()));
                    let mut found = vec![0; slices::total_len(&part)];
                    slices::copy_out(&part, 0, &mut found);
                    (found, slices::total_len(pieces))
                });
                let expected: Vec<u8> = (0..10).skip(offset).take(len).collect();
                assert_eq!((found, total), (expected, 10), "{cuts:?} {offset} {len}");
            }
        }
    }
}

#[test]
fn entries_are_padded_with_zeros_and_end_where_there_is_no_room() {
    let mut dirents = Dirents::default();
    // The memory of the first round is used again.
    for _ in 0..2 {
        dirents.reset(64);
        assert!(dirents.is_empty() && dirents.as_bytes().is_empty());
        assert_eq!(dirents.push(0x1111, 0x2222, 8, &[0xff; 9]), Ok(()));
        assert!(!dirents.is_empty());
        assert_eq!(dirents.push(1, 2, 8, b"1"), Err(Full), "40 of 64 bytes are used, it takes 32");
        let bytes = dirents.as_bytes();
        let head = Dirent::read_from_prefix(bytes).unwrap().0;
        assert_eq!((head.ino.get(), head.off.get(), head.namelen.get(), head.type_.get()), (0x1111, 0x2222, 9, 8));
        assert_eq!(bytes[24..], [[0xff; 9].as_slice(), &[0; 7]].concat());
        dirents.reset(4096);
        (0..100).for_each(|at| _ = dirents.push(u64::MAX, at, u32::MAX, &[0xff; 16]));
    }
    dirents.reset(32);
    assert_eq!((dirents.push(1, 2, 8, b"12345678"), dirents.push(1, 2, 8, b"1")), (Ok(()), Err(Full)));
    assert_eq!(dirents.as_bytes().len(), 32);
}

#[test]
fn more_entries_than_are_kept_in_memory_come_all() {
    let mut dirents = Dirents::default();
    dirents.reset(1 << 20);
    let count = (0..).take_while(|&at| dirents.push(at, at + 1, 4, b"12345678").is_ok()).count();
    assert_eq!((count, dirents.as_bytes().len()), (1 << 15, 1 << 20));
    for (at, entry) in dirents.as_bytes().chunks(32).enumerate() {
        let head = Dirent::read_from_prefix(entry).unwrap().0;
        assert_eq!((head.ino.get(), head.off.get(), &entry[24..]), (at as u64, at as u64 + 1, &b"12345678"[..]));
    }
}

#[test]
fn an_entry_with_attributes_needs_152_bytes_and_its_name() {
    let mut dirents = DirentsPlus::default();
    dirents.0.reset(160);
    let entry = EntryOut { nodeid: 7.into(), ..EntryOut::new_zeroed() };
    assert_eq!((dirents.has_room(b"12345678"), dirents.has_room(b"123456789")), (Ok(()), Err(Full)));
    assert!(dirents.is_empty());
    assert_eq!(dirents.push(&entry, 1, 2, 4, b"12345678"), Ok(()));
    assert!(!dirents.is_empty() && dirents.has_room(b"").is_err());
    let bytes = dirents.as_bytes();
    assert_eq!((bytes.len(), bytes[0], &bytes[152..]), (160, 7, &b"12345678"[..]));
}

#[test]
fn what_is_appended_to_a_reply_is_there_as_a_whole_or_not_at_all() {
    // A header has 16 bytes.
    for (room, appended) in [(16 + 8 + 4, true), (16 + 8 + 5, true), (16 + 8 + 3, false), (16 + 8, false)] {
        let mut bytes = vec![0xee; room];
        let len = in_pieces(&mut bytes, &[20], |pieces| {
            let mut reply = Reply::new(pieces);
            reply.bytes(&[1; 8]).unwrap();
            reply.append_if_room(&[]);
            reply.append_if_room(&[2; 4]);
            reply.len_bytes() as usize
        });
        let expected = if appended { [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2].as_slice() } else { &[1; 8] };
        assert_eq!((len, &bytes[16..len]), (16 + expected.len(), expected), "{room}");
        assert_eq!(u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize, len);
        assert!(bytes[len..].iter().all(|&byte| byte == 0xee));
    }
}
