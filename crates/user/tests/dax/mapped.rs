//! Files mapped into this process by faults: [`MapFile::map`], through real daemons.

use std::{
    fs,
    os::unix::{fs::FileExt as _, process::ExitStatusExt as _},
    path::Path,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;
use transom_user::{
    guest::{
        Errno,
        cache::CacheMode,
        fs::{File, OpenOptions},
    },
    map::{MapFile as _, Mapping, Protection, Sharing},
    platform::Process,
};

use super::{Guest, MIB, RANGE, common, patterned};

const PAGE: usize = 4096;

fn share(len: usize) -> TempDir {
    let dir = common::on_disk();
    fs::write(dir.path().join("file"), patterned(0, len, 1)).unwrap();
    dir
}

/// A guest with a window of `ranges` ranges, of a front end that maps beyond the end of files.
fn guest(dir: &Path, ranges: usize) -> Guest {
    Guest::new(dir, ranges, "alioth", CacheMode::Auto)
}

fn open(guest: &Guest) -> File<Process> {
    guest.fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap()
}

fn load(mapping: &Mapping, at: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    mapping.read_at(at, &mut bytes).unwrap();
    bytes
}

#[test]
fn two_guests_and_the_host_see_each_others_stores_at_once() {
    let dir = share(3 * RANGE + 100);
    let host = fs::File::options().read(true).write(true).open(dir.path().join("file")).unwrap();
    let guests = [guest(dir.path(), 8), guest(dir.path(), 8)];
    let files = guests.each_ref().map(open);
    let [one, other] = files
        .each_ref()
        .map(|file| file.map(0..(3 * RANGE + 100) as u64, Protection::ReadWrite, Sharing::Shared).unwrap());
    assert_eq!(load(&one, 0, 3 * RANGE + 100), patterned(0, 3 * RANGE + 100, 1));
    // 1. From a guest to the other and the host.
    one.write_at(RANGE - 3, b"hello").unwrap();
    assert_eq!(load(&other, RANGE - 3, 5), b"hello");
    let mut seen = [0; 5];
    host.read_exact_at(&mut seen, (RANGE - 3) as u64).unwrap();
    assert_eq!(&seen, b"hello");
    // 2. From the host to both, and to calls beside the mapping.
    host.write_all_at(b"there", (2 * RANGE) as u64).unwrap();
    assert_eq!((load(&one, 2 * RANGE, 5), load(&other, 2 * RANGE, 5)), (b"there".to_vec(), b"there".to_vec()));
    files[0].write_at(9, b"by a call").unwrap();
    assert_eq!(load(&other, 9, 9), b"by a call");
    // 3. Atomic operations of both on one word.
    const ROUNDS: u32 = 100_000;
    let word = |mapping: &Mapping| mapping.as_ptr().as_ptr().wrapping_add(64) as usize;
    one.write_at(64, &[0; 4]).unwrap();
    thread::scope(|scope| {
        for at in [word(&one), word(&other)] {
            scope.spawn(move || {
                #[expect(unsafe_code, reason = "an atomic at an address")]
                // SAFETY: four aligned bytes of the mapping, which lives to the end of the scope, used as an atomic
                // only.
                let word = unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(at)) };
                for _ in 0..ROUNDS {
                    word.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(load(&one, 64, 4), (2 * ROUNDS).to_ne_bytes());
    // 4. Durable.
    one.sync(0..one.len()).unwrap();
    one.write_at(RANGE, b"after").unwrap();
    assert_eq!(load(&other, RANGE, 5), b"after");
}

#[test]
fn stores_to_a_private_mapping_reach_nobody() {
    let dir = share(2 * RANGE);
    let guest = guest(dir.path(), 4);
    let file = guest.fs.open_read("file").unwrap();
    assert_eq!(file.map(0..4096, Protection::ReadWrite, Sharing::Shared).err(), Some(Errno::ACCESS));
    let mapping = file.map(PAGE as u64..(2 * RANGE) as u64, Protection::ReadWrite, Sharing::Private).unwrap();
    for at in [0, 5000, RANGE - PAGE - 2, RANGE + 70_000] {
        mapping.write_at(at, b"mine").unwrap();
        assert_eq!(load(&mapping, at, 4), b"mine");
    }
    let mut expected = patterned(PAGE, 2 * RANGE - PAGE, 1);
    assert_eq!(fs::read(dir.path().join("file")).unwrap()[PAGE..], expected);
    [0, 5000, RANGE - PAGE - 2, RANGE + 70_000].iter().for_each(|&at| expected[at..at + 4].copy_from_slice(b"mine"));
    assert_eq!(load(&mapping, 0, mapping.len()), expected);
    let loads = file.map(0..4096, Protection::Read, Sharing::Private).unwrap();
    assert_eq!(loads.write_at(0, b"x"), Err(Errno::ACCESS));
}

#[test]
fn a_mapping_larger_than_the_window_goes_round_in_it() {
    let len = 16 * RANGE;
    let dir = share(len);
    let guest = guest(dir.path(), 4);
    let file = open(&guest);
    let mapping = file.map(0..len as u64, Protection::ReadWrite, Sharing::Shared).unwrap();
    let mut expected = patterned(0, len, 1);
    thread::scope(|scope| {
        for (thread, part) in expected.chunks_mut(len / 2).enumerate() {
            let mapping = &mapping;
            scope.spawn(move || {
                let first = thread * (len / 2);
                let mut at = 7;
                for round in 0..400_usize {
                    at = (at * 1_103_515_245 + 12345) % (part.len() - 8);
                    assert_eq!(load(mapping, first + at, 8), part[at..at + 8], "round {round}");
                    let bytes = (round as u64).to_ne_bytes();
                    mapping.write_at(first + at, &bytes).unwrap();
                    part[at..at + 8].copy_from_slice(&bytes);
                }
            });
        }
    });
    assert_eq!(load(&mapping, 0, len), expected);
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), expected);
    assert!(guest.counts().replaced > 0, "{:?}", guest.counts());
}

#[test]
fn what_is_not_there_is_an_error_and_what_comes_back_is_seen() {
    let dir = share(RANGE + 3 * PAGE);
    let host = fs::File::options().write(true).open(dir.path().join("file")).unwrap();
    let guests = [guest(dir.path(), 4), guest(dir.path(), 4)];
    let files = guests.each_ref().map(open);
    let mapping = files[0].map(0..(4 * RANGE) as u64, Protection::ReadWrite, Sharing::Shared).unwrap();
    let fails = |at: usize| {
        assert_eq!(mapping.read_at(at, &mut [0; 8]), Err(Errno::IO));
        assert_eq!(mapping.write_at(at, &[1; 8]), Err(Errno::IO));
    };
    // 1. Past the end: in the last range, and in one that the file does not reach.
    assert_eq!(load(&mapping, RANGE, 3 * PAGE), patterned(RANGE, 3 * PAGE, 1));
    [RANGE + 3 * PAGE, 3 * RANGE, 4 * RANGE - 8].into_iter().for_each(fails);
    assert_eq!(mapping.read_at(4 * RANGE - 4, &mut [0; 8]), Err(Errno::INVAL));
    // 2. Another guest cuts it off, then the host.
    files[1].set_len(RANGE as u64).unwrap();
    fails(RANGE);
    host.set_len(PAGE as u64).unwrap();
    fails(PAGE);
    assert_eq!(load(&mapping, 0, PAGE), patterned(0, PAGE, 1));
    // 3. It grows, by each of the three.
    host.set_len((RANGE + PAGE) as u64).unwrap();
    assert_eq!(load(&mapping, PAGE, RANGE), vec![0; RANGE]);
    files[1].write_at((3 * RANGE) as u64, b"new").unwrap();
    assert_eq!(load(&mapping, 3 * RANGE, 3), b"new");
    files[0].set_len((4 * RANGE) as u64).unwrap();
    assert_eq!(load(&mapping, 4 * RANGE - 8, 8), [0; 8]);
    // 4. This guest cuts it off itself, under a private copy too.
    let private = files[0].map(0..(4 * RANGE) as u64, Protection::ReadWrite, Sharing::Private).unwrap();
    private.write_at(2 * RANGE, b"copy").unwrap();
    files[0].set_len(RANGE as u64).unwrap();
    assert_eq!(private.read_at(2 * RANGE, &mut [0; 4]), Err(Errno::IO));
    fails(RANGE);
}

#[test]
fn durable_stores_without_requests_are_refused_on_ordinary_storage() {
    let dir = share(RANGE);
    let guest = guest(dir.path(), 4);
    let file = open(&guest);
    assert_eq!(file.map(0..4096, Protection::ReadWrite, Sharing::SharedSync).err(), Some(Errno::OPNOTSUPP));
    let mapping = file.map(0..4096, Protection::ReadWrite, Sharing::Shared).unwrap();
    assert_eq!(mapping.flush(0..8), Err(Errno::OPNOTSUPP));
    assert_eq!(file.map(1..4096, Protection::Read, Sharing::Shared).err(), Some(Errno::INVAL));
    assert_eq!(file.map(4096..4096, Protection::Read, Sharing::Shared).err(), Some(Errno::INVAL));
}

#[test]
fn a_daemon_that_dies_is_an_error_and_nobody_waits() {
    let dir = share(2 * RANGE);
    let guest = guest(dir.path(), 4);
    let file = open(&guest);
    let mapping = file.map(0..(2 * RANGE) as u64, Protection::ReadWrite, Sharing::Shared).unwrap();
    assert_eq!(load(&mapping, 0, 8), patterned(0, 8, 1));
    let pid = guest.mount.device().transport().daemon_id().unwrap();
    assert!(pid > 1);
    kill_process_group(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    // What is there stays; what is not does not come.
    assert_eq!(load(&mapping, 0, 8), patterned(0, 8, 1));
    assert_eq!(mapping.read_at(RANGE, &mut [0; 8]), Err(Errno::IO));
}

/// What the test below does by address, in a process of its own: its name.
const CHILD: &str = "TRANSOM_TEST_TOUCH";

#[test]
fn an_access_by_address_to_what_is_not_there_raises_sigbus() {
    let dir = share(RANGE);
    if let Some(dir) = std::env::var_os(CHILD) {
        return touch(Path::new(&dir));
    }
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "mapped::an_access_by_address_to_what_is_not_there_raises_sigbus", "--nocapture"])
        .env(CHILD, dir.path())
        .output()
        .unwrap();
    assert_eq!(status.status.signal(), Some(Signal::BUS.as_raw()), "{status:?}");
    assert!(String::from_utf8_lossy(&status.stdout).contains("touches"), "{status:?}");
}

fn touch(dir: &Path) {
    let guest = guest(dir, 4);
    let mapping = open(&guest).map(0..(2 * RANGE) as u64, Protection::Read, Sharing::Shared).unwrap();
    assert_eq!(load(&mapping, MIB, 8), patterned(MIB, 8, 1));
    println!("touches");
    #[expect(unsafe_code, reason = "a load by address")]
    // SAFETY: an address of the mapping.
    let byte = unsafe { mapping.as_ptr().as_ptr().wrapping_add(RANGE).read_volatile() };
    unreachable!("read {byte} past the end of the file");
}
