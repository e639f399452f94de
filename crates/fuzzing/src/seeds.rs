//! Initial inputs of the fuzzers: one valid message of each operation, and a session that does a little of everything.

use std::mem::offset_of;

use transom_wire::{
    NodeId, OPCODE_LIMIT, Opcode, Row,
    agent::{AGENT_GID, Change, EXCHANGE_LEN, Kind, Writer},
    header::InHeader,
    operation::{Effect, MadeType, RestKind},
};

use super::{
    decode::{PREFIX_LEN, message},
    requests::ROOMS,
};

/// An input, and the name of its file.
pub struct Seed {
    /// The name of its file.
    pub name: String,
    /// The input.
    pub bytes: Vec<u8>,
}

/// Begins the inputs of [`decode`](super::decode): a session with every feature, pieces of 7 bytes, ample room.
const PREFIX: [u8; PREFIX_LEN] = [3, 7, 0, 16];

/// One message of each operation with arguments of zeros and good names, and the same from the agent in a guest, for
/// [`decode`](super::decode).
pub fn decode() -> Vec<Seed> {
    let plain = |&opcode: &Opcode| Seed {
        name: opcode.name().into(),
        bytes: [&PREFIX[..], &message(opcode as u32, 1, &body(opcode))].concat(),
    };
    let agents = |opcode: &Opcode| {
        let mut seed = plain(opcode);
        seed.name.insert_str(0, "agent-");
        let gid = PREFIX_LEN + offset_of!(InHeader, gid);
        seed.bytes[gid..gid + 4].copy_from_slice(&AGENT_GID.to_le_bytes());
        seed
    };
    Opcode::ALL.iter().flat_map(|opcode| [plain(opcode), agents(opcode)]).collect()
}

/// Changes of every kind, with long and short names, for [`announcement`](super::announcement).
pub fn announcement() -> Vec<Seed> {
    let names: [(&str, &[u8], &[u8]); 3] = [("none", b"", b""), ("short", b"a", b"new"), ("long", &[b'x'; 255], b"y")];
    let seed = |(label, name, new_name): (&str, &[u8], &[u8])| {
        let mut bytes = [0; EXCHANGE_LEN];
        let mut writer = Writer::new(&mut bytes);
        for kind in Kind::ALL {
            let change = Change { kind, file_type: 8, parent: NodeId(1), name, new_parent: NodeId(2), new_name };
            assert!(writer.push(&change), "{label}");
        }
        let used = writer.used();
        writer.finish(label == "none");
        Seed { name: label.into(), bytes: bytes[..used].to_vec() }
    };
    names.map(seed).into()
}

/// A session, for [`requests`](super::requests).
pub fn requests() -> Vec<Seed> {
    let all: Vec<(Opcode, u8)> = Opcode::ALL
        .iter()
        .filter(|opcode| !opcode.is_of_session())
        .flat_map(|&opcode| [(opcode, 1), (opcode, 2)])
        .collect();
    let opened = [Opcode::Create, Opcode::Opendir, Opcode::Mkdir, Opcode::Symlink, Opcode::Link];
    let bytes = |list: &[(Opcode, u8)]| list.iter().flat_map(|&(opcode, nodeid)| request(opcode, nodeid)).collect();
    let opened: Vec<(Opcode, u8)> = opened.into_iter().map(|opcode| (opcode, 1)).collect();
    vec![
        Seed { name: "everything".into(), bytes: bytes(&[&opened[..], &all].concat()) },
        Seed { name: "names".into(), bytes: bytes(&opened) },
    ]
}

/// Devices that keep to the protocol, for [`guest::device`](super::guest::device): with each combination of rings,
/// every call.
pub fn guest_device() -> Vec<Seed> {
    // Calls with lengths, each answered when the device is told of it; started messages, finished; a priority message.
    let calls =
        [&[0, 2, 4, 1, 7, 0, 0x10, 2, 7, 2, 6, 0][..], &[0x80, 1, 2, 2, 0, 0xa0, 0, 0xb0, 0xc0, 2, 0, 0xd0]].concat();
    let seed = |rings: u8| {
        let settings = [rings, 60, 1, 0, 1, 0, rings / 8];
        Seed { name: format!("rings-{rings}"), bytes: [&settings[..], &calls, &calls].concat() }
    };
    (0..32).map(seed).collect()
}

/// Good servers, for [`guest::replies`](super::guest::replies): every operation once, by requests and by paths.
pub fn guest_replies() -> Vec<Seed> {
    // The byte that chooses the use, followed by bytes that are its arguments and whole replies.
    let uses = |first: u8| (first..=first + 63).flat_map(|choice| [choice, 4, 0, 9, 0, 9]).collect::<Vec<u8>>();
    let seed = |kind: u8, first: u8| Seed {
        name: format!("{}-{}", if kind == 0 { "requests" } else { "paths" }, first / 64),
        bytes: [&[kind, 0, 7, 0, 0, 0, 0x84, 0, 9][..], &uses(first)].concat(),
    };
    (0..8).map(|at| seed(at / 4, at % 4 * 64)).collect()
}

// An input has a byte for the number of an operation.
const _: () = assert!(OPCODE_LIMIT <= 1 << u8::BITS);

/// States with some of everything, for [`migration`](super::migration).
pub fn migration() -> Vec<Seed> {
    // The root, a directory by its name, a file by its path; an open file; what was negotiated.
    let inodes = b"\x03\x01\x02\x00\x00\x02\x01\x01\x01\x01a\x00\x03\x01\x03\x03a/b\x00\x04";
    let rest = b"\x01\x02\x03\x00\x04\x03\x00\x01\x00\x00";
    let v1 = [&b"\x00"[..], inodes, rest].concat();
    let v2 = [&b"\x01"[..], inodes, rest, b"\x01\x07\x01."].concat();
    let records = [&v2[..], b"transomd", b"\x01\x02\x81\x03"].concat();
    let named = [("v1", v1), ("v2", v2), ("records", records)];
    named.into_iter().map(|(name, bytes)| Seed { name: name.into(), bytes }).collect()
}

fn request(opcode: Opcode, nodeid: u8) -> Vec<u8> {
    let body = body(opcode);
    let largest = ROOMS.len() as u8 - 1;
    [&[opcode as u8, nodeid, largest][..], &(body.len() as u16).to_le_bytes(), &body].concat()
}

/// Good arguments, names and what follows them, as the operation's row has them.
fn body(opcode: Opcode) -> Vec<u8> {
    let row = opcode.row();
    let mut body = match SENSIBLE.iter().find(|(sensible, _)| *sensible == opcode) {
        Some((_, words)) => words.iter().flat_map(|word| word.to_le_bytes()).collect(),
        None => of_row(row),
    };
    body.resize(row.args_len, 0);
    for name in &names(opcode)[..row.names] {
        body.extend_from_slice(name);
        body.push(0);
    }
    match row.rest {
        RestKind::None | RestKind::Extensions => {}
        RestKind::Bytes | RestKind::FileData => body.extend_from_slice(b"value"),
        RestKind::List { item_len } => {
            // Two inodes of the session, or two ranges of the window.
            let words = if row.effect == Effect::Forgets { [2, 1, 3, 1] } else { [0, 1 << 21, 1 << 21, 1 << 21] };
            let words = words.iter().flat_map(|word: &u64| word.to_le_bytes());
            body.extend(words.take(2 * item_len));
        }
    }
    body
}

/// Arguments of zeros, but for the first open file and inode of a session, and for sizes.
fn of_row(row: &Row) -> Vec<u8> {
    let mut args = vec![0; row.args_len];
    for at in row.handles_in(&[]).chain(row.nodeids.iter().copied()) {
        args[at] = 1;
    }
    if let Some(at) = row.reply_size_at {
        args[at] = 200;
    }
    if let Some(at) = row.rest_size_at {
        args[at] = if let RestKind::List { .. } = row.rest { 2 } else { 5 };
    }
    args
}

/// Names, so that a session makes, finds, moves and removes one after the other.
fn names(opcode: Opcode) -> [&'static [u8]; 2] {
    let row = opcode.row();
    match row.effect {
        Effect::Makes(MadeType::Directory) => [b"directory", b""],
        Effect::Makes(MadeType::Symlink) => [b"link", b"target"],
        Effect::Makes(MadeType::ByMode(_)) => [b"node", b""],
        Effect::Makes(MadeType::SameAs(_)) => [b"second", b""],
        Effect::OpensNameless => [b"/", b""],
        Effect::Removes if opcode == Opcode::Rmdir => [b"directory", b""],
        Effect::None => [b"user.name", b""],
        Effect::LooksUp
        | Effect::MakesAndOpens
        | Effect::Opens
        | Effect::Lists
        | Effect::Removes
        | Effect::Renames
        | Effect::Closes
        | Effect::Flushes
        | Effect::Locks
        | Effect::Forgets
        | Effect::Interrupts => [b"file", b"renamed"],
    }
}

/// Arguments that lead further than those of the row: flags, modes, and the open directory, which is handle 2. An
/// operation need not be here.
const SENSIBLE: &[(Opcode, &[u64])] = &[
    (Opcode::Getattr, &[0, 1]),
    (Opcode::Open, &[2]),
    (Opcode::Opendir, &[2]),
    (Opcode::Access, &[2]),
    (Opcode::Setattr, &[0b1_1000_1001, 0, 5, 0, 1, 2, 3, 0, 0o644 << 32, 0, 0]),
    (Opcode::Mknod, &[0o100_644, 0]),
    (Opcode::Mkdir, &[0o755]),
    (Opcode::Link, &[2]),
    (Opcode::Readdir, &[2, 0, 4000, 0, 0]),
    (Opcode::Readdirplus, &[2, 0, 4000, 0, 0]),
    (Opcode::Write, &[1, 3, 5, 0, 0]),
    (Opcode::Releasedir, &[2, 0, 0]),
    (Opcode::Forget, &[1]),
    (Opcode::Getlk, &[1, 9, 0, 100, 1 | 7 << 32, 0]),
    (Opcode::Setlk, &[1, 9, 0, 100, 1 | 7 << 32, 0]),
    (Opcode::Setlkw, &[1, 9, 0, 100, 1 | 7 << 32, 0]),
    (Opcode::Create, &[2 | 0o644 << 32, 0]),
    (Opcode::Tmpfile, &[2 | 0o644 << 32, 0]),
    (Opcode::Fallocate, &[1, 10, 100, 0]),
    (Opcode::Lseek, &[1, 0, 3]),
    (Opcode::CopyFileRange, &[1, 0, 2, 1, 50, 10, 0]),
    (Opcode::CopyFileRange64, &[1, 0, 2, 1, 50, 10, 0]),
    (Opcode::Statx, &[0, 0, 0x7ff << 32]),
    (Opcode::Ioctl, &[1, 0x8008_6601 << 32, 0, 5 | 8 << 32]),
    (Opcode::Setupmapping, &[1, 0, 1 << 21, 1, 0]),
    (Opcode::Init, &[7 | 45 << 32, 0x7fff_ffff << 32, 0, 0, 0, 0, 0, 0]),
    (Opcode::Interrupt, &[2]),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of the operation of each request in an input of [`requests`](super::super::requests).
    fn numbers(mut bytes: &[u8]) -> Vec<u32> {
        let mut numbers = Vec::new();
        while let [number, _, _, low, high, rest @ ..] = bytes {
            numbers.push(u32::from(*number));
            bytes = &rest[usize::from(u16::from_le_bytes([*low, *high]))..];
        }
        numbers
    }

    #[test]
    fn every_operation_is_in_a_seed() {
        let (decode, requests) = (decode(), requests());
        let requests: Vec<u32> = requests.iter().flat_map(|seed| numbers(&seed.bytes)).collect();
        for &opcode in Opcode::ALL {
            assert!(decode.iter().any(|seed| seed.name == opcode.name()), "{opcode:?} has no message for decode");
            let is_requested = requests.contains(&(opcode as u32));
            assert!(is_requested || opcode.is_of_session(), "{opcode:?} has no request in a session");
        }
    }
}
