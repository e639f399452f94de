//! SETUPMAPPING and REMOVEMAPPING as no guest should send them.

use std::{fs, os::unix::net::UnixListener, thread};

use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    io::Errno,
};
use transom_frontend::fuse::{Answer, Session, check_reply};
use transom_wire::{Opcode, ops::setupmapping::SetupmappingIn};
use zerocopy::IntoBytes;

use crate::host::{QUEUES, RANGE, RANGES, Share, contents, lookup};

const WINDOW: u64 = RANGES * RANGE;
const NO_HANDLE: u64 = u64::MAX;

fn setup(fh: u64, foffset: u64, len: u64, flags: u64, moffset: u64) -> SetupmappingIn {
    SetupmappingIn {
        fh: fh.into(),
        foffset: foffset.into(),
        len: len.into(),
        flags: flags.into(),
        moffset: moffset.into(),
    }
}

/// By success or by an error number: anything else breaks the protocol.
fn is_answered(answer: Answer<()>) {
    if let Err(error) = answer {
        assert!(error.errno().is_some(), "{error}");
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

#[test]
fn offsets_and_lengths_that_are_no_ranges_of_the_window_are_refused() {
    for share in Share::each() {
        let path = share.file("file", 4 * RANGE, 1);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        let wild = [
            (1, RANGE, 0),
            (0, RANGE - 1, 0),
            (0, RANGE, 4096),
            (4096, RANGE, 4096),
            (0, 0, 0),
            (0, 4096, 0),
            (0, RANGE, WINDOW),
            (0, 2 * RANGE, WINDOW - RANGE),
            (0, WINDOW + RANGE, 0),
            (0, u64::MAX, 0),
            (0, u64::MAX - RANGE + 1, 0),
            (0, u64::MAX - RANGE + 1, RANGE),
            (u64::MAX, RANGE, 0),
            (u64::MAX - RANGE + 1, RANGE, 0),
            (1 << 63, RANGE, 0),
            ((1 << 63) - RANGE, 2 * RANGE, 0),
            (0, RANGE, u64::MAX - RANGE + 1),
            (0, 2 * RANGE, u64::MAX - RANGE + 1),
        ];
        for (foffset, len, moffset) in wild {
            let answer = session.setupmapping_with(nodeid, &setup(NO_HANDLE, foffset, len, 1, moffset));
            assert_eq!(answer.unwrap_err().errno(), Some(Errno::INVAL), "{foffset:#x} {len:#x} {moffset:#x}");
        }
        for flags in [0, 4, 7, 1 << 63, u64::MAX] {
            let answer = session.setupmapping_with(nodeid, &setup(NO_HANDLE, 0, RANGE, flags, 0));
            assert_eq!(answer.unwrap_err().errno(), Some(Errno::INVAL), "flags {flags:#x}");
        }
        assert_eq!(front_end.expect_window().counts().maps, 0);
        // A range far past the end of the file, and one of which only the beginning is in the file.
        for (foffset, len) in [(1 << 40, RANGE), (3 * RANGE, 2 * RANGE)] {
            if let Err(error) = session.setupmapping(nodeid, foffset, len, 0, true) {
                assert_eq!(error.errno(), Some(Errno::OPNOTSUPP), "{foffset:#x} {len:#x}");
            }
            share.agrees(&front_end);
        }
        session.removemapping(nodeid, &[(0, WINDOW)]).unwrap();
        assert_eq!(share.ranges(), 0);
        for range in [
            (0, 0),
            (0, 4096),
            (4096, RANGE),
            (WINDOW, RANGE),
            (0, u64::MAX),
            (u64::MAX, 1),
            (WINDOW - RANGE, 2 * RANGE),
        ] {
            let answer = session.removemapping(nodeid, &[range]);
            assert_eq!(answer.unwrap_err().errno(), Some(Errno::INVAL), "{range:x?}");
        }
        share.agrees(&front_end);
        drop((front_end, session));
        share.is_healthy();
    }
}

#[test]
fn only_regular_files_are_mapped_and_only_by_their_own_handles() {
    for share in Share::each() {
        let path = share.file("file", RANGE, 1);
        let other = share.file("other", RANGE, 2);
        fs::create_dir(share.path().join("directory")).unwrap();
        std::os::unix::fs::symlink("file", share.path().join("symlink")).unwrap();
        mknodat(CWD, share.path().join("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _listener = UnixListener::bind(share.path().join("socket")).unwrap();
        let (front_end, mut session) = share.session();
        let (nodeid, other) = (lookup(&mut session, &path), lookup(&mut session, &other));
        for name in ["directory", "symlink", "fifo", "socket"] {
            let nodeid = session.lookup(1, name.as_bytes()).unwrap().nodeid.get();
            for writes in [false, true] {
                let error = session.setupmapping(nodeid, 0, RANGE, 0, writes).unwrap_err();
                assert!(error.errno().is_some_and(|errno| errno != Errno::AGAIN), "{name}: {error}");
            }
        }
        for nodeid in [0, 1, nodeid + 1000, nodeid ^ 1 << 50, u64::MAX] {
            let answer = session.setupmapping(nodeid, 0, RANGE, 0, false);
            assert!(answer.is_err_and(|error| error.errno().is_some()), "nodeid {nodeid:#x}");
        }
        let reads = session.open(nodeid, libc::O_RDONLY as u32).unwrap();
        let writes = session.open(nodeid, libc::O_RDWR as u32).unwrap();
        let directory = session.opendir(1).unwrap();
        let mut map = |nodeid, fh, flags| {
            session.setupmapping_with(nodeid, &setup(fh, 0, RANGE, flags, 0)).map_err(|error| error.errno().unwrap())
        };
        assert_eq!(map(other, reads, 2), Err(Errno::BADF));
        assert_eq!(map(nodeid, reads, 3), Err(Errno::ACCESS));
        for fh in [directory, reads + 1000, 1 << 40, u64::MAX - 1] {
            assert_eq!(map(nodeid, fh, 2), Err(Errno::BADF), "handle {fh:#x}");
        }
        assert_eq!(front_end.expect_window().counts().maps, 0);
        map(nodeid, reads, 2).unwrap();
        map(nodeid, writes, 3).unwrap();
        share.agrees(&front_end);
        // A closed handle is invalid; an unlinked file can still be mapped.
        session.release(nodeid, reads).unwrap();
        fs::remove_file(&path).unwrap();
        let mut map = |fh, at| {
            session.setupmapping_with(nodeid, &setup(fh, 0, RANGE, 3, at)).map_err(|error| error.errno().unwrap())
        };
        assert_eq!(map(reads, RANGE), Err(Errno::BADF));
        map(writes, RANGE).unwrap();
        map(NO_HANDLE, 2 * RANGE).unwrap();
        assert_eq!(front_end.expect_window().read(2 * RANGE, 9).unwrap(), contents(9, 1));
        share.agrees(&front_end);
        // 3. What another session had is nothing to this one.
        session.destroy().unwrap();
        assert!(session.setupmapping(nodeid, 0, RANGE, 0, false).unwrap_err().errno().is_some());
        session.init(transom_wire::ops::init::InitFlags::all()).unwrap();
        assert!(session.setupmapping(nodeid, 0, RANGE, 0, false).unwrap_err().errno().is_some());
        assert!(session.setupmapping_with(1, &setup(writes, 0, RANGE, 3, 0)).unwrap_err().errno().is_some());
        assert_eq!(share.ranges(), 0);
        share.agrees(&front_end);
    }
}

#[test]
fn removals_of_more_than_was_sent_are_refused_whole() {
    for share in Share::each() {
        let path = share.file("file", RANGE, 1);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        session.setupmapping(nodeid, 0, RANGE, 0, true).unwrap();
        session.setupmapping(nodeid, 0, RANGE, RANGE, true).unwrap();
        let ranges = [(0, RANGE), (RANGE, RANGE)];
        for count in [3, 256, 257, 1 << 16, 1 << 28, u32::MAX] {
            assert!(session.removemapping_of(nodeid, count, &ranges).unwrap_err().errno().is_some(), "count {count}");
        }
        // One of them is wild: none is removed.
        let wild = [(0, RANGE), (WINDOW, RANGE)];
        assert_eq!(session.removemapping(nodeid, &wild).unwrap_err().errno(), Some(Errno::INVAL));
        assert_eq!(share.ranges(), 2);
        session.removemapping(nodeid, &ranges[..1]).unwrap();
        assert_eq!((share.ranges(), front_end.expect_window().counts().unmaps), (1, 1));
        // Whoever asks: a mapping belongs to the window.
        session.removemapping(1, &[(RANGE, RANGE)]).unwrap();
        share.agrees(&front_end);
        drop((front_end, session));
        share.is_healthy();
    }
}

#[test]
fn a_range_named_many_times_is_removed_once() {
    for share in Share::each() {
        let path = share.file("file", RANGE, 1);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        for range in 0..3 {
            session.setupmapping(nodeid, 0, RANGE, range * RANGE, true).unwrap();
        }
        let ranges: Vec<_> = (0..250).map(|index| (index % 2 * RANGE, 2 * RANGE)).collect();
        session.removemapping(nodeid, &ranges).unwrap();
        assert_eq!((share.ranges(), front_end.expect_window().counts().unmaps), (0, 3));
        share.agrees(&front_end);
    }
}

#[test]
fn any_arguments_at_all_leave_both_maps_equal() {
    for share in Share::each() {
        let path = share.file("file", 4 * RANGE, 1);
        let (front_end, mut session) = share.session();
        let nodeid = lookup(&mut session, &path);
        let mut random = Random(share.kind as u64);
        for _ in 0..1500 {
            let mut any = |right: u64| match random.below(6) {
                0 => random.next(),
                1 => random.next() >> random.below(64),
                2 => right.wrapping_add(random.below(3)).wrapping_sub(1),
                _ => right,
            };
            let arg = setup(any(NO_HANDLE), any(RANGE), any(RANGE), any(3), any(3 * RANGE));
            let range = (any(3 * RANGE), any(RANGE));
            is_answered(session.setupmapping_with(nodeid, &arg));
            is_answered(session.removemapping(nodeid, &[range]));
        }
        for _ in 0..500 {
            let body: Vec<u8> = (0..random.below(80)).map(|_| random.next() as u8).collect();
            let opcode = if random.below(2) == 0 { Opcode::Setupmapping } else { Opcode::Removemapping };
            is_answered(session.request(opcode as u32, nodeid, &[&body], 0).map(drop));
        }
        share.agrees(&front_end);
        drop((front_end, session));
        share.is_healthy();
    }
}

/// As many as the rings hold, on both queues at once, all about the same few ranges.
#[test]
fn thousands_at_once_from_two_queues_leave_both_maps_equal() {
    for share in Share::each() {
        let paths = [1, 2].map(|seed| share.file(&format!("file{seed}"), 4 * RANGE, seed));
        let (front_end, mut first) = share.session();
        let nodeids = [lookup(&mut first, &paths[0]), lookup(&mut first, &paths[1])];
        let second = Session::new(front_end.start_queue(QUEUES[1]).unwrap());
        thread::scope(|scope| {
            for (mut session, seed) in [(first, 5), (second, 6)] {
                scope.spawn(move || {
                    let mut random = Random(seed);
                    for _ in 0..6 {
                        let mut tokens = Vec::new();
                        loop {
                            let (moffset, nodeid) = (random.below(RANGES) * RANGE, nodeids[random.below(2) as usize]);
                            let (opcode, body) = match random.below(3) {
                                0 => (
                                    Opcode::Removemapping,
                                    [&1u32.to_le_bytes()[..], &moffset.to_le_bytes(), &RANGE.to_le_bytes()].concat(),
                                ),
                                _ => {
                                    let arg =
                                        setup(NO_HANDLE, random.below(4) * RANGE, RANGE, 1 + random.below(3), moffset);
                                    (Opcode::Setupmapping, arg.as_bytes().to_vec())
                                }
                            };
                            let header = session.header(opcode as u32, nodeid, body.len());
                            match session.exchange.submit(&[&[header.as_bytes(), &body].concat()], &[16]) {
                                Some(token) => tokens.push((token, header.unique.get())),
                                None => break,
                            }
                        }
                        assert_eq!(tokens.len(), 256);
                        session.exchange.notify().unwrap();
                        for (token, unique) in tokens {
                            check_reply(&session.exchange.wait(token).unwrap(), unique).unwrap();
                        }
                    }
                });
            }
        });
        share.agrees(&front_end);
        // What is mapped shows the bytes of that place in one of the files.
        for mapping in front_end.expect_window().mappings() {
            let shown = front_end.expect_window().read(mapping.offset, 4096).unwrap();
            let is_of = |seed: u8| shown == contents(4 * RANGE, seed)[mapping.file_offset as usize..][..4096];
            assert!(is_of(1) || is_of(2), "{mapping:?}");
        }
        drop(front_end);
        share.is_healthy();
    }
}
