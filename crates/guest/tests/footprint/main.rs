//! What the library takes of a system's memory: contiguous memory that the device accesses, and heap.
//!
//! `cargo test -p transom-guest --test footprint -- --nocapture` prints the table. Nothing of the server in this
//! process is counted, and the fake device allocates nothing. There is one test because the count is per process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

#[allow(dead_code, reason = "shared with the tests of the device")]
#[path = "../device/memory.rs"]
mod device_memory;
#[allow(dead_code, reason = "shared with the tests of the device")]
#[path = "../device/fake.rs"]
mod fake;
#[allow(dead_code, reason = "shared with the tests of the session")]
#[path = "../session/peer.rs"]
mod peer;
mod server;
#[path = "../session/memory.rs"]
mod session_memory;

/// What the fake device and the server expect.
mod memory {
    pub(crate) use crate::{device_memory::at, session_memory::Heap};
}

use std::{
    ptr::NonNull,
    sync::{Arc, Mutex},
};

use transom_allocations::{self as allocations, CountingAllocator};
use transom_guest::{
    cache::CacheOptions,
    channel::Channel,
    dax::{Dax, DaxOptions, RANGE_LEN, Window},
    device::{Settings, VirtioFs},
    dma::{Direct, DirectMemory, DmaChoice, DmaMemory},
    fs::{Fs, OpenOptions},
    session::{Session, SessionConfig},
    volume::Volume,
};
use transom_wire::ops::init::InitFlags;

use device_memory::Heap;
use fake::{ALL, Fake, FakeTransport};
use peer::Plain;
use server::{Memory, Windowed};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Length of the window, and of the file in it.
const WINDOW_LEN: u64 = 1 << 30;
/// Files whose names are cached.
const FILES: usize = 500;

/// A row of the table: bytes in all, of contiguous memory for the device, the longest piece of it, and of the heap.
#[derive(Debug, Clone, Copy, Default)]
struct Footprint {
    dma: usize,
    longest: usize,
    heap: usize,
}

impl Footprint {
    fn all(self) -> usize {
        self.dma + self.heap
    }
}

/// Memory for devices; counts it, and keeps it out of the heap's count.
#[derive(Default)]
struct Contiguous(Mutex<(usize, usize)>);

impl DirectMemory for &'static Contiguous {
    fn allocate(&self, len_bytes: usize) -> Option<DmaMemory> {
        let mut counts = self.0.lock().unwrap();
        *counts = (counts.0 + len_bytes, counts.1.max(len_bytes));
        allocations::with_exempt(true, || HEAP.allocate(len_bytes))
    }

    fn free(&self, memory: DmaMemory) {
        self.0.lock().unwrap().0 -= memory.len();
        allocations::with_exempt(true, || HEAP.free(memory));
    }

    fn address(&self, start: NonNull<u8>, _: usize) -> Option<u64> {
        Some(start.addr().get() as u64)
    }

    fn contiguous_len_max(&self) -> usize {
        usize::MAX
    }
}

static HEAP: std::sync::LazyLock<&'static Heap> = std::sync::LazyLock::new(|| Box::leak(Box::new(Heap::new())));

/// Returns what `make` takes, as long as its value lives.
fn heap_of<T>(make: impl FnOnce() -> T) -> (usize, T) {
    allocations::with_exempt(false, || {
        let before = allocations::live_bytes();
        let value = make();
        ((allocations::live_bytes() - before) as usize, value)
    })
}

/// A device with `queues` request queues of `queue_len` descriptors, and the default settings.
fn device(queues: u32, queue_len: u16) -> Footprint {
    let fake = Arc::new(Fake::new(ALL, queues, queue_len));
    let contiguous: &'static Contiguous = Box::leak(Box::default());
    let dma = DmaChoice { direct: Some(Arc::new(Direct::new(contiguous))), ..DmaChoice::default() };
    let transport = FakeTransport(Arc::clone(&fake));
    let (heap, device) = heap_of(|| VirtioFs::new(transport, Arc::new(Plain), &dma, Settings::default()).unwrap());
    let (dma, longest) = *contiguous.0.lock().unwrap();
    drop(device);
    assert_eq!(contiguous.0.lock().unwrap().0, 0, "not everything was freed");
    Footprint { dma, longest, heap }
}

/// A mounted share without anything cached; then with the names of [`FILES`] files; each name in all.
fn names() -> (Footprint, usize) {
    let (_dir, channel) = Windowed::new();
    let (heap, fs) = heap_of(|| {
        let session = Session::begin(channel as Arc<dyn Channel>, Arc::new(Plain), SessionConfig::default()).unwrap();
        Fs::new(Arc::new(Volume::new(session, CacheOptions::default())))
    });
    for number in 0..FILES {
        fs.create(format!("a-name-of-usual-length-{number}")).unwrap().close().unwrap();
    }
    fs.volume().drop_names();
    let (names, ()) = heap_of(|| {
        for number in 0..FILES {
            fs.metadata(format!("a-name-of-usual-length-{number}")).unwrap();
        }
    });
    (Footprint { heap, ..Footprint::default() }, names / FILES)
}

/// The bookkeeping of a window: nothing mapped, and all of it.
fn window() -> (Footprint, Footprint) {
    let (heap, window) = heap_of(|| Window::<Plain>::new(Arc::new(Memory(WINDOW_LEN))));
    let empty = Footprint { heap, ..Footprint::default() };
    drop(window);
    let (dir, channel) = Windowed::new();
    std::fs::File::create(dir.path().join("file")).unwrap().set_len(WINDOW_LEN).unwrap();
    let config = SessionConfig::default().with(InitFlags::MAP_ALIGNMENT);
    let session = Session::begin(channel, Arc::new(Plain), config).unwrap();
    let dax = DaxOptions { dax: Dax::Always, size_min_bytes: 0 };
    let memory = Arc::new(Memory(WINDOW_LEN));
    let fs = Fs::new(Arc::new(Volume::with_window(session, CacheOptions::default(), memory, dax)));
    let file = fs.open("file", &OpenOptions::new().read(true)).unwrap();
    let (mapped, ()) = heap_of(|| {
        for range in 0..WINDOW_LEN / RANGE_LEN {
            assert_eq!(file.read_at(range * RANGE_LEN, &mut [0]), Ok(1));
        }
    });
    assert_eq!(fs.volume().window().unwrap().counts().mapped, WINDOW_LEN / RANGE_LEN);
    (empty, Footprint { heap: heap + mapped, ..Footprint::default() })
}

#[test]
fn what_the_library_takes_fits_a_unikernel_with_16_mib() {
    let (mounted, name) = names();
    let (window_empty, window_full) = window();
    let rows = [
        ("device, 1 queue of 128", device(1, 128)),
        ("device, 1 queue of 1024", device(1, 1024)),
        ("device, 16 queues of 128", device(16, 128)),
        ("device, 16 queues of 1024", device(16, 1024)),
        ("session and volume", mounted),
        ("a cached name", Footprint { heap: name, ..Footprint::default() }),
        ("window of 1 GiB, nothing mapped", window_empty),
        ("window of 1 GiB, all mapped", window_full),
    ];
    println!("| in bytes | contiguous | longest piece | heap |\n|---|---|---|---|");
    for (what, Footprint { dma, longest, heap }) in rows {
        println!("| {what} | {dma} | {longest} | {heap} |");
    }
    let of = |what: &str| rows.into_iter().find(|(name, _)| *name == what).unwrap().1.all();
    // What is there all the time takes less than a 32nd of the memory, and a 16th with a window; with each of its
    // queues in use, the largest device takes less than half.
    let always = of("device, 1 queue of 1024") + of("session and volume");
    assert!(always < 512 << 10, "{always}");
    assert!(always + of("window of 1 GiB, all mapped") < 1 << 20, "{always}");
    assert!(of("device, 16 queues of 1024") < 8 << 20);
    // The caches of such a system.
    let options = CacheOptions::for_memory(16 << 20);
    let caches = options.data_max_bytes + options.directories_max_bytes + options.names_max * name;
    println!("caches of a system with 16 MiB, at most: {caches} bytes, of {} names", options.names_max);
    assert!(caches < 4 << 20, "{caches}");
}
