//! Guests whose pages are larger than the host's, which has pages of 4 KiB.

use std::{
    ops::Range,
    ptr::NonNull,
    sync::{Arc, Mutex},
};

use transom_guest::{
    Errno, Platform,
    dax::{
        RANGE_LEN,
        backing::FileBacking,
        entry::Order,
        fault::{Fault, FaultOutcome, HOST_PAGE_LEN, Intent, PagePart, View},
    },
    fs::{File, OpenOptions},
    platform::PageSize,
};

use crate::{
    fake::{FakeWindow, share_on},
    peer::Spin,
};

/// A system without threads whose pages have `KIB` KiB.
#[derive(Default)]
struct Paged<const KIB: u64>;

impl<const KIB: u64> Platform for Paged<KIB> {
    const PAGE_SIZE: PageSize = PageSize::from_bytes(KIB << 10).unwrap();

    type RawMutex = parking_lot::RawMutex;
    type Event = Spin;

    /// Time stands still, so that nothing that is cached expires.
    fn now_ns(&self) -> u64 {
        1
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }
}

/// Page tables of a kernel, for which an access beyond the end of the file is fatal.
#[derive(Default)]
struct Fragile {
    installed: Mutex<Vec<Range<u64>>>,
    /// Lengths in bytes.
    copies: Mutex<Vec<usize>>,
}

impl View for Fragile {
    fn install(&self, pages: Range<u64>, _: NonNull<u8>, _: bool) -> Result<(), Errno> {
        self.installed.lock().unwrap().push(pages);
        Ok(())
    }

    fn install_zeros(&self, _: Range<u64>) -> Result<(), Errno> {
        Err(Errno::OPNOTSUPP)
    }

    fn install_copy(&self, _: u64, from: Option<PagePart>) -> Result<(), Errno> {
        self.copies.lock().unwrap().push(from.map_or(0, |part| part.len_bytes));
        Ok(())
    }

    fn zap(&self, _: Range<u64>, _: bool) {}

    fn write_protect(&self, _: Range<u64>) {}

    fn allows_beyond_end(&self) -> bool {
        false
    }
}

struct World<const KIB: u64> {
    dir: tempfile::TempDir,
    window: Arc<FakeWindow>,
    file: File<Paged<KIB>>,
    view: Arc<Fragile>,
}

impl<const KIB: u64> World<KIB> {
    const PAGE_LEN: u64 = KIB << 10;

    fn new(len_bytes: u64) -> Self {
        let (dir, window, fs, _) = share_on(Arc::<Paged<KIB>>::default(), 4);
        let file = fs.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
        file.set_len(len_bytes).unwrap();
        let view = Arc::new(Fragile::default());
        file.inode().ranges().unwrap().mapped().attach(Arc::clone(&view) as Arc<dyn View>);
        Self { dir, window, file, view }
    }

    fn fault(&self, page: u64, order: Order, intent: Intent) -> FaultOutcome {
        let mapped = self.file.inode().ranges().unwrap().mapped();
        let fault = Fault { page, order, intent };
        mapped.fault_through(&FileBacking::new(self.file.inode()), &*self.view, fault, |_| Ok(()))
    }
}

/// A file that ends in the first half of page 2.
fn with_partial_page<const KIB: u64>() -> World<KIB> {
    World::new(2 * World::<KIB>::PAGE_LEN + 1)
}

fn a_page_beyond_the_hosts_memory_is_not_mapped<const KIB: u64>() {
    let world = with_partial_page::<KIB>();
    for intent in [Intent::Load, Intent::Store, Intent::StoreSync] {
        assert_eq!(world.fault(2, Order::Huge, intent), FaultOutcome::PartialPage, "{intent:?}");
        assert_eq!(world.fault(3, Order::Huge, intent), FaultOutcome::OutOfFile, "{intent:?}");
    }
    assert!(world.view.installed.lock().unwrap().is_empty());
    assert_eq!(world.fault(2, Order::Huge, Intent::Copy), FaultOutcome::Installed);
    assert_eq!(*world.view.copies.lock().unwrap(), [HOST_PAGE_LEN as usize]);
    assert_eq!(world.fault(1, Order::Huge, Intent::Load), FaultOutcome::Installed);
    assert_eq!(*world.view.installed.lock().unwrap(), *std::slice::from_ref(&(1..2)));
}

fn a_file_that_the_host_has_extended_is_not_taken_for_shorter<const KIB: u64>() {
    for intent in [Intent::Load, Intent::Store, Intent::Copy] {
        let world = with_partial_page::<KIB>();
        // The guest has the old size in its cache, by which the page's beginning is in the file.
        let path = world.dir.path().join("file");
        std::fs::File::options().write(true).open(path).unwrap().set_len(3 * World::<KIB>::PAGE_LEN).unwrap();
        assert_eq!(world.fault(2, Order::Small, intent), FaultOutcome::Installed, "{intent:?}");
        let copies = world.view.copies.lock().unwrap();
        assert!(copies.iter().all(|&len| len as u64 == World::<KIB>::PAGE_LEN), "{copies:?}");
    }
}

/// The host allocates storage by its own pages.
fn a_durable_store_has_a_place_for_all_of_its_page<const KIB: u64>() {
    let world = World::<KIB>::new(2 * RANGE_LEN);
    let (first, count) = (5 * World::<KIB>::PAGE_LEN / HOST_PAGE_LEN, World::<KIB>::PAGE_LEN / HOST_PAGE_LEN);
    assert_eq!(world.fault(5, Order::Small, Intent::StoreSync), FaultOutcome::Installed);
    let touched: Vec<_> = world.window.touched.lock().unwrap().iter().copied().collect();
    assert_eq!(touched, (first..first + count).collect::<Vec<_>>());
    assert_eq!(
        world.fault(Paged::<KIB>::PAGE_SIZE.pages_per_huge(), Order::Huge, Intent::StoreSync),
        FaultOutcome::Installed
    );
    let huge = RANGE_LEN / HOST_PAGE_LEN;
    assert!((huge..2 * huge).all(|page| world.window.touched.lock().unwrap().contains(&page)));
}

#[test]
fn a_page_of_16_kib_beyond_the_hosts_memory_is_not_mapped() {
    a_page_beyond_the_hosts_memory_is_not_mapped::<16>();
}

#[test]
fn a_page_of_64_kib_beyond_the_hosts_memory_is_not_mapped() {
    a_page_beyond_the_hosts_memory_is_not_mapped::<64>();
}

#[test]
fn a_file_that_the_host_has_extended_is_not_taken_for_shorter_by_any_size() {
    a_file_that_the_host_has_extended_is_not_taken_for_shorter::<4>();
    a_file_that_the_host_has_extended_is_not_taken_for_shorter::<16>();
    a_file_that_the_host_has_extended_is_not_taken_for_shorter::<64>();
}

#[test]
fn a_durable_store_has_a_place_for_all_of_its_page_of_any_size() {
    a_durable_store_has_a_place_for_all_of_its_page::<4>();
    a_durable_store_has_a_place_for_all_of_its_page::<16>();
    a_durable_store_has_a_place_for_all_of_its_page::<64>();
}
