//! Two kernels' `Hal`: one that copies what it shares, as a kernel with a bounce pool does, and one without memory.

#![expect(unsafe_code, reason = "a Hal hands out memory by address")]

use std::{
    alloc::{Layout, alloc_zeroed, dealloc},
    ptr::{self, NonNull},
    sync::{
        Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use virtio_drivers::{BufferDirection, Hal, PAGE_SIZE, PhysAddr};

/// Allocations and shared buffers that were not given back.
static LIVE: AtomicI64 = AtomicI64::new(0);

pub(crate) fn live() -> i64 {
    LIVE.load(Ordering::SeqCst)
}

/// Where the buffers were that were shared for the device to write.
static FOR_REPLIES: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Returns whether `bytes` were shared for the device to write: then all of them were copied, and copied back.
pub(crate) fn was_for_reply(bytes: &[u8]) -> bool {
    FOR_REPLIES.lock().unwrap().iter().any(|start| bytes.as_ptr_range().contains(&ptr::without_provenance(*start)))
}

/// Copies, into memory full of what others have left there.
pub(crate) struct Copying;

fn pages_layout(pages: usize) -> Layout {
    Layout::from_size_align(pages * PAGE_SIZE, PAGE_SIZE).unwrap()
}

// SAFETY: what it returns was just allocated, and is the caller's until it is given back.
unsafe impl Hal for Copying {
    fn dma_alloc(pages: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        LIVE.fetch_add(1, Ordering::SeqCst);
        // SAFETY: virtio-drivers and the adapter ask for one page or more.
        let start = NonNull::new(unsafe { alloc_zeroed(pages_layout(pages)) }).unwrap();
        (start.as_ptr().expose_provenance() as u64, start)
    }

    unsafe fn dma_dealloc(_: PhysAddr, start: NonNull<u8>, pages: usize) -> i32 {
        LIVE.fetch_sub(1, Ordering::SeqCst);
        // SAFETY: allocated by `dma_alloc` with this layout, as the caller promises.
        unsafe { dealloc(start.as_ptr(), pages_layout(pages)) };
        0
    }

    unsafe fn mmio_phys_to_virt(_: PhysAddr, _: usize) -> NonNull<u8> {
        unreachable!("the transport needs no registers")
    }

    unsafe fn share(buffer: NonNull<[u8]>, direction: BufferDirection) -> PhysAddr {
        LIVE.fetch_add(1, Ordering::SeqCst);
        if direction != BufferDirection::DriverToDevice {
            FOR_REPLIES.lock().unwrap().push(buffer.cast::<u8>().addr().get());
        }
        let mut copy = vec![b'?'; buffer.len()].into_boxed_slice();
        if direction != BufferDirection::DeviceToDriver {
            // SAFETY: the caller lends the buffer.
            unsafe { ptr::copy_nonoverlapping(buffer.as_ptr().cast(), copy.as_mut_ptr(), buffer.len()) };
        }
        Box::into_raw(copy).cast::<u8>().expose_provenance() as u64
    }

    unsafe fn unshare(address: PhysAddr, buffer: NonNull<[u8]>, direction: BufferDirection) {
        LIVE.fetch_sub(1, Ordering::SeqCst);
        let start: *mut u8 = ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: `share` made it of a box of this length, as the caller promises.
        let copy = unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(start, buffer.len())) };
        if direction != BufferDirection::DriverToDevice {
            // SAFETY: the caller lends the buffer.
            unsafe { ptr::copy_nonoverlapping(copy.as_ptr(), buffer.as_ptr().cast(), buffer.len()) };
        }
    }
}

/// Has no memory, which virtio-drivers expects to be said by address 0.
pub(crate) struct Exhausted;

// SAFETY: it returns no memory.
unsafe impl Hal for Exhausted {
    fn dma_alloc(_: usize, _: BufferDirection) -> (PhysAddr, NonNull<u8>) {
        (0, NonNull::dangling())
    }

    unsafe fn dma_dealloc(_: PhysAddr, _: NonNull<u8>, _: usize) -> i32 {
        unreachable!("nothing was allocated")
    }

    unsafe fn mmio_phys_to_virt(_: PhysAddr, _: usize) -> NonNull<u8> {
        unreachable!("the transport needs no registers")
    }

    unsafe fn share(_: NonNull<[u8]>, _: BufferDirection) -> PhysAddr {
        unreachable!("the device is not used")
    }

    unsafe fn unshare(_: PhysAddr, _: NonNull<[u8]>, _: BufferDirection) {}
}
