//! The addresses of all mapped files.
//!
//! With the first mapping, the process reserves one range of addresses without access, so that a fault belongs to a
//! mapped file exactly if its address lies there. An [`Extent`] is a part of it that has one owner.

#![expect(unsafe_code, reason = "reserves addresses")]

use std::{
    io,
    ops::Range,
    ptr,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use super::{free_list::FreeList, room};

/// Extents begin and end at multiples of a huge page, so that addresses and file offsets are congruent.
const GRANULE: usize = 2 << 20;
/// How much is reserved if the system allows it; else half of that, and so on down to [`LEN_MIN`].
const LEN_MAX: usize = 1 << 40;
const LEN_MIN: usize = 1 << 30;

/// The start and end of the reserved addresses, or 0 before the reservation. Read by the signal handler.
static START: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Returns whether `address` belongs to a mapped file.
pub(super) fn contains(address: usize) -> bool {
    (START.load(Ordering::Acquire)..END.load(Ordering::Acquire)).contains(&address)
}

/// Reserved addresses with one owner, a multiple of 2 MiB.
///
/// Dropping an extent leaks its addresses; [`Self::free`] lets others use them.
#[derive(Debug)]
pub(super) struct Extent(Range<usize>);

impl Extent {
    /// Takes at least `len` bytes of addresses, at which nothing is accessible.
    ///
    /// # Errors
    ///
    /// Returns ENOMEM if no such range is free.
    pub(super) fn new(len: usize) -> io::Result<Self> {
        let len = len.max(1).checked_next_multiple_of(GRANULE).ok_or(io::ErrorKind::OutOfMemory)?;
        let range = free_addresses()?.lock().take(len).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self(range))
    }

    pub(super) fn addresses(&self) -> Range<usize> {
        self.0.clone()
    }

    /// Returns the addresses to the free ones and leaves the extent empty. Nothing must be accessible at them any more.
    pub(super) fn free(&mut self) {
        let addresses = std::mem::replace(&mut self.0, 0..0);
        if let (false, Ok(free)) = (addresses.is_empty(), free_addresses()) {
            free.lock().put(addresses);
        }
    }
}

/// Returns the free addresses; reserves them with the first call.
fn free_addresses() -> io::Result<&'static Mutex<FreeList>> {
    static FREE: OnceLock<Mutex<FreeList>> = OnceLock::new();
    if let Some(free) = FREE.get() {
        return Ok(free);
    }
    let range = reserve()?;
    let mut is_ours = false;
    let free = FREE.get_or_init(|| {
        is_ours = true;
        END.store(range.end, Ordering::Release);
        START.store(range.start, Ordering::Release);
        Mutex::new(FreeList::new(range.clone()))
    });
    if !is_ours {
        // SAFETY: `reserve` mapped this range, and another thread's reservation is used instead of it.
        unsafe { munmap(ptr::with_exposed_provenance_mut(range.start), range.len()) }?;
    }
    room::keep();
    Ok(free)
}

/// Reserves addresses, aligned to [`GRANULE`].
fn reserve() -> io::Result<Range<usize>> {
    let mut len = LEN_MAX;
    loop {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the address of the new mapping, which nothing can access.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), flags) };
        match start {
            Ok(start) => {
                let start = start.expose_provenance();
                let first = start.next_multiple_of(GRANULE);
                return Ok(first..first + (start + len - first) / GRANULE * GRANULE);
            }
            Err(error) if len <= LEN_MIN => return Err(error.into()),
            Err(_) => len /= 2,
        }
    }
}
