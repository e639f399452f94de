extern crate std;

use std::vec::Vec;

use super::*;

const LONG: [u8; NAME_LEN_MAX] = [b'x'; NAME_LEN_MAX];

fn change<'a>(kind: Kind, name: &'a [u8], new_name: &'a [u8]) -> Change<'a> {
    Change { kind, file_type: 8, parent: NodeId(1), name, new_parent: NodeId(u64::MAX), new_name }
}

#[test]
fn the_number_encodes_the_size_and_both_directions() {
    assert_eq!(EXCHANGE >> 16 & 0x3fff, EXCHANGE_LEN as u32);
    assert_eq!(EXCHANGE >> 30, 3);
}

#[test]
fn what_is_announced_is_read_back_in_order() {
    let mut argument = [0xff; EXCHANGE_LEN];
    let changes = [
        change(Kind::Created, b"a", b""),
        change(Kind::Renamed, &LONG, &LONG),
        change(Kind::Attributes, b"", b""),
        change(Kind::Exchanged, b"1234567", b"89"),
    ];
    let mut writer = Writer::new(&mut argument);
    assert!(changes.iter().all(|change| writer.push(change)));
    assert_eq!(writer.finish(true), 4);
    let (head, read) = Changes::parse(&argument).unwrap();
    assert_eq!((head.count.get(), head.is_overflow.get()), (4, 1));
    assert!(read.map(Result::unwrap).eq(changes));
}

#[test]
fn an_announcement_that_is_full_takes_no_more() {
    let mut argument = [0; EXCHANGE_LEN];
    let mut writer = Writer::new(&mut argument);
    let mut pushed = 0;
    while writer.push(&change(Kind::Renamed, &LONG, &LONG)) {
        pushed += 1;
    }
    assert_eq!(writer.finish(false), pushed);
    assert_eq!(Changes::parse(&argument).unwrap().1.map(Result::unwrap).count(), pushed as usize);
}

#[test]
fn a_malformed_announcement_ends_with_an_error() {
    let mut argument = [0; EXCHANGE_LEN];
    assert_eq!(Changes::parse(&argument).err(), Some(Malformed), "version 0");
    Writer::new(&mut argument).finish(false);
    argument[4] = 1;
    let read: Vec<_> = Changes::parse(&argument).unwrap().1.collect();
    assert_eq!(read, [Err(Malformed)], "kind 0");
    argument[4..8].fill(0xff);
    argument[size_of::<Announcement>() + 16] = Kind::Created as u8;
    let read: Vec<_> = Changes::parse(&argument).unwrap().1.collect();
    assert!(read.len() < EXCHANGE_LEN && read.last() == Some(&Err(Malformed)), "more than there is");
}
