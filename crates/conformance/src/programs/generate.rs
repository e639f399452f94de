//! Generates programs. Each has a theme, which weights the calls and narrows names and numbers, so that a sequence of
//! eight specific steps occurs within some hundred programs.

use proptest::{
    collection::vec,
    prelude::*,
    sample::select,
    strategy::{BoxedStrategy, Union},
};

use super::{
    operation::{
        Access, Attribute, ByteLock, Caller, Content, Creation, LockKind, Name, OpenMode, Operation, Process, SLOTS,
        Step,
    },
    tree::{DIRECTORIES, FILES, GROUP, NAMES, PUBLIC, TOOL, USER},
};

/// What a program is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Theme {
    Locks,
    Flocks,
    Inodes,
    SetId,
    Names,
    Data,
    Rights,
    Races,
    Everything,
}

/// Programs take turns; a lock that is lost takes the most steps to see.
pub(super) const THEMES: [Theme; 10] = [
    Theme::Locks,
    Theme::Locks,
    Theme::Flocks,
    Theme::Inodes,
    Theme::SetId,
    Theme::Names,
    Theme::Data,
    Theme::Rights,
    Theme::Races,
    Theme::Everything,
];

/// Flags of inodes, by FS_IOC_SETFLAGS: extents (without which ext4 moves the file's blocks) with NODUMP, NOATIME,
/// APPEND, IMMUTABLE.
const INODE_FLAGS: [u32; 5] = [0x80000, 0x80040, 0x80080, 0x80020, 0x80010];

/// Requests for ioctl(2): only such as do no harm to the disk that they are made on, by root and by the number alone.
/// Flags of inodes as 64-bit and as 32-bit programs number them, their extended form, the size of a block, the unread
/// bytes, a terminal's.
const REQUESTS: [u32; 9] = [
    0x4008_6602,
    0x4004_6602,
    0x8008_6601,
    0x8004_6601,
    0x801c_581f,
    0x401c_5820,
    0x0000_0002,
    0x0000_541b,
    0x0000_5401,
];

type Choice<T> = BoxedStrategy<T>;
type Weighted = Vec<(u32, Choice<Operation>)>;

/// Programs of `theme`.
pub(super) fn programs(theme: Theme) -> Choice<Vec<Step>> {
    let operations = Union::new_weighted(operations(theme));
    let process = match theme {
        Theme::Locks | Theme::Flocks => prop_oneof![6 => Just(Process::First), 1 => Just(Process::Child)].boxed(),
        Theme::Data | Theme::Everything => prop_oneof![9 => Just(Process::First), 1 => Just(Process::Child)].boxed(),
        _ => Just(Process::First).boxed(),
    };
    let caller = match theme {
        // One does most, so that its steps follow each other, and the other sees what is left.
        Theme::Locks | Theme::Flocks => prop_oneof![4 => Just(Caller::User), 1 => Just(Caller::Root)].boxed(),
        _ => one_of(&[Caller::Root, Caller::User]),
    };
    let step = (caller, process, operations).prop_map(|(caller, process, operation)| match operation {
        // A fork is the first process's, and a race the user's.
        Operation::Fork => Step { caller, process: Process::First, operation },
        Operation::Race { .. } => Step { caller: Caller::User, process: Process::First, operation },
        operation => Step { caller, process, operation },
    });
    // A step of a race is many attempts.
    let len_max = if theme == Theme::Races { 4 } else { 48 };
    vec(step, 1..len_max).boxed()
}

fn operations(theme: Theme) -> Weighted {
    match theme {
        Theme::Locks => locks(),
        Theme::Flocks => flocks(),
        Theme::Inodes => [with(4, opens(select(&FILES[..]).boxed(), false)), inodes()].concat(),
        Theme::SetId => set_id(),
        Theme::Names => names(),
        Theme::Data => [with(4, opens(select(&[PUBLIC, 6, 8][..]).boxed(), true)), data(), unlinking()].concat(),
        Theme::Rights => [with(4, opens((0..NAMES.len() as u8).boxed(), true)), rights()].concat(),
        Theme::Races => vec![(1, (10u8..40).prop_map(|attempts| Operation::Race { attempts }).boxed())],
        Theme::Everything => {
            let opens = with(20, opens((0..NAMES.len() as u8).boxed(), true));
            [opens, locks(), flocks(), inodes(), set_id(), names(), data(), rights()].concat()
        }
    }
}

fn with(weight: u32, operation: Choice<Operation>) -> Weighted {
    vec![(weight, operation)]
}

fn slot() -> Choice<u8> {
    (0..SLOTS).boxed()
}

fn one_of<T: Clone + std::fmt::Debug + 'static>(values: &'static [T]) -> Choice<T> {
    select(values).boxed()
}

fn name() -> Choice<Name> {
    (0..NAMES.len() as u8).prop_map(Name).boxed()
}

fn permissions() -> Choice<u16> {
    one_of(&[0o644, 0o600, 0o666, 0o755, 0o4755, 0o2755, 0o6777, 0o2644, 0o1777, 0o000, 0o444, 0o640])
}

/// A user and a group for chown(2), at least one of them: without either, a FUSE client does nothing, while a file
/// system clears set-id bits.
fn owners() -> Choice<(Option<u32>, Option<u32>)> {
    let id = |other| select(vec![None, Some(0), Some(USER), Some(other)]);
    (id(1), id(GROUP)).prop_map(|(uid, gid)| (uid, if uid.is_none() { gid.or(Some(USER)) } else { gid })).boxed()
}

fn mode(creates: bool) -> Choice<OpenMode> {
    let access = one_of(&[Access::ReadWrite, Access::Read, Access::Write]);
    let creation = match creates {
        true => prop_oneof![2 => Just(Creation::No), 2 => Just(Creation::IfMissing), 1 => Just(Creation::Exclusive)],
        false => prop_oneof![1 => Just(Creation::No), 0 => Just(Creation::IfMissing), 0 => Just(Creation::Exclusive)],
    };
    (access, creation, prop::bool::weighted(0.2), prop::bool::weighted(0.1))
        .prop_map(|(access, creates, truncates, appends)| OpenMode { access, creates, truncates, appends })
        .boxed()
}

fn opens(names: Choice<u8>, creates: bool) -> Choice<Operation> {
    (slot(), names, mode(creates), permissions())
        .prop_map(|(slot, name, mode, permissions)| Operation::Open { slot, name: Name(name), mode, permissions })
        .boxed()
}

/// A slot of two, most often the first.
fn lock_slot() -> Choice<u8> {
    prop_oneof![3 => Just(0u8), 1 => Just(1u8)].boxed()
}

/// Opens the one file for reading and writing.
fn opens_to_lock() -> Choice<Operation> {
    let mode = OpenMode { access: Access::ReadWrite, creates: Creation::No, truncates: false, appends: false };
    lock_slot().prop_map(move |slot| Operation::Open { slot, name: Name(PUBLIC), mode, permissions: 0 }).boxed()
}

fn processes() -> Weighted {
    vec![
        (3, Just(Operation::Fork).boxed()),
        (3, Just(Operation::Exit).boxed()),
        (1, lock_slot().prop_map(|slot| Operation::Close { slot }).boxed()),
    ]
}

fn locks() -> Weighted {
    let kind = || one_of(&[LockKind::Write, LockKind::Read, LockKind::Unlock]);
    let lock =
        || {
            (kind(), 0u8..3, 0u8..3, prop::bool::weighted(0.15))
                .prop_map(|(kind, start, len, is_description)| ByteLock { kind, start, len, is_description })
        };
    let whole = ByteLock { kind: LockKind::Write, start: 0, len: 0, is_description: false };
    let own = vec![
        (6, opens_to_lock()),
        (6, lock_slot().prop_map(move |slot| Operation::Lock { slot, lock: whole }).boxed()),
        (2, (lock_slot(), lock()).prop_map(|(slot, lock)| Operation::Lock { slot, lock }).boxed()),
        (1, (lock_slot(), lock()).prop_map(|(slot, lock)| Operation::QueryLock { slot, lock }).boxed()),
    ];
    [own, processes()].concat()
}

fn flocks() -> Weighted {
    let kind = one_of(&[LockKind::Write, LockKind::Read, LockKind::Unlock]);
    let own = vec![
        (6, opens_to_lock()),
        (6, (lock_slot(), kind).prop_map(|(slot, kind)| Operation::Flock { slot, kind }).boxed()),
        (1, (0u8..2, 0u8..2).prop_map(|(from, to)| Operation::Duplicate { from, to }).boxed()),
    ];
    [own, processes()].concat()
}

fn inodes() -> Weighted {
    let ioctl = (slot(), one_of(&REQUESTS), one_of(&INODE_FLAGS));
    vec![
        (6, ioctl.prop_map(|(slot, number, value)| Operation::Ioctl { slot, number, value }).boxed()),
        (2, content_writes()),
        (1, (slot(), 0u16..9).prop_map(|(slot, len)| Operation::Truncate { slot, len }).boxed()),
        (
            1,
            (slot(), permissions()).prop_map(|(slot, permissions)| Operation::ChangeMode { slot, permissions }).boxed(),
        ),
        (1, name().prop_map(|name| Operation::Unlink { name }).boxed()),
        (1, (slot()).prop_map(|slot| Operation::Close { slot }).boxed()),
    ]
}

fn content_writes() -> Choice<Operation> {
    let letters = (b'a'..b'e', one_of(&[1u16, 3, 100, 5000])).prop_map(|(letter, len)| Content::Letters(letter, len));
    let offset = one_of(&[0u16, 1, 7, 4095, 4096, 9000]);
    prop_oneof![
        3 => (slot(), offset, letters.clone())
            .prop_map(|(slot, offset, content)| Operation::Write { slot, offset, content }),
        1 => (slot(), letters).prop_map(|(slot, content)| Operation::Append { slot, content }),
    ]
    .boxed()
}

/// Set-id bits and file capabilities on the one program.
fn set_id() -> Weighted {
    let tool = Name(TOOL);
    let attribute = Attribute::Capability;
    vec![
        (6, opens(Just(TOOL).boxed(), false)),
        (3, slot().prop_map(|slot| Operation::Write { slot, offset: 0, content: Content::Reporter }).boxed()),
        (2, content_writes()),
        (2, (slot(), 0u16..200).prop_map(|(slot, len)| Operation::Truncate { slot, len }).boxed()),
        (1, (0u16..200).prop_map(move |len| Operation::PathTruncate { name: tool, len }).boxed()),
        (
            1,
            (slot(), any::<bool>())
                .prop_map(|(slot, punches)| Operation::Allocate { slot, punches, offset: 0, len: 200 })
                .boxed(),
        ),
        (1, (slot(), slot()).prop_map(|(from, to)| Operation::Copy { from, to, len: 200 }).boxed()),
        (3, Just(Operation::Execute { name: tool }).boxed()),
        (3, permissions().prop_map(move |permissions| Operation::PathChangeMode { name: tool, permissions }).boxed()),
        (
            1,
            (slot(), permissions()).prop_map(|(slot, permissions)| Operation::ChangeMode { slot, permissions }).boxed(),
        ),
        (2, owners().prop_map(move |(uid, gid)| Operation::PathChangeOwner { name: tool, uid, gid }).boxed()),
        (1, (slot(), owners()).prop_map(|(slot, (uid, gid))| Operation::ChangeOwner { slot, uid, gid }).boxed()),
        (2, Just(Operation::PathStatus { name: tool }).boxed()),
        (1, slot().prop_map(|slot| Operation::Status { slot }).boxed()),
        (2, slot().prop_map(|slot| Operation::Close { slot }).boxed()),
        (1, Just(Operation::SetAttribute { name: tool, attribute, value: 0 }).boxed()),
        (1, Just(Operation::GetAttribute { name: tool, attribute }).boxed()),
    ]
}

fn names() -> Weighted {
    let pair = || (name(), name());
    let flags = one_of(&[0u32, 0, 0, 1, 2]);
    vec![
        (4, opens((0..NAMES.len() as u8).boxed(), true)),
        (5, (pair(), flags).prop_map(|((old, new), flags)| Operation::Rename { old, new, flags }).boxed()),
        (3, pair().prop_map(|(old, new)| Operation::Link { old, new }).boxed()),
        (1, pair().prop_map(|(target, name)| Operation::Symlink { target, name }).boxed()),
        (3, name().prop_map(|name| Operation::Unlink { name }).boxed()),
        (
            2,
            (name(), permissions())
                .prop_map(|(name, permissions)| Operation::MakeDirectory { name, permissions })
                .boxed(),
        ),
        (2, name().prop_map(|name| Operation::RemoveDirectory { name }).boxed()),
        (2, name().prop_map(|name| Operation::PathStatus { name }).boxed()),
        (1, DIRECTORIES.prop_map(|name| Operation::List { name: Name(name) }).boxed()),
        (1, slot().prop_map(|slot| Operation::Status { slot }).boxed()),
        (1, content_writes()),
    ]
}

fn unlinking() -> Weighted {
    let few = || select(&[PUBLIC, 6, 8][..]).prop_map(Name);
    vec![
        (1, few().prop_map(|name| Operation::Unlink { name }).boxed()),
        (1, (few(), few()).prop_map(|(old, new)| Operation::Rename { old, new, flags: 0 }).boxed()),
        (1, Just(Operation::Fork).boxed()),
        (1, Just(Operation::Exit).boxed()),
    ]
}

fn data() -> Weighted {
    let range = || (0u16..12_000, 1u16..9000);
    vec![
        (6, content_writes()),
        (3, (slot(), range()).prop_map(|(slot, (offset, len))| Operation::Read { slot, offset, len }).boxed()),
        (2, (slot(), 0u16..9000).prop_map(|(slot, len)| Operation::Truncate { slot, len }).boxed()),
        (1, (name(), 0u16..9000).prop_map(|(name, len)| Operation::PathTruncate { name, len }).boxed()),
        (
            1,
            (slot(), any::<bool>(), range())
                .prop_map(|(slot, punches, (offset, len))| Operation::Allocate { slot, punches, offset, len })
                .boxed(),
        ),
        (1, (slot(), slot(), 1u16..9000).prop_map(|(from, to, len)| Operation::Copy { from, to, len }).boxed()),
        (1, slot().prop_map(|slot| Operation::Sync { slot }).boxed()),
        (2, slot().prop_map(|slot| Operation::Status { slot }).boxed()),
        (1, (slot(), slot()).prop_map(|(from, to)| Operation::Duplicate { from, to }).boxed()),
        (1, slot().prop_map(|slot| Operation::Close { slot }).boxed()),
    ]
}

fn rights() -> Weighted {
    let attribute = || select(&Attribute::ALL[..]);
    vec![
        (
            3,
            (name(), permissions())
                .prop_map(|(name, permissions)| Operation::PathChangeMode { name, permissions })
                .boxed(),
        ),
        (3, (name(), owners()).prop_map(|(name, (uid, gid))| Operation::PathChangeOwner { name, uid, gid }).boxed()),
        (
            2,
            (name(), attribute(), 0u8..3)
                .prop_map(|(name, attribute, value)| Operation::SetAttribute { name, attribute, value })
                .boxed(),
        ),
        (1, (name(), attribute()).prop_map(|(name, attribute)| Operation::GetAttribute { name, attribute }).boxed()),
        (1, (name(), attribute()).prop_map(|(name, attribute)| Operation::RemoveAttribute { name, attribute }).boxed()),
        (2, (name(), 0u8..8).prop_map(|(name, mask)| Operation::MayAccess { name, mask }).boxed()),
        (1, (name(), any::<bool>()).prop_map(|(name, is_now)| Operation::PathTimes { name, is_now }).boxed()),
        (1, one_of(&[0o022u16, 0, 0o077]).prop_map(|mask| Operation::Mask { mask }).boxed()),
        (
            1,
            (name(), permissions())
                .prop_map(|(name, permissions)| Operation::MakeDirectory { name, permissions })
                .boxed(),
        ),
        (2, name().prop_map(|name| Operation::PathStatus { name }).boxed()),
        (1, name().prop_map(|name| Operation::Execute { name }).boxed()),
        (1, content_writes()),
    ]
}
