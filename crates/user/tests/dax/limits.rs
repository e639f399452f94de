//! A process with as many mappings as it may have.

#![expect(unsafe_code, reason = "mappings of its own fill the process")]

use std::{fs, path::Path, process::Command, ptr, thread};

use rustix::{
    mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap},
    thread::gettid,
};
use transom_user::{
    guest::Errno,
    map::{MapFile as _, Mapping, Protection, Sharing},
};

use super::{Guest, RANGE, common, patterned};
use transom_user::guest::{cache::CacheMode, fs::OpenOptions};

const PAGE: usize = 4096;
/// What the test does, it does in a process of its own: its directory.
const CHILD: &str = "TRANSOM_TEST_LIMITS";
const NAME: &str = "limits::pages_are_taken_away_by_a_process_that_has_no_mapping_left";

/// Many mappings, and not one more.
struct Full {
    start: *mut std::ffi::c_void,
    len: usize,
    /// One page each.
    more: Vec<*mut std::ffi::c_void>,
}

impl Full {
    fn new() -> Self {
        let (len, flags) = (200_000 * PAGE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: new mappings at places of the kernel's choice.
        let map = |len| unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags) };
        let start = map(len).unwrap();
        let mut more = Vec::with_capacity(100_000);
        // SAFETY: pages of the mapping above, used by nobody.
        let split = |page: usize| unsafe { mprotect(start.byte_add(page * PAGE), PAGE, MprotectFlags::READ) };
        assert!((1..200_000).step_by(2).any(|page| split(page).is_err()), "vm.max_map_count is large here");
        // The last ones, that do not split: the kernel makes one more than it splits for.
        while let Ok(page) = map(PAGE)
            && more.len() < more.capacity()
        {
            more.push(page);
            // SAFETY: as above. It differs from its neighbours then.
            let _ = unsafe {
                mprotect(page, PAGE, if more.len() % 2 == 0 { MprotectFlags::READ } else { MprotectFlags::WRITE })
            };
        }
        Self { start, len, more }
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, used by nobody.
        unsafe {
            munmap(self.start, self.len).unwrap();
            self.more.iter().for_each(|&page| munmap(page, PAGE).unwrap());
        }
    }
}

/// Waits until all other threads of this process sleep. One that begins needs mappings of its own, such as a stack for
/// signal handlers, and would end the process where none is left.
fn wait_for_others() {
    let own = gettid().as_raw_nonzero().to_string();
    let others_sleep = || {
        let mut others = fs::read_dir("/proc/self/task").unwrap().flatten().filter(|task| *task.file_name() != *own);
        others.all(|task| match fs::read_to_string(task.path().join("stat")) {
            Ok(stat) => stat.rsplit_once(") ").unwrap().1.starts_with('S'),
            // It has ended.
            Err(_) => true,
        })
    };
    // A thread that waits for a lock sleeps as well, until the lock's holder has run.
    while !(others_sleep() && others_sleep()) {
        thread::yield_now();
    }
}

/// Returns the number of threads that serve faults.
fn service_threads() -> usize {
    let names = fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| fs::read(task.path().join("comm")));
    names.filter(|name| name.as_ref().is_ok_and(|name| name == b"transom-fault\n")).count()
}

#[test]
fn pages_are_taken_away_by_a_process_that_has_no_mapping_left() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return take_away(Path::new(&dir));
    }
    let dir = common::on_disk();
    fs::write(dir.path().join("file"), patterned(0, 8 * RANGE, 1)).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(CHILD, dir.path())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("all is as it should be"), "{output:?}");
}

/// Checks that each page has the expected contents or is not accessible now. Returns how many are accessible. Allocates
/// no memory.
fn check(mapping: &Mapping, expected: &[u8], pages: std::ops::Range<usize>) -> usize {
    let mut found = [0; PAGE];
    let mut readable = 0;
    for page in pages {
        match mapping.read_at(page * PAGE, &mut found) {
            Ok(()) => assert!(found == expected[page * PAGE..][..PAGE], "page {page}"),
            Err(error) => assert_eq!(error, Errno::IO),
        }
        readable += usize::from(mapping.read_at(page * PAGE, &mut found).is_ok());
    }
    readable
}

fn take_away(dir: &Path) {
    const PAGES: usize = 8 * RANGE / PAGE;
    let guest = Guest::new(dir, 16, "alioth", CacheMode::Auto);
    let file = guest.fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
    let map = |sharing| file.map(0..8 * RANGE as u64, Protection::ReadWrite, sharing).unwrap();
    let (shared, private) = (map(Sharing::Shared), map(Sharing::Private));
    let mut expected = patterned(0, 8 * RANGE, 1);
    for range in 0..8 {
        // For stores: neighbours are one mapping of the kernel then.
        shared.write_at(range * RANGE, &expected[range * RANGE..][..8]).unwrap();
    }
    assert_eq!(check(&shared, &expected, 0..PAGES), PAGES);
    private.write_at(5 * RANGE, b"mine").unwrap();

    wait_for_others();
    let threads = service_threads();
    let full = Full::new();
    // 1. In the middle of what is shown.
    file.allocate(3, (3 * RANGE + PAGE) as u64, 2 * PAGE as u64).unwrap();
    expected[3 * RANGE + PAGE..][..2 * PAGE].fill(0);
    check(&shared, &expected, 0..PAGES);
    // 2. Made read-only, to be flushed.
    shared.sync(RANGE..RANGE + PAGE).unwrap();
    check(&shared, &expected, 0..PAGES);
    // 3. Cut off, with a copy in what goes.
    file.set_len((5 * RANGE - PAGE) as u64).unwrap();
    assert_eq!(check(&shared, &expected, 5 * RANGE / PAGE - 1..PAGES), 0);
    assert_eq!(private.read_at(5 * RANGE, &mut [0; 4]), Err(Errno::IO));
    check(&shared, &expected, 0..5 * RANGE / PAGE - 1);
    // 4. A copy, which takes a mapping more.
    let copied = private.write_at(PAGE, b"mine");
    assert!(matches!(copied, Ok(()) | Err(Errno::IO)), "{copied:?}");
    drop(full);
    assert_eq!(check(&shared, &expected, 0..5 * RANGE / PAGE - 1), 5 * RANGE / PAGE - 1);
    private.write_at(2 * RANGE, b"mine").unwrap();
    assert!(service_threads() <= threads, "faults that come one after another start no thread");
    println!("all is as it should be");
}
