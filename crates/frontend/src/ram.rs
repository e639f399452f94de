//! The guest's memory: a memfd that the back end also maps, and an allocator for rings and buffers in it.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use vm_memory::{AtomicAccess, ByteValued, Bytes, FileOffset, GuestAddress, GuestMemoryMmap};

use super::message::Region;

/// The difference between the front end's virtual address and the guest address.
const USER_ADDR_OFFSET: u64 = 0x7000_0000_0000;
/// Address 0 is never allocated: virtio treats a ring at address 0 as absent.
const FIRST_ADDR: u64 = 0x1000;

/// Guest memory that begins at address 0.
#[derive(Clone)]
pub struct Ram(Arc<Inner>);

struct Inner {
    file: File,
    size: u64,
    memory: GuestMemoryMmap<()>,
    /// Free ranges (start, end), sorted by address.
    free: Mutex<Vec<(u64, u64)>>,
}

/// A piece of guest memory, freed on drop.
pub struct Buffer {
    ram: Ram,
    addr: u64,
    len: u64,
}

impl Ram {
    /// Creates `size` bytes of zeroed memory.
    pub fn new(size: u64) -> io::Result<Self> {
        let file = File::from(memfd_create("guest-ram", MemfdFlags::CLOEXEC)?);
        ftruncate(&file, size)?;
        let range = (GuestAddress(0), size as usize, Some(FileOffset::new(file.try_clone()?, 0)));
        let memory = GuestMemoryMmap::from_ranges_with_files([range]).map_err(io::Error::other)?;
        Ok(Self(Arc::new(Inner { file, size, memory, free: Mutex::new(vec![(FIRST_ADDR, size)]) })))
    }

    /// Returns the memory as a region of a memory table.
    pub fn region(&self) -> Region {
        Region { guest_addr: 0, size: self.0.size, user_addr: USER_ADDR_OFFSET, mmap_offset: 0 }
    }

    /// Returns the front end's virtual address of `addr`.
    pub fn user_addr(&self, addr: u64) -> u64 {
        addr.wrapping_add(USER_ADDR_OFFSET)
    }

    /// Returns the file that backs the memory.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.0.file.as_fd()
    }

    /// Returns the size in bytes, which is also the first address past the memory.
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Allocates a buffer of `len` bytes.
    ///
    /// # Panics
    /// If memory is exhausted; the caller chooses both sizes.
    pub fn alloc(&self, len: u64, align: u64) -> Buffer {
        let mut free = self.0.free.lock().unwrap_or_else(PoisonError::into_inner);
        let found = free.iter().enumerate().find_map(|(index, &(start, end))| {
            let addr = start.next_multiple_of(align);
            (addr + len <= end).then_some((index, start, addr, end))
        });
        let Some((index, start, addr, end)) = found else { panic!("no {len} bytes of guest memory are free") };
        let rest = [(start, addr), (addr + len, end)].into_iter().filter(|(start, end)| start < end);
        free.splice(index..=index, rest);
        Buffer { ram: self.clone(), addr, len }
    }

    /// Copies `bytes` to `addr`.
    pub fn write(&self, addr: u64, bytes: &[u8]) {
        self.0.memory.write_slice(bytes, GuestAddress(addr)).expect("the address is in guest memory");
    }

    /// Copies `len` bytes from `addr`.
    pub fn read(&self, addr: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.memory.read_slice(&mut bytes, GuestAddress(addr)).expect("the address is in guest memory");
        bytes
    }

    /// Loads a little-endian number atomically, with acquire ordering.
    pub fn load<T: AtomicAccess>(&self, addr: u64) -> T {
        self.0.memory.load(GuestAddress(addr), Ordering::Acquire).expect("the address is aligned guest memory")
    }

    /// Stores a number atomically, with release ordering.
    pub fn store<T: AtomicAccess + ByteValued>(&self, addr: u64, value: T) {
        self.0.memory.store(value, GuestAddress(addr), Ordering::Release).expect("the address is aligned guest memory");
    }
}

impl Buffer {
    /// Returns the guest address.
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns whether the buffer is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        let mut free = self.ram.0.free.lock().unwrap_or_else(PoisonError::into_inner);
        let index = free.partition_point(|&(start, _)| start < self.addr);
        free.insert(index, (self.addr, self.addr + self.len));
        free.dedup_by(|next, previous| {
            let touches = previous.1 == next.0;
            if touches {
                previous.1 = next.1;
            }
            touches
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_buffers_join_again() {
        let ram = Ram::new(0x10000).unwrap();
        let buffers: Vec<_> =
            [(1, 1), (100, 16), (4096, 4096), (7, 2)].map(|(len, align)| ram.alloc(len, align)).into();
        assert!(buffers.iter().all(|buffer| buffer.addr() >= FIRST_ADDR));
        assert_eq!((buffers[1].addr() % 16, buffers[2].addr() % 4096), (0, 0));
        drop(buffers);
        assert_eq!(*ram.0.free.lock().unwrap(), [(FIRST_ADDR, 0x10000)]);
    }
}
