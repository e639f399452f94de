//! The window against a front end that is as strict as QEMU, and as slow as a test requires.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    thread,
};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use transom_wire::NodeId;

use super::{Channel, ChannelError, FrontEnd, MappedFile, Mapping, RANGE_LEN, Window};
use crate::Errno;

/// The front end's mappings: by window offset, the file's offset and whether it is writable.
type Mappings = BTreeMap<u64, (u64, bool)>;

#[derive(Default)]
struct FakeFrontEnd {
    mappings: Mutex<Mappings>,
    requests: AtomicU64,
    barriers: AtomicU64,
    /// While true, the front end does not reply.
    is_busy: Mutex<bool>,
    is_idle: Condvar,
    /// The next requests that it answers with an error, or by closing the channel.
    refusals: AtomicU64,
    losses: AtomicU64,
}

struct FakeChannel(Arc<FakeFrontEnd>);

impl FakeFrontEnd {
    fn answer(&self) -> Result<(), ChannelError> {
        let busy = self.is_busy.lock().unwrap();
        drop(self.is_idle.wait_while(busy, |busy| *busy).unwrap());
        self.requests.fetch_add(1, SeqCst);
        let take = |count: &AtomicU64| count.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        if take(&self.losses) {
            return Err(ChannelError::Lost("closed".into()));
        }
        if take(&self.refusals) { Err(ChannelError::Refused("no".into())) } else { Ok(()) }
    }

    fn set_busy(&self, is_busy: bool) {
        *self.is_busy.lock().unwrap() = is_busy;
        self.is_idle.notify_all();
    }

    fn offsets(&self) -> Vec<u64> {
        self.mappings.lock().unwrap().keys().copied().collect()
    }
}

impl Channel for FakeChannel {
    fn map(&self, mapping: &Mapping<'_>) -> Result<(), ChannelError> {
        self.0.answer()?;
        assert_eq!(mapping.len, RANGE_LEN);
        let new = (mapping.file_offset, mapping.is_writable);
        let overlapped = self.0.mappings.lock().unwrap().insert(mapping.window_offset, new);
        assert_eq!(overlapped, None, "a mapping over another one closes the channel");
        Ok(())
    }

    fn unmap(&self, window_offset: u64, len: u64) -> Result<(), ChannelError> {
        self.0.answer()?;
        assert_eq!(len, RANGE_LEN);
        let ended = self.0.mappings.lock().unwrap().remove(&window_offset);
        assert!(ended.is_some(), "unmapping what is not mapped closes the channel");
        Ok(())
    }

    fn barrier(&self) -> Result<(), ChannelError> {
        self.0.barriers.fetch_add(1, SeqCst);
        Ok(())
    }
}

fn window(ranges: u64, front_end: FrontEnd) -> (Arc<Window>, Arc<FakeFrontEnd>) {
    let (window, fake) = (Window::new(ranges * RANGE_LEN, front_end), Arc::new(FakeFrontEnd::default()));
    window.connect(Box::new(FakeChannel(fake.clone()))).unwrap();
    (Arc::new(window), fake)
}

/// Creates a file of `len` bytes, open for reading and writing.
fn file(nodeid: u64, len: u64) -> Result<MappedFile, Errno> {
    let fd = memfd_create("file", MemfdFlags::CLOEXEC)?;
    ftruncate(&fd, len)?;
    MappedFile::new(NodeId(nodeid), String::new(), fd, true, false, Box::new(()))
}

fn map(window: &Window, nodeid: u64, file_range: u64, range: u64, wants_write: bool) -> Result<(), Errno> {
    let open = || file(nodeid, 16 * RANGE_LEN);
    window.map(NodeId(nodeid), file_range * RANGE_LEN, range * RANGE_LEN, wants_write, open)
}

#[test]
fn an_upgrade_is_an_answer_and_each_map_has_its_barrier() {
    let (window, fake) = window(4, FrontEnd::QEMU);
    map(&window, 7, 3, 1, false).unwrap();
    map(&window, 7, 3, 1, true).unwrap();
    assert_eq!((fake.requests.load(SeqCst), fake.barriers.load(SeqCst)), (1, 1));
    assert_eq!(*fake.mappings.lock().unwrap(), Mappings::from([(RANGE_LEN, (3 * RANGE_LEN, true))]));
    assert!(window.has_node(NodeId(7)) && !window.has_node(NodeId(8)));
    assert_eq!((window.usage().ranges_mapped, window.usage().maps), (1, 1));
}

/// Takes a while to drop.
struct Held(Arc<AtomicU64>);

impl Drop for Held {
    fn drop(&mut self) {
        thread::sleep(std::time::Duration::from_millis(20));
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn what_a_mapping_holds_is_let_go_of_before_the_guest_has_its_answer() {
    let (window, fake) = window(4, FrontEnd::QEMU);
    let let_go = Arc::new(AtomicU64::new(0));
    let map = |nodeid: u64| {
        let open = || {
            let fd = memfd_create("file", MemfdFlags::CLOEXEC)?;
            ftruncate(&fd, RANGE_LEN)?;
            let held = Box::new(Held(let_go.clone()));
            MappedFile::new(NodeId(nodeid), String::new(), fd, true, false, held)
        };
        window.map(NodeId(nodeid), 0, 0, true, open)
    };
    // 1. Unmapped, and mapped over.
    map(1).unwrap();
    window.unmap(&[(0, RANGE_LEN)]).unwrap();
    assert_eq!(let_go.load(SeqCst), 1);
    map(2).unwrap();
    map(3).unwrap();
    assert_eq!(let_go.load(SeqCst), 2);
    // 2. Refused: neither the old mapping nor the new one remains.
    fake.refusals.store(2, SeqCst);
    map(4).unwrap_err();
    assert_eq!(let_go.load(SeqCst), 4);
}

#[test]
fn what_is_mapped_over_goes_first_and_what_is_free_stays_free() {
    let (window, fake) = window(4, FrontEnd::QEMU);
    map(&window, 1, 0, 2, true).unwrap();
    map(&window, 2, 5, 2, true).unwrap();
    assert_eq!(*fake.mappings.lock().unwrap(), Mappings::from([(2 * RANGE_LEN, (5 * RANGE_LEN, true))]));
    window.unmap(&[(0, 4 * RANGE_LEN)]).unwrap();
    window.unmap(&[(0, 4 * RANGE_LEN)]).unwrap();
    assert_eq!((fake.offsets(), window.usage().unmaps), (Vec::new(), 2));
    assert!(!window.has_node(NodeId(2)));
}

#[test]
fn nothing_is_asked_for_that_is_not_in_the_window_or_the_file() {
    let (window, fake) = window(4, FrontEnd::QEMU);
    assert_eq!(map(&window, 1, 0, 4, false), Err(Errno::INVAL));
    assert_eq!(map(&window, 1, 16, 0, false), Err(Errno::OPNOTSUPP));
    assert_eq!(window.map(NodeId(1), 0, 4096, false, || file(1, RANGE_LEN)), Err(Errno::INVAL));
    assert_eq!(window.map(NodeId(1), 0, 0, false, || Err(Errno::ACCESS)), Err(Errno::ACCESS));
    for range in [(0, 5 * RANGE_LEN), (4 * RANGE_LEN, RANGE_LEN), (0, 4096), (0, 0), (u64::MAX - 1, RANGE_LEN)] {
        assert_eq!(window.unmap(&[range]), Err(Errno::INVAL), "{range:?}");
    }
    assert_eq!((fake.requests.load(SeqCst), window.usage().refused), (0, 4));
}

#[test]
fn a_front_end_that_maps_beyond_the_end_is_asked_to() {
    let (window, fake) = window(4, FrontEnd::CROSVM);
    window.map(NodeId(1), 0, 0, false, || file(1, 19)).unwrap();
    assert_eq!((fake.offsets(), fake.barriers.load(SeqCst)), (vec![0], 0));
}

#[test]
fn a_stop_ends_the_wait_and_the_answer_that_comes_late_counts() {
    let (window, fake) = window(4, FrontEnd::QEMU);
    map(&window, 1, 0, 0, true).unwrap();
    fake.set_busy(true);
    // The front end has one request, and another one waits after it.
    let waiting: Vec<_> = (1..3)
        .map(|range| {
            let window = window.clone();
            thread::spawn(move || map(&window, 1, range, range, true))
        })
        .collect();
    while !waiting.iter().all(thread::JoinHandle::is_finished) {
        window.interrupt();
        thread::yield_now();
    }
    window.stop();
    assert!(waiting.into_iter().all(|thread| thread.join().unwrap() == Err(Errno::AGAIN)));
    // The front end resets the device, which ends its mappings, and then reads the pending request.
    fake.mappings.lock().unwrap().clear();
    fake.set_busy(false);
    window.clear_for_init();
    assert_eq!((fake.offsets(), window.usage().ranges_mapped), (Vec::new(), 0));
    map(&window, 2, 0, 0, true).unwrap();
    map(&window, 2, 1, 1, true).unwrap();
    map(&window, 2, 2, 2, true).unwrap();
    assert_eq!(fake.offsets().len(), 3);
}

#[test]
fn init_without_a_stop_unmaps_and_a_pause_keeps_what_is_mapped() {
    let (window, fake) = window(4, FrontEnd::QEMU);
    map(&window, 1, 0, 0, true).unwrap();
    window.clear_for_init();
    assert!(fake.offsets().is_empty());
    map(&window, 1, 0, 0, true).unwrap();
    window.stop();
    map(&window, 1, 0, 0, true).unwrap();
    assert_eq!(fake.requests.load(SeqCst), 3);
    window.clear();
    assert!(fake.offsets().is_empty());
}

#[test]
fn a_reset_unmaps_itself_or_is_followed_by_unmapping() {
    let (qemu, fake) = window(4, FrontEnd::QEMU);
    map(&qemu, 1, 0, 0, true).unwrap();
    qemu.reset();
    assert_eq!((fake.requests.load(SeqCst), qemu.usage().ranges_mapped), (1, 0));

    let (crosvm, fake) = window(4, FrontEnd::CROSVM);
    map(&crosvm, 1, 0, 0, true).unwrap();
    crosvm.reset();
    // The same range again: it waits until the previous mapping is removed.
    map(&crosvm, 1, 1, 0, true).unwrap();
    assert_eq!(*fake.mappings.lock().unwrap(), Mappings::from([(0, (RANGE_LEN, true))]));
}

#[test]
fn a_refusal_costs_one_mapping_and_a_lost_channel_all_to_come() {
    let (window, fake) = window(4, FrontEnd::QEMU);
    fake.refusals.store(1, SeqCst);
    assert_eq!(map(&window, 1, 0, 0, true), Err(Errno::IO));
    map(&window, 1, 0, 0, true).unwrap();
    fake.losses.store(1, SeqCst);
    assert_eq!(map(&window, 1, 1, 1, true), Err(Errno::NOTCONN));
    assert!(!window.is_open());
    assert_eq!(map(&window, 1, 1, 1, true), Err(Errno::NOTCONN));
    // Existing mappings remain usable.
    map(&window, 1, 0, 0, true).unwrap();
    window.unmap(&[(0, RANGE_LEN)]).unwrap();
    window.disconnect();
    assert_eq!(window.usage().ranges_mapped, 0);
    window.connect(Box::new(FakeChannel(Arc::default()))).unwrap();
    map(&window, 1, 0, 0, true).unwrap();
}

#[test]
fn a_disconnection_ends_every_wait() {
    let (window, fake) = window(4, FrontEnd::QEMU);
    fake.set_busy(true);
    let waiting: Vec<_> = (0..4)
        .map(|range| {
            let window = window.clone();
            thread::spawn(move || map(&window, 1, range, range, true))
        })
        .collect();
    while window.shared_jobs() < 3 {
        thread::yield_now();
    }
    window.disconnect();
    fake.set_busy(false);
    assert!(waiting.into_iter().all(|thread| thread.join().unwrap().is_err()));
    assert_eq!(window.usage().ranges_mapped, 0);
}

#[test]
fn many_at_once_leave_both_maps_equal() {
    let (window, fake) = window(8, FrontEnd::QEMU);
    let threads: Vec<_> = (0..6u64)
        .map(|seed| {
            let window = window.clone();
            thread::spawn(move || {
                let mut random = seed * 2 + 1;
                for _ in 0..400 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    let pick = |shift: u32, below: u64| (random >> shift) % below;
                    match pick(60, 16) {
                        0 => window.clear(),
                        1..=4 => window.unmap(&[(pick(40, 7) * RANGE_LEN, (1 + pick(33, 2)) * RANGE_LEN)]).unwrap(),
                        _ => map(&window, pick(50, 5), pick(45, 8), pick(40, 8), pick(36, 2) == 0).unwrap(),
                    }
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(fake.offsets(), window.offsets());
    window.clear();
    assert!(fake.offsets().is_empty());
}
