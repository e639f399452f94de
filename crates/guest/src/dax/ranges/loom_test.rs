//! Models of pins that race with removing the range, changing the file, and mapping the file.

#![expect(clippy::unwrap_used, reason = "a lock of loom is never poisoned")]

use alloc::sync::Arc;
use core::ptr::NonNull;

use loom::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
};

use super::{PinAttempt, Ranges};
use crate::{
    Errno,
    dax::{
        Access, Pin, RANGE_LEN, Window, WindowMemory,
        entry::Order,
        fault::{Backing, Fault, FaultOutcome, HOST_PAGE_LEN, Intent, LentPage, PagePart, View},
    },
    queue::loom_test::platform::Model,
};

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.max_branches = 100_000;
    model.check(run);
}

/// A window of one range, of which nothing is copied.
struct Nowhere;

impl WindowMemory for Nowhere {
    fn len_bytes(&self) -> u64 {
        RANGE_LEN
    }

    fn start(&self) -> NonNull<u8> {
        NonNull::new(core::ptr::without_provenance_mut(RANGE_LEN as usize)).unwrap()
    }

    fn load(&self, _: u64, _: &mut [u8]) -> Result<(), Errno> {
        Ok(())
    }

    fn store(&self, _: u64, _: &[u8]) -> Result<(), Errno> {
        Ok(())
    }

    fn touch(&self, _: u64) -> Result<(), Errno> {
        Ok(())
    }
}

/// Returns the ranges of a file whose first range has the only slot.
fn ranges() -> Arc<Ranges<Model>> {
    let ranges = Arc::new(Ranges::new(Arc::new(Window::new(Arc::new(Nowhere)))));
    drop(pin(&ranges));
    ranges
}

/// Pins the first range, mapping it if needed: as a fault does, with a server that succeeds at once.
fn pin(ranges: &Ranges<Model>) -> Pin<'_, Model> {
    let window = &ranges.window;
    loop {
        match ranges.find(0, Access::Write, || 0) {
            PinAttempt::Pinned(pin) => return pin,
            PinAttempt::Absent => {
                if let Some(slot) = window.take_free() {
                    if ranges.begin(0, slot) {
                        return ranges.settle(0, slot, true);
                    }
                    window.put_free([slot]);
                }
            }
            PinAttempt::NotNow => {}
            PinAttempt::ReadOnly | PinAttempt::Never(_) => unreachable!("mapped for writing, or not at all"),
        }
        window.wait(|| ranges.may_have(0, Access::Write, 0), None);
    }
}

/// Removes and unmaps the range if nobody uses it, as reclaim does.
fn reclaim(ranges: &Ranges<Model>) {
    if ranges.release(0, 0) {
        ranges.window.put_free([0]);
    }
}

fn free(ranges: &Ranges<Model>) -> usize {
    ranges.window.free_count()
}

#[test]
fn who_changes_the_file_has_the_part_to_itself() {
    model(|| {
        let (ranges, is_changed) = (ranges(), Arc::new(AtomicBool::new(false)));
        let users = [(); 2].map(|()| {
            let (ranges, is_changed) = (Arc::clone(&ranges), Arc::clone(&is_changed));
            thread::spawn(move || {
                let pin = pin(&ranges);
                assert!(!is_changed.load(SeqCst), "a pin of what is being changed");
                drop(pin);
            })
        });
        let blocked = ranges.block(0..1, false);
        is_changed.store(true, SeqCst);
        is_changed.store(false, SeqCst);
        drop(blocked);
        users.into_iter().for_each(|user| user.join().unwrap());
    });
}

#[test]
fn a_range_that_is_cut_off_and_taken_away_at_once_has_one_owner() {
    model(|| {
        let ranges = ranges();
        let other = {
            let ranges = Arc::clone(&ranges);
            thread::spawn(move || reclaim(&ranges))
        };
        let blocked = ranges.block(0..u64::MAX, true);
        let slots = blocked.take_behind(0);
        ranges.window.put_free(slots);
        drop(blocked);
        other.join().unwrap();
        assert_eq!((free(&ranges), ranges.len()), (1, 0), "one place");
    });
}

#[test]
fn a_range_that_is_pinned_stays_where_it_is() {
    model(|| {
        let ranges = ranges();
        let other = {
            let ranges = Arc::clone(&ranges);
            thread::spawn(move || reclaim(&ranges))
        };
        let pin = pin(&ranges);
        assert_eq!((free(&ranges), ranges.len()), (0, 1), "the place of a pin is given away");
        drop(pin);
        other.join().unwrap();
        assert_eq!(free(&ranges) + ranges.len(), 1);
    });
}

/// A file of one page, and what a mapping shows of it.
struct File {
    ranges: Arc<Ranges<Model>>,
    len_bytes: AtomicU64,
}

impl Backing for File {
    type Lent<'a> = Pin<'a, Model>;

    fn len_bytes(&self, _: u64) -> Result<u64, Errno> {
        Ok(self.known_len_bytes())
    }

    fn known_len_bytes(&self) -> u64 {
        self.len_bytes.load(SeqCst)
    }

    fn lend(&self, _: u64, _: bool) -> Result<LentPage<Pin<'_, Model>>, Errno> {
        Ok(LentPage::Lent(pin(&self.ranges)))
    }
}

/// A page table of one entry.
struct Table(AtomicBool);

impl View for Table {
    fn install(&self, _: core::ops::Range<u64>, _: NonNull<u8>, _: bool) -> Result<(), Errno> {
        self.0.store(true, SeqCst);
        Ok(())
    }

    fn install_zeros(&self, _: core::ops::Range<u64>) -> Result<(), Errno> {
        unreachable!("no holes")
    }

    fn install_copy(&self, _: u64, _: Option<PagePart>) -> Result<(), Errno> {
        unreachable!("nothing private")
    }

    fn zap(&self, _: core::ops::Range<u64>, _: bool) {
        self.0.store(false, SeqCst);
    }

    fn write_protect(&self, _: core::ops::Range<u64>) {}

    fn allows_beyond_end(&self) -> bool {
        true
    }
}

const LOAD: Fault = Fault { page: 0, order: Order::Huge, intent: Intent::Load };

fn mapped_file() -> (Arc<File>, Arc<Table>) {
    let file = Arc::new(File { ranges: ranges(), len_bytes: AtomicU64::new(HOST_PAGE_LEN) });
    (file, Arc::new(Table(AtomicBool::new(false))))
}

#[test]
fn a_page_that_is_cut_off_is_in_no_page_table() {
    model(|| {
        let (file, table) = mapped_file();
        let mapped = file.ranges.mapped();
        mapped.attach(Arc::clone(&table) as Arc<dyn View>);
        let fault = {
            let (file, table, mapped) = (Arc::clone(&file), Arc::clone(&table), Arc::clone(&mapped));
            thread::spawn(move || mapped.fault(&*file, &*table, LOAD))
        };
        let blocked = file.ranges.block(0..u64::MAX, true);
        assert!(!table.0.load(SeqCst), "a page of what is being cut off");
        let slots = blocked.take_behind(0);
        file.ranges.window.put_free(slots);
        file.len_bytes.store(0, SeqCst);
        drop(blocked);
        let outcome = fault.join().unwrap();
        assert!(matches!(outcome, FaultOutcome::Installed | FaultOutcome::OutOfFile), "{outcome:?}");
        assert!(!table.0.load(SeqCst), "a page past the end: {outcome:?}");
        mapped.detach(&(table as Arc<dyn View>));
    });
}

#[test]
fn a_page_of_a_range_that_was_taken_away_is_in_no_page_table() {
    model(|| {
        let (file, table) = mapped_file();
        let mapped = file.ranges.mapped();
        mapped.attach(Arc::clone(&table) as Arc<dyn View>);
        let fault = {
            let (file, table, mapped) = (Arc::clone(&file), Arc::clone(&table), Arc::clone(&mapped));
            thread::spawn(move || assert_eq!(mapped.fault(&*file, &*table, LOAD), FaultOutcome::Installed))
        };
        // The first call may find it recently used.
        (0..2).for_each(|_| reclaim(&file.ranges));
        assert!(!table.0.load(SeqCst) || file.ranges.len() == 1, "a page of a place that another may have");
        fault.join().unwrap();
        assert!(table.0.load(SeqCst) || file.ranges.is_empty());
        mapped.detach(&(table as Arc<dyn View>));
    });
}
