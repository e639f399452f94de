//! Replies of a well-behaved server for a small share: nodeids 2 to 9, whose types follow from their numbers.

use transom_wire::{
    Opcode,
    attr::{Attr, AttrOut, EntryOut},
    dirent::{Dirent, DirentPlus},
    operation::{Changed, Effect, MadeType, RestKind, Shape},
    ops::{
        copy_file_range::{CopyFileRangeIn, CopyFileRangeOut},
        create::CreateOut,
        init::{InitFlags, InitOut, KERNEL_MINOR_VERSION, KERNEL_VERSION},
        lk::LkIn,
        open::OpenOut,
        read::ReadIn,
        statx::{Statx, StatxOut},
        write::WriteOut,
    },
    own_changes::Trailer,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::super::tape::Tape;

const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const LINK: u32 = 0o120_777;
const FIFO: u32 = 0o010_600;

/// By nodeid: the root, two directories, three files, two links, a fifo.
const MODES: [u32; 10] = [0, DIRECTORY, DIRECTORY, DIRECTORY, FILE, FILE, FILE, LINK, LINK, FIFO];
const TARGETS: [&[u8]; 6] = [b"a", b"../b", b"/c/d", b"e/../f", b".", b"link"];
const NAMES: [&[u8]; 6] = [b"a", b"b", b".", b"..", b"link", b"with-a-longer-name"];

/// A request.
pub(super) struct Asked<'a> {
    pub(super) opcode: Opcode,
    pub(super) node: u64,
    /// Arguments, and names.
    pub(super) arg: &'a [u8],
    pub(super) data_len: usize,
    /// Room behind the reply's header.
    pub(super) room: usize,
}

/// A good answer, which the next byte chooses.
pub(super) fn body(asked: &Asked<'_>, tape: &Tape) -> Vec<u8> {
    let mut body = plain_body(asked, tape);
    if let Shape::Fixed(len) = asked.opcode.row().reply
        && asked.room > len
    {
        body.truncate(len);
        body.extend(trailer(asked.room - len, tape));
    }
    body
}

/// A trailer, good or not, in at most `room` bytes.
fn trailer(room: usize, tape: &Tape) -> Vec<u8> {
    let choice = tape.byte();
    let mut trailer = Trailer::default();
    for _ in 0..choice & 7 {
        let [slot, previous, new] = [(); 3].map(|()| tape.byte());
        trailer.push(slot.into(), previous.into(), new.into());
    }
    let mut bytes = trailer.as_bytes().to_vec();
    if choice & 8 != 0 && !bytes.is_empty() {
        let at = usize::from(tape.byte()) % bytes.len();
        bytes[at] = tape.byte();
    }
    let len = if choice & 16 == 0 { bytes.len() } else { tape.byte().into() };
    bytes.resize(len.min(room), choice);
    bytes
}

/// A good answer without a trailer.
fn plain_body(asked: &Asked<'_>, tape: &Tape) -> Vec<u8> {
    let choice = if asked.room == 0 { 0 } else { tape.byte() };
    let text = |len: usize| vec![b'x'; len.min(asked.room)];
    let row = asked.opcode.row();
    match row.effect {
        Effect::LooksUp => return bytes(&entry(choice, &[2, 3, 4, 5, 6, 7, 8, 9])),
        Effect::Makes(MadeType::Directory) => return bytes(&entry(choice, &[2, 3])),
        Effect::Makes(MadeType::Symlink) => return bytes(&entry(choice, &[7, 8])),
        Effect::Makes(MadeType::ByMode(_) | MadeType::SameAs(_)) => return bytes(&entry(choice, &[4, 5, 6, 9])),
        Effect::MakesAndOpens | Effect::OpensNameless => {
            return bytes(&CreateOut { entry: entry(choice, &[4, 5, 6]), open: opened(choice) });
        }
        Effect::Opens => return bytes(&opened(choice)),
        Effect::Lists => return list(asked, choice),
        Effect::None
        | Effect::Removes
        | Effect::Renames
        | Effect::Closes
        | Effect::Flushes
        | Effect::Locks
        | Effect::Forgets
        | Effect::Interrupts => {}
    }
    if let Some(good) = of_arguments(asked, choice) {
        return good;
    }
    match row.reply {
        Shape::None | Shape::Fixed(0) => Vec::new(),
        // With numbers: whatever they are, they are possible.
        Shape::Fixed(_) => numbers(asked.room, choice),
        Shape::UpTo { head_len: 0 } if choice < 0xf0 => text(choice.into()),
        Shape::UpTo { head_len: 0 } => text(asked.room),
        Shape::UpTo { .. } => numbers(asked.room, choice),
        // Without room for a value, the room is that for its length.
        Shape::UpToOr { fixed_len } if asked.room == fixed_len => numbers(fixed_len, choice),
        Shape::UpToOr { .. } => text(choice.into()),
        Shape::Text { .. } => TARGETS[usize::from(choice) % TARGETS.len()].to_vec(),
    }
}

/// Answers that have to fit their request, or an inode.
fn of_arguments(asked: &Asked<'_>, choice: u8) -> Option<Vec<u8>> {
    let row = asked.opcode.row();
    if asked.opcode == Opcode::Init {
        return Some(bytes(&init(choice)));
    }
    if asked.opcode == Opcode::Readdir {
        return Some(list(asked, choice));
    }
    if row.reply_attr_at.is_some() {
        let attr = attr(asked.node, choice);
        return Some(bytes(&AttrOut { attr_valid: valid(choice).into(), attr, ..AttrOut::default() }));
    }
    if asked.opcode == Opcode::Statx {
        let attr = attr(asked.node, choice);
        let stat = Statx { mode: (attr.mode.get() as u16).into(), size: attr.size, ..Statx::default() };
        return Some(bytes(&StatxOut { stat, ..StatxOut::default() }));
    }
    if asked.opcode == Opcode::Getlk {
        return LkIn::read_from_prefix(asked.arg).ok().map(|(arg, _)| bytes(&arg.lk));
    }
    if row.changes.iter().any(|change| change.what == Changed::ArgumentData) {
        // A copy of all that was asked for, in what either form of the answer has.
        return Some(bytes(&CopyFileRangeOut { bytes_copied: copied(asked).into() }));
    }
    if row.rest == RestKind::FileData {
        let size = if choice < 0xf0 { asked.data_len } else { asked.data_len.min(usize::from(choice - 0xf0)) };
        return Some(bytes(&WriteOut::new(size as u32)));
    }
    None
}

fn numbers(len: usize, first: u8) -> Vec<u8> {
    let mut body = vec![0; len];
    if let Some(byte) = body.first_mut() {
        *byte = first;
    }
    body
}

fn bytes<T: IntoBytes + Immutable>(value: &T) -> Vec<u8> {
    value.as_bytes().to_vec()
}

fn init(choice: u8) -> InitOut {
    let left_out = match choice & 15 {
        0 => InitFlags::empty(),
        1 => InitFlags::DO_READDIRPLUS,
        2 => InitFlags::BIG_WRITES | InitFlags::MAX_PAGES,
        3 => InitFlags::WRITEBACK_CACHE,
        4 => InitFlags::POSIX_LOCKS | InitFlags::FLOCK_LOCKS,
        5 => InitFlags::INIT_EXT,
        6 => InitFlags::AUTO_INVAL_DATA,
        _ => InitFlags::all(),
    };
    let flags = InitFlags::all().difference(left_out).bits();
    let mut out = InitOut {
        major: KERNEL_VERSION.into(),
        minor: KERNEL_MINOR_VERSION.into(),
        max_readahead: (1 << 17).into(),
        flags: (flags as u32).into(),
        flags2: ((flags >> 32) as u32).into(),
        max_background: 8.into(),
        max_write: (1 << 14).into(),
        time_gran: 1.into(),
        max_pages: u16::from(choice >> 4).into(),
        ..InitOut::default()
    };
    if choice & 16 != 0 {
        out.set_magic();
    }
    out
}

/// One of `nodes`, or no inode.
fn entry(choice: u8, nodes: &[u64]) -> EntryOut {
    let nodeid = if choice < 0xf0 { nodes[usize::from(choice) % nodes.len()] } else { 0 };
    let valid = valid(choice).into();
    EntryOut {
        nodeid: nodeid.into(),
        entry_valid: valid,
        attr_valid: valid,
        attr: attr(nodeid, choice),
        ..EntryOut::default()
    }
}

/// Seconds.
fn valid(choice: u8) -> u64 {
    if choice & 0x40 == 0 { 1 } else { 0 }
}

fn attr(node: u64, choice: u8) -> Attr {
    let mode = usize::try_from(node).ok().and_then(|node| MODES.get(node)).copied().unwrap_or(FILE);
    let size = if choice & 0x80 == 0 { u64::from(choice) } else { u64::from(choice) << 12 };
    Attr { ino: node.into(), size: size.into(), mode: mode.into(), nlink: 1.into(), ..Attr::default() }
}

fn opened(choice: u8) -> OpenOut {
    OpenOut { fh: u64::from(choice).into(), open_flags: u32::from(choice >> 2).into(), ..OpenOut::default() }
}

/// Up to three entries, and none behind a few replies.
fn list(asked: &Asked<'_>, choice: u8) -> Vec<u8> {
    let Ok((arg, _)) = ReadIn::read_from_prefix(asked.arg) else { return Vec::new() };
    let mut body = Vec::new();
    for at in 0..u64::from(choice & 3) {
        let off = arg.offset.get().saturating_add(1);
        if off > 6 {
            break;
        }
        let name = NAMES[(usize::from(choice >> 2) + at as usize) % NAMES.len()];
        let mode = FILE >> 12;
        let dirent =
            Dirent { ino: 4.into(), off: (off + at).into(), namelen: (name.len() as u32).into(), type_: mode.into() };
        if asked.opcode == Opcode::Readdirplus {
            let entry = entry(choice.wrapping_add(at as u8), &[2, 3, 4, 5, 6, 7, 8, 9]);
            body.extend_from_slice(DirentPlus { entry, dirent }.as_bytes());
        } else {
            body.extend_from_slice(dirent.as_bytes());
        }
        body.extend_from_slice(name);
        body.resize(body.len().next_multiple_of(8), 0);
    }
    body.truncate(asked.room);
    body
}

fn copied(asked: &Asked<'_>) -> u64 {
    CopyFileRangeIn::read_from_prefix(asked.arg).map_or(0, |(arg, _)| arg.len.get())
}
