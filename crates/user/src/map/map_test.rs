//! Faults, from the signal to the page, with a file of this process in place of a window.

use std::{
    fs::File,
    ops::Range,
    os::unix::fs::FileExt as _,
    ptr::NonNull,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use transom_guest::{
    Errno, Platform as _,
    dax::{
        PageTables as _, RANGE_LEN,
        entry::Order,
        fault::{Backing, Fault, FaultOutcome, Intent, Lent, LentPage, View},
        mapped::Mapped,
    },
};
use vm_memory::{FileOffset, MmapRegion};

use super::{
    area::Area,
    service::{self, Faults},
    view::Pages,
};
use crate::{
    fault::copy::copy,
    platform::{PAGE_LEN, Process},
};

const HUGE: usize = RANGE_LEN as usize;
const PAGE: usize = PAGE_LEN as usize;

/// A file and a shared mapping of it.
struct Local {
    file: File,
    window: MmapRegion<()>,
}

struct Part(NonNull<u8>);

impl Lent for Part {
    fn start(&self) -> NonNull<u8> {
        self.0
    }

    fn is_unstable(&self) -> bool {
        false
    }

    fn allocate(&self, _: Range<u64>) -> Result<(), Errno> {
        Ok(())
    }
}

impl Backing for Local {
    type Lent<'a> = Part;

    fn len_bytes(&self, _: u64) -> Result<u64, Errno> {
        Ok(self.known_len_bytes())
    }

    fn known_len_bytes(&self) -> u64 {
        self.file.metadata().unwrap().len()
    }

    fn lend(&self, index: u64, _: bool) -> Result<LentPage<Part>, Errno> {
        let start = self.window.as_ptr().wrapping_add(index as usize * HUGE);
        Ok(LentPage::Lent(Part(NonNull::new(start).unwrap())))
    }
}

struct Of {
    pages: Arc<Pages>,
    mapped: Arc<Mapped<Process>>,
    local: Arc<Local>,
    is_private: bool,
    order: Order,
    served: AtomicUsize,
}

impl Faults for Of {
    fn fault(&self, address: usize, is_write: bool) -> bool {
        let page = self.pages.page_at(address);
        self.served.fetch_add(1, Ordering::Relaxed);
        if self.pages.allows(page, is_write) {
            return true;
        }
        let intent = match (is_write, self.is_private) {
            (false, _) => Intent::Load,
            (true, true) => Intent::Copy,
            (true, false) => Intent::Store,
        };
        let fault = Fault { page, order: self.order, intent };
        self.mapped.fault_through(&*self.local, &*self.pages, fault, |_| Ok(())) == FaultOutcome::Installed
    }
}

/// Creates a file of `len` bytes, in which each byte is the number of its page.
fn local(len: usize) -> (Arc<Local>, Arc<Mapped<Process>>) {
    let file = tempfile::tempfile().unwrap();
    let bytes: Vec<u8> = (0..len).map(|at| (at / PAGE) as u8).collect();
    file.write_all_at(&bytes, 0).unwrap();
    let offset = FileOffset::new(file.try_clone().unwrap(), 0);
    let window = MmapRegion::from_file(offset, len.next_multiple_of(HUGE)).unwrap();
    (Arc::new(Local { file, window }), Arc::default())
}

fn map(local: &Arc<Local>, mapped: &Arc<Mapped<Process>>, is_private: bool, order: Order) -> Arc<Of> {
    let area = Area::new(local.window.size()).unwrap();
    let addresses = area.addresses();
    let pages = Arc::new(Pages::new(area, 0));
    mapped.attach(Arc::clone(&pages) as Arc<dyn View>);
    let (mapped, local) = (Arc::clone(mapped), Arc::clone(local));
    let of = Arc::new(Of { pages, mapped, local, is_private, order, served: AtomicUsize::new(0) });
    service::add(addresses, Arc::clone(&of) as Arc<dyn Faults>).unwrap();
    of
}

impl Of {
    fn at(&self, at: usize) -> *mut u8 {
        self.pages.area().start().as_ptr().wrapping_add(at)
    }

    /// Loads a range, up to the first byte that is not accessible.
    fn load(&self, bytes: Range<usize>) -> Vec<u8> {
        let mut found = vec![0; bytes.len()];
        #[expect(unsafe_code, reason = "a mapping is accessed by address")]
        // SAFETY: the range lies in the area, and `found` has the same length.
        let len = unsafe { copy(found.as_mut_ptr(), self.at(bytes.start), bytes.len()) };
        found.truncate(len);
        found
    }

    fn store(&self, at: usize, bytes: &[u8]) -> usize {
        #[expect(unsafe_code, reason = "a mapping is accessed by address")]
        // SAFETY: the range lies in the area.
        unsafe {
            copy(self.at(at), bytes.as_ptr(), bytes.len())
        }
    }

    fn served(&self) -> usize {
        self.served.swap(0, Ordering::Relaxed)
    }

    fn end(&self) {
        service::remove(self.pages.area().addresses().start);
        self.mapped.detach(&(Arc::clone(&self.pages) as Arc<dyn View>));
    }
}

impl Local {
    fn read(&self, bytes: Range<usize>) -> Vec<u8> {
        let mut found = vec![0; bytes.len()];
        self.file.read_exact_at(&mut found, bytes.start as u64).unwrap();
        found
    }
}

#[test]
fn what_is_touched_is_fetched_two_mebibytes_at_a_time() {
    let (local, mapped) = local(3 * HUGE);
    let of = map(&local, &mapped, false, Order::Huge);
    assert_eq!(of.load(0..3 * HUGE), local.read(0..3 * HUGE));
    assert_eq!(of.served(), 3);
    // One more fault for each, because they were shown for loads.
    assert_eq!(of.store(HUGE - 10, &[255; 20]), 20);
    assert_eq!(of.served(), 2);
    assert_eq!(local.read(HUGE - 10..HUGE + 10), [255; 20]);
    assert_eq!(of.load(HUGE - 10..HUGE + 10), [255; 20]);
    assert_eq!(of.served(), 0);
    of.end();
    assert_eq!(mapped.tree().nodes(), 0);
}

#[test]
fn entries_of_four_kibibytes_show_the_same() {
    let (local, mapped) = local(HUGE + 5 * PAGE);
    let of = map(&local, &mapped, false, Order::Small);
    assert_eq!(of.load(HUGE - 2 * PAGE..HUGE + 3 * PAGE), local.read(HUGE - 2 * PAGE..HUGE + 3 * PAGE));
    assert_eq!(of.served(), 5);
    of.end();
}

#[test]
fn beyond_the_end_nothing_is_touched_and_what_is_cut_off_is_gone() {
    let (local, mapped) = local(HUGE + 3 * PAGE);
    let of = map(&local, &mapped, false, Order::Huge);
    // 1. The file ends in the middle of a fetched range.
    assert_eq!(of.load(HUGE..2 * HUGE), local.read(HUGE..HUGE + 3 * PAGE));
    // 2. The file is truncated without notice.
    local.file.set_len(PAGE as u64).unwrap();
    assert_eq!(of.load(0..HUGE).len(), PAGE);
    assert_eq!(of.load(HUGE..2 * HUGE).len(), 0);
    assert_eq!(of.store(PAGE, &[1]), 0);
    // 3. The file grows, and reads as zeros.
    local.file.set_len(4 * PAGE as u64).unwrap();
    assert_eq!(of.load(PAGE..HUGE), [0; 3 * PAGE]);
    of.end();
}

#[test]
fn stores_to_a_private_mapping_stay_there() {
    let (local, mapped) = local(2 * HUGE);
    let (private, shared) = (map(&local, &mapped, true, Order::Huge), map(&local, &mapped, false, Order::Huge));
    let before = local.read(0..2 * HUGE);
    // 1. A page that is not copied shows the stores of others.
    assert_eq!(private.load(0..2 * HUGE), before);
    shared.store(100 * PAGE, &[77; PAGE]);
    assert_eq!(private.load(100 * PAGE..101 * PAGE), [77; PAGE]);
    // 2. Copies are private.
    assert_eq!(private.store(100 * PAGE + 5, &[88]), 1);
    assert_eq!(private.store(HUGE + 7 * PAGE, &[99; 3]), 3);
    assert_eq!(local.read(100 * PAGE..101 * PAGE), [77; PAGE]);
    assert_eq!(local.read(HUGE..2 * HUGE), before[HUGE..]);
    assert_eq!(private.load(100 * PAGE + 4..100 * PAGE + 7), [77, 88, 77]);
    // 3. Copies outlive their source, and disappear when the file is truncated.
    assert!(!mapped.release(0) && mapped.release(0));
    assert!(!mapped.release(1) && mapped.release(1));
    assert_eq!(private.load(100 * PAGE + 4..100 * PAGE + 7), [77, 88, 77]);
    mapped.revoke(HUGE as u64..2 * RANGE_LEN, true);
    assert_eq!(private.load(HUGE..2 * HUGE), before[HUGE..]);
    assert_eq!(private.load(100 * PAGE + 5..100 * PAGE + 6), [88]);
    private.end();
    shared.end();
}

#[test]
fn what_is_written_back_faults_at_the_next_store() {
    let (local, mapped) = local(HUGE);
    let of = map(&local, &mapped, false, Order::Huge);
    of.store(0, &[1]);
    of.store(PAGE, &[1]);
    assert_eq!(of.served(), 1);
    let mut flushed = Vec::new();
    let mut flush = |pages: Range<u64>| {
        flushed.push(pages);
        Ok(())
    };
    mapped.write_back(0..u64::MAX, &mut flush).unwrap();
    mapped.write_back(0..u64::MAX, &mut flush).unwrap();
    assert_eq!(flushed, vec![Order::Huge.pages(0, Process::PAGE_SIZE)]);
    of.load(0..HUGE);
    assert_eq!(of.served(), 0);
    of.store(0, &[2]);
    assert_eq!(of.served(), 1);
    of.end();
}

#[test]
fn more_threads_than_slots_fault_at_once_and_all_go_on() {
    let (local, mapped) = local(4 * HUGE);
    let maps: Vec<_> = (0..3).map(|_| map(&local, &mapped, false, Order::Small)).collect();
    let expected = local.read(0..4 * HUGE);
    thread::scope(|scope| {
        for thread in 0..600 {
            let (maps, expected) = (&maps, &expected);
            scope.spawn(move || {
                for round in 0..8 {
                    let at = (thread * 7 + round * 31) % 64 * 16 * PAGE;
                    assert_eq!(maps[(thread + round) % 3].load(at..at + 10), expected[at..at + 10]);
                }
            });
        }
        // Pages that are taken away meanwhile come back.
        for round in 0..200 {
            mapped.revoke((round % 4) * RANGE_LEN..(round % 4 + 1) * RANGE_LEN, false);
        }
    });
    maps.iter().for_each(|of| of.end());
    assert_eq!(mapped.tree().nodes(), 0);
}

/// Faults of a mount whose daemon does not answer until the sender is dropped.
struct Hung {
    begun: mpsc::Sender<()>,
    answer: Mutex<mpsc::Receiver<()>>,
}

impl Faults for Hung {
    fn fault(&self, _: usize, _: bool) -> bool {
        self.begun.send(()).unwrap();
        let answer = self.answer.lock().unwrap();
        assert!(answer.recv().is_err());
        false
    }
}

#[test]
fn faults_of_one_mount_are_served_while_the_daemon_of_another_does_not_answer() {
    /// More than the threads that serve one mount.
    const STUCK: usize = 100;
    let area = Area::new(HUGE).unwrap();
    let start = area.addresses().start;
    let ((begun, begins), (answer, hung)) = (mpsc::channel(), mpsc::channel());
    service::add(area.addresses(), Arc::new(Hung { begun, answer: Mutex::new(hung) })).unwrap();
    let (local, mapped) = local(HUGE);
    let of = map(&local, &mapped, false, Order::Small);
    thread::scope(|scope| {
        for _ in 0..STUCK {
            scope.spawn(move || {
                let mut byte = 0;
                #[expect(unsafe_code, reason = "a mapping is accessed by address")]
                // SAFETY: the address lies in the area, where nothing is mapped; a fault that fails ends the copy.
                let copied = unsafe { copy(&mut byte, std::ptr::with_exposed_provenance(start), 1) };
                assert_eq!(copied, 0);
            });
        }
        let (sender, served) = mpsc::channel();
        let (of, local) = (&of, &local);
        scope.spawn(move || sender.send(of.load(0..PAGE) == local.read(0..PAGE)).unwrap());
        // All faults of the first mount are being served; so are those of the second.
        let has_begun = (0..STUCK).all(|_| begins.recv_timeout(Duration::from_secs(60)).is_ok());
        let is_served = served.recv_timeout(Duration::from_secs(60));
        drop(answer);
        assert!(has_begun, "faults wait for each other's threads");
        assert_eq!(is_served, Ok(true));
    });
    service::remove(start);
    of.end();
}
