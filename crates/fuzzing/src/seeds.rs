//! Inputs that fuzzing begins with: one good message of each operation, and a session that does a little of everything.

use transom_wire::Opcode;

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

/// One message of each operation with arguments of zeros and good names, for [`decode`](super::decode).
pub fn decode() -> Vec<Seed> {
    let seed = |&opcode: &Opcode| Seed {
        name: opcode.name().into(),
        bytes: [&PREFIX[..], &message(opcode as u32, 1, &body(opcode))].concat(),
    };
    Opcode::ALL.iter().map(seed).collect()
}

/// A session, for [`requests`](super::requests).
pub fn requests() -> Vec<Seed> {
    let all: Vec<(Opcode, u8)> = Opcode::ALL
        .iter()
        .filter(|opcode| !matches!(opcode, Opcode::Init | Opcode::Destroy))
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

/// Devices that keep to the protocol, for [`guest::device`](super::guest::device): with each combination of rings, every call.
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
    // What chooses among the uses, with bytes behind that are their arguments and whole answers.
    let uses = |first: u8| (first..=first + 63).flat_map(|choice| [choice, 4, 0, 9, 0, 9]).collect::<Vec<u8>>();
    let seed = |kind: u8, first: u8| Seed {
        name: format!("{}-{}", if kind == 0 { "requests" } else { "paths" }, first / 64),
        bytes: [&[kind, 0, 7, 0, 0, 0, 0x84, 0, 9][..], &uses(first)].concat(),
    };
    (0..8).map(|at| seed(at / 4, at % 4 * 64)).collect()
}

fn request(opcode: Opcode, nodeid: u8) -> Vec<u8> {
    let body = body(opcode);
    let largest = ROOMS.len() as u8 - 1;
    [&[opcode as u8, nodeid, largest][..], &(body.len() as u16).to_le_bytes(), &body].concat()
}

/// Arguments that make sense where zeros do not.
fn body(opcode: Opcode) -> Vec<u8> {
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let arguments = match opcode {
        Opcode::Getattr | Opcode::Fsync | Opcode::Fsyncdir => words(&[0, 1]),
        Opcode::Open | Opcode::Opendir | Opcode::Access | Opcode::Syncfs => words(&[2]),
        Opcode::Setattr => words(&[0b1_1000_1001, 0, 5, 0, 1, 2, 3, 0, 0o644 << 32, 0, 0]),
        Opcode::Mknod => words(&[0o100_644, 0]),
        Opcode::Mkdir => words(&[0o755]),
        Opcode::Rename => words(&[1]),
        Opcode::Rename2 => words(&[1, 0]),
        Opcode::Link => words(&[2]),
        Opcode::Read => words(&[1, 0, 100, 0, 0]),
        Opcode::Readdir | Opcode::Readdirplus => words(&[2, 0, 4000, 0, 0]),
        Opcode::Write => words(&[1, 3, 5, 0, 0]),
        Opcode::Release | Opcode::Flush => words(&[1, 0, 0]),
        Opcode::Releasedir => words(&[2, 0, 0]),
        Opcode::Forget => words(&[1]),
        Opcode::BatchForget => words(&[2, 2, 1, 3, 1]),
        Opcode::Setxattr => words(&[5, 0]),
        Opcode::Getxattr | Opcode::Listxattr => words(&[200]),
        Opcode::Getlk | Opcode::Setlk | Opcode::Setlkw => words(&[1, 9, 0, 100, 1 | 7 << 32, 0]),
        Opcode::Create | Opcode::Tmpfile => words(&[2 | 0o644 << 32, 0]),
        Opcode::Fallocate => words(&[1, 10, 100, 0]),
        Opcode::Lseek => words(&[1, 0, 3]),
        Opcode::CopyFileRange | Opcode::CopyFileRange64 => words(&[1, 0, 2, 1, 50, 10, 0]),
        Opcode::Statx => words(&[0, 0, 0x7ff << 32]),
        Opcode::Ioctl => words(&[1, 0x8008_6601 << 32, 0, 4 | 8 << 32, 0]),
        Opcode::Setupmapping => words(&[1, 0, 1 << 21, 1, 0]),
        Opcode::Removemapping => [&1u32.to_le_bytes()[..], &words(&[0, 1 << 21])].concat(),
        Opcode::Init => words(&[7 | 45 << 32, 0x7fff_ffff << 32, 0, 0, 0, 0, 0, 0]),
        Opcode::Interrupt => words(&[2]),
        _ => Vec::new(),
    };
    let names: &[u8] = match opcode {
        Opcode::Lookup | Opcode::Create | Opcode::Unlink => b"file\0",
        Opcode::Mkdir | Opcode::Rmdir => b"directory\0",
        Opcode::Mknod => b"node\0",
        Opcode::Symlink => b"link\0target\0",
        Opcode::Link => b"second\0",
        Opcode::Rename | Opcode::Rename2 => b"file\0renamed\0",
        Opcode::Setxattr => b"user.name\0value",
        Opcode::Getxattr | Opcode::Removexattr => b"user.name\0",
        Opcode::Tmpfile => b"/\0",
        Opcode::Write => b"12345",
        _ => b"",
    };
    [&arguments, names].concat()
}
