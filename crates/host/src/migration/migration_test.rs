//! The bytes are written by hand, from the definitions of virtiofsd 1.14 (`serialized.rs`) and of postcard's format.

use std::borrow::Cow;

use proptest::prelude::*;
use transom_wire::ops::init::InitFlags;

use super::*;

const LIMITS: Limits = Limits { inodes: 1000, handles: 1000 };

/// The root, `dir`, `dir/file` of inode 300, an inode by its handle, a lost one; one open file.
const V2: &[u8] = &[
    1, // PassthroughFs::V2
    5, // inodes
    1, 2, 0, 0, // id 1, refcount 2, RootNode, no handle
    2, 7, 1, 1, 3, b'd', b'i', b'r', 0, // id 2, refcount 7, Path { parent: 1, filename: "dir" }, no handle
    0xac, 0x02, 1, 3, 8, b'd', b'i', b'r', b'/', b'f', b'i', b'l',
    b'e', // id 300, refcount 1, FullPath "dir/file"
    1, 9, 0x82, 0x01, 2, 0xaa, 0xbb, // Some(handle of mount 9, type 65, bytes)
    4, 1, 4, 9, 1, 1, 0xcc, 0, // id 4, refcount 1, FileHandle of mount 9, type -1, one byte, no handle
    5, 1, 2, 0, // id 5, Invalid
    0xad, 0x02, // next_inode 301
    1, 3, 0xac, 0x02, 0, 0x82, 0x80, 0x04, // handle 3 of inode 300, OpenInode, flags 0x8001
    4,    // next_handle
    1, 0, 1, 0, // writeback, announce_submounts, posix_acl, sup_group_extension
    1, 9, 1, b'.', // mount 9 at "."
];

fn v2() -> State<'static> {
    let handle = |type_, bytes: &'static [u8]| FileHandle { mount: 9, type_, bytes: Cow::Borrowed(bytes) };
    let inode = |id, refcount, location| Inode { id, refcount, location, handle: None };
    State {
        inodes: vec![
            inode(1, 2, Location::Root),
            inode(2, 7, Location::Child { parent: 1, name: Cow::Borrowed(b"dir") }),
            Inode {
                handle: Some(handle(65, &[0xaa, 0xbb])),
                ..inode(300, 1, Location::Path(Cow::Borrowed(b"dir/file")))
            },
            inode(4, 1, Location::Handle(handle(-1, &[0xcc]))),
            inode(5, 1, Location::Lost),
        ],
        next_inode: 301,
        handles: vec![Handle { id: 3, inode: 300, flags: 0x8001 }],
        next_handle: 4,
        negotiated: Negotiated { writeback: true, posix_acl: true, ..Negotiated::default() },
        mounts: vec![(9, Cow::Borrowed("."))],
        flags: None,
        carried: vec![],
        locks: vec![],
        locked_files: vec![],
        waiting: vec![],
    }
}

#[test]
fn both_versions_are_read_as_they_are_defined() {
    assert_eq!(decode(V2, LIMITS).unwrap(), v2());
    let v1 = [&[0], &V2[1..V2.len() - 4]].concat();
    assert_eq!(decode(&v1, LIMITS).unwrap(), State { mounts: vec![], ..v2() });
}

#[test]
fn what_is_written_is_the_second_version_to_the_byte_and_our_records_follow_it() {
    let mut state = v2();
    assert_eq!(encode(&state), V2);
    state.flags = Some(InitFlags::from_bits_retain(0x181));
    state.inodes[2].location = Location::Path(Cow::Borrowed(b"\xff"));
    let lost = [&V2[..15], &[0xac, 0x02, 1, 2], &V2[28..]].concat();
    let records = [b"transomd".as_slice(), &[1, 2, 0x81, 0x03], &[2, 5, 1, 0xac, 0x02, 1, 0xff]].concat();
    let written = encode(&state);
    assert_eq!(written, [lost, records].concat());
    assert_eq!(decode(&written, LIMITS).unwrap(), state);
}

#[test]
fn descriptors_and_locks_are_described_in_records_of_their_own() {
    let locks = LockHolder {
        inode: 300,
        owner: 0x1122,
        pid: 5,
        has_several_pids: true,
        has_locked: true,
        files: vec![3],
        ranges: vec![LockedRange { start: 0, end: 9, is_exclusive: false }],
    };
    let carried = vec![Carried::OpenFile(3), Carried::Inode(300), Carried::OpenDirectory(4)];
    let locked_files = vec![LockedFile { inode: 300, len_bytes: 5, changed_at: (200, 7) }];
    let waiting = vec![WaitingRequest { queue: 1, head: 300 }, WaitingRequest { queue: 2, head: 0 }];
    let state = State { carried, locks: vec![locks], locked_files, waiting, ..v2() };
    let records = [
        b"transomd".as_slice(),
        &[3, 8, 3, 0, 3, 1, 0xac, 0x02, 2, 4],
        &[4, 14, 1, 0xac, 0x02, 0xa2, 0x22, 5, 1, 1, 1, 3, 1, 0, 9, 0],
        &[5, 7, 1, 0xac, 0x02, 5, 0xc8, 0x01, 7],
        &[6, 6, 2, 1, 0xac, 0x02, 2, 0],
    ];
    let written = encode(&state);
    assert_eq!(written, [V2, &records.concat()].concat());
    assert_eq!(decode(&written, LIMITS).unwrap(), state);
}

#[test]
fn a_state_that_ends_anywhere_else_is_refused_as_truncated() {
    for len in 0..V2.len() {
        let error = decode(&V2[..len], LIMITS).unwrap_err();
        assert!(matches!(error, Error::Truncated { .. }), "{len} bytes: {error}");
    }
}

#[test]
fn hostile_counts_and_unknown_things_are_refused_with_the_reason() {
    let cases: [(&[u8], &str); 17] = [
        (&[2], "version 3"),
        (&[0xff; 10], "more than 64 bits"),
        (&[1, 0xe9, 0x07], "1001 inodes, and the limit is 1001"),
        (&[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1], "and the limit is 1001"),
        (&[1, 1, 1, 2, 9, 0, 0, 0, 0], "unknown kind of location"),
        (&[1, 1, 1, 2, 0, 2, 0, 0, 0], "truth value"),
        (&[1, 1, 2, 2, 3, 0xff, 0xff, 0x7f, 0], "bytes in a path, and the limit is 4096"),
        (&[1, 1, 2, 2, 3, 1, 0xff, 0, 0], "not UTF-8"),
        (&[1, 1, 2, 2, 4, 0, 0, 0x81, 1, 0], "bytes in a file handle, and the limit is 128"),
        (&[1, 0, 2, 0xe9, 0x07], "1001 open files"),
        (&[1, 0, 2, 0, 1, 0, 0, 0, 0, 0xa1, 0x8d, 0x06], "100001 mounts"),
        (&[1, 0, 2, 0, 1, 0, 0, 0, 0, 0, 7], "1 bytes follow"),
        (b"\x01\0\x02\0\x01\0\0\0\0\0transomd\x63\0", "record 99"),
        (b"\x01\0\x02\0\x01\0\0\0\0\0transomd\x01\x05\x01", "ends after"),
        (b"\x01\0\x02\0\x01\0\0\0\0\0transomd\x06\x05\x01\x00\x80\x80\x04", "waiting request of no ring"),
        (b"\x01\0\x02\0\x01\0\0\0\0\0transomd\x01\x01\x01\x01\x01\x01", "a record twice"),
        (b"\x01\0\x02\0\x01\0\0\0\0\0transomd\x01\x02\x01\x01", "1 bytes follow"),
    ];
    for (bytes, reason) in cases {
        // Enough for any count that is not refused.
        let error = decode(bytes, LIMITS).unwrap_err().to_string();
        let is_it = error.contains(reason) || (reason.contains("1001 inodes") && error.contains("ends after"));
        assert!(is_it, "{bytes:x?}: {error}, expected {reason}");
    }
}

#[test]
fn contradictions_are_refused() {
    let inode = |id, location| Inode { id, refcount: 1, location, handle: None };
    let file = || Location::Path(Cow::Borrowed(b"file".as_slice()));
    let state = |inodes, handles| State { inodes, handles, next_inode: 10, next_handle: 10, ..State::default() };
    let root = || inode(1, Location::Root);
    let open = |id, of| Handle { id, inode: of, flags: 0 };
    for (state, reason) in [
        (state(vec![root(), root()], vec![]), "number of its own"),
        (state(vec![root(), inode(0, file())], vec![]), "number of its own"),
        (state(vec![inode(2, file())], vec![]), "without a root"),
        (state(vec![inode(2, Location::Root)], vec![]), "root at another place"),
        (state(vec![inode(1, file())], vec![]), "something else at its place"),
        (state(vec![root(), inode(10, file())], vec![]), "not given out yet"),
        (state(vec![root()], vec![open(2, 1), open(2, 1)]), "two open files"),
        (state(vec![root()], vec![open(2, 3)]), "unknown inode"),
        (state(vec![root()], vec![open(10, 1)]), "not given out yet"),
    ] {
        let error = decode(&encode(&state), LIMITS).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}, expected {reason}");
    }
}

fn a_handle() -> impl Strategy<Value = FileHandle<'static>> {
    let parts = (any::<u64>(), any::<i32>(), proptest::collection::vec(any::<u8>(), 0..=128));
    parts.prop_map(|(mount, type_, bytes)| FileHandle { mount, type_, bytes: Cow::Owned(bytes) })
}

fn a_location() -> impl Strategy<Value = Location<'static>> {
    prop_oneof![
        Just(Location::Lost),
        proptest::collection::vec(any::<u8>(), 0..50).prop_map(|path| Location::Path(Cow::Owned(path))),
        a_handle().prop_map(Location::Handle),
    ]
}

fn a_descriptor() -> impl Strategy<Value = Carried> {
    let kinds = [Carried::OpenFile, Carried::Inode, Carried::OpenDirectory];
    (0..kinds.len(), any::<u64>()).prop_map(move |(kind, id)| kinds[kind](id))
}

prop_compose! {
    fn a_holder()(
        (inode, owner, pid) in any::<(u64, u64, u32)>(),
        (has_several_pids, has_locked) in any::<(bool, bool)>(),
        files in proptest::collection::vec(any::<u64>(), 0..4),
        ranges in proptest::collection::vec(any::<(u64, u64, bool)>(), 0..4),
    ) -> LockHolder {
        let ranges = ranges.into_iter().map(|(start, end, is_exclusive)| LockedRange { start, end, is_exclusive });
        LockHolder { inode, owner, pid, has_several_pids, has_locked, files, ranges: ranges.collect() }
    }
}

prop_compose! {
    fn a_state()(
        inodes in proptest::collection::btree_map(2..u64::MAX, (
            any::<u64>(), a_location(), proptest::option::of(a_handle()),
        ), 0..20),
        handles in proptest::collection::btree_map(2..u64::MAX, (any::<prop::sample::Index>(), any::<i32>()), 0..20),
        negotiated in any::<[bool; 4]>(),
        mounts in proptest::collection::vec((any::<u64>(), ".{0,10}"), 0..4),
        flags in any::<u64>(),
        carried in proptest::collection::vec(a_descriptor(), 0..5),
        locks in proptest::collection::vec(a_holder(), 0..5),
        locked_files in proptest::collection::vec(any::<(u64, u64, (u64, u32))>(), 0..5),
        waiting in proptest::collection::vec(any::<(u16, u16)>(), 0..5),
    ) -> State<'static> {
        let root = Inode { id: 1, refcount: 2, location: Location::Root, handle: None };
        let inode = |(id, (refcount, location, handle))| Inode { id, refcount, location, handle };
        let others = inodes.into_iter().map(inode);
        let inodes: Vec<_> = std::iter::once(root).chain(others).collect();
        let of = |index: prop::sample::Index| index.get(&inodes).id;
        let handles = handles.into_iter().map(|(id, (at, flags))| Handle { id, inode: of(at), flags }).collect();
        let [writeback, announce_submounts, posix_acl, sup_group_extension] = negotiated;
        State {
            handles,
            inodes,
            next_inode: u64::MAX,
            next_handle: u64::MAX,
            negotiated: Negotiated { writeback, announce_submounts, posix_acl, sup_group_extension },
            mounts: mounts.into_iter().map(|(mount, path)| (mount, Cow::Owned(path))).collect(),
            flags: Some(InitFlags::from_bits_retain(flags)),
            carried,
            locks,
            locked_files: locked_files
                .into_iter()
                .map(|(inode, len_bytes, changed_at)| LockedFile { inode, len_bytes, changed_at })
                .collect(),
            waiting: waiting.into_iter().map(|(queue, head)| WaitingRequest { queue, head }).collect(),
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(state in a_state()) {
        let bytes = encode(&state);
        prop_assert_eq!(decode(&bytes, LIMITS).unwrap(), state);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in any::<usize>()) {
        let _ = decode(&bytes, LIMITS);
        let mut changed = V2.to_vec();
        let at = at % changed.len();
        changed.splice(at..at + 1, bytes.into_iter().take(3));
        let _ = decode(&changed, LIMITS);
    }
}
