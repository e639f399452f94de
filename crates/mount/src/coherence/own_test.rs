//! Which requests count as own changes, and what of a reply is a trailer.

use transom_wire::own_changes::{COUNT_MAX, Trailer};

use super::*;
use crate::{
    passthrough::RequestKind,
    reply_out::Reply,
    reply_room::ARGS_LEN,
    testing::{answer, queue, request, submit},
};

/// Returns the inodes that a request to inode 5 with these words as arguments changes, in a session with POSIX_ACL.
fn shown(opcode: Opcode, words: &[(usize, u64)]) -> [Option<u64>; 2] {
    let mut args = [0; ARGS_LEN];
    for (at, word) in words {
        args[*at..at + 4].copy_from_slice(&(*word as u32).to_le_bytes());
    }
    let message = request(opcode, 2, 5, &args);
    shown_changes(&Request::new(&message).unwrap(), true).map(|nodeid| nodeid.map(|nodeid| nodeid.0))
}

#[test]
fn requests_change_the_inodes_that_they_name() {
    for opcode in [Opcode::Setattr, Opcode::Setxattr, Opcode::Create, Opcode::Write, Opcode::Unlink, Opcode::Mkdir] {
        assert_eq!(shown(opcode, &[]), [Some(5), None], "{opcode:?}");
    }
    // Both directories, or the directory and the inode that it gets.
    for opcode in [Opcode::Rename, Opcode::Rename2, Opcode::Link] {
        assert_eq!(shown(opcode, &[(0, 9)]), [Some(5), Some(9)], "{opcode:?}");
        assert_eq!(shown(opcode, &[(0, 5)]), [Some(5), None], "{opcode:?}");
    }
    for opcode in [Opcode::Getattr, Opcode::Read, Opcode::Open, Opcode::Fallocate, Opcode::CopyFileRange] {
        assert_eq!(shown(opcode, &[]), [None, None], "{opcode:?}");
    }
}

#[test]
fn what_the_kernel_does_not_follow_is_anothers() {
    let (write_flags, flags) = (20, 32);
    for unshown in [(write_flags, 1), (write_flags, 4), (flags, O_APPEND.into()), (flags, O_DIRECT.into())] {
        assert_eq!(shown(Opcode::Write, &[unshown]), [None, None], "{unshown:?}");
    }
    assert_eq!(shown(Opcode::Write, &[(write_flags, 2), (flags, 2)]), [Some(5), None]);
    assert_eq!(shown(Opcode::Create, &[(0, O_TRUNC.into())]), [None, None]);
    for opcode in [Opcode::Setxattr, Opcode::Removexattr] {
        let message = request(opcode, 2, 5, &[0; ARGS_LEN]);
        let shown = shown_changes(&Request::new(&message).unwrap(), false);
        assert_eq!(shown, [None, None], "it may be an access control list");
    }
}

/// Returns how long the kernel's reply is after a daemon's reply with this body, and what was raised.
fn cut(opcode: Opcode, body: &[u8]) -> (usize, RaisedSlots) {
    let (mut queue, mut raised) = (queue(), RaisedSlots::new());
    let slot = submit(&mut queue, &request(opcode, 2, 5, &[0; ARGS_LEN]), RequestKind::Forwarded);
    let reply = Reply::read(&queue, answer(&queue, slot, 2, 0, body));
    let (mut header, mut body) = reply.message.unwrap();
    cut_trailer(opcode.row(), &mut header, &mut body, &mut raised);
    assert_eq!(header.len.get() as usize, size_of::<OutHeader>() + body.len_bytes);
    (body.len_bytes, raised)
}

#[test]
fn a_trailer_is_cut_off_and_read_if_it_is_one() {
    let mut trailer = Trailer::default();
    (0..COUNT_MAX as u64).for_each(|at| trailer.push(at as u32, at + 10, at + 20));
    let with = |body: &[u8], trailer: &[u8]| [body, trailer].concat();
    let raised = |count: u64| -> RaisedSlots {
        (0..count).map(|at| (at as u32, Raised { previous: at + 10, word: at + 20 })).collect()
    };
    for (opcode, len) in [(Opcode::Unlink, 0), (Opcode::Write, 8), (Opcode::Setattr, 104), (Opcode::Create, 144)] {
        let body = vec![7; len];
        assert_eq!(cut(opcode, &body), (len, raised(0)), "{opcode:?}");
        assert_eq!(cut(opcode, &with(&body, trailer.as_bytes())), (len, raised(COUNT_MAX as u64)), "{opcode:?}");
        // What is no trailer, or a longer one than there are, says nothing.
        for bad in [&[1][..], &trailer.as_bytes()[1..], &[0xff; LEN_MAX], &[0; LEN_MAX + 1], &[0; 3000]] {
            assert_eq!(cut(opcode, &with(&body, bad)), (len, raised(0)), "{opcode:?}");
        }
        // Shorter than its body: the kernel refuses it.
        if len > 0 {
            assert_eq!(cut(opcode, &body[1..]), (len - 1, raised(0)), "{opcode:?}");
        }
    }
    // Replies to other requests have none, whatever their length.
    let mut one = Trailer::default();
    one.push(0, 10, 20);
    for opcode in [Opcode::Getattr, Opcode::Statfs, Opcode::Lookup] {
        let body = with(&[7; 200], one.as_bytes());
        assert_eq!(cut(opcode, &body), (body.len(), raised(0)), "{opcode:?}");
    }
}
