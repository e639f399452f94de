//! The log in which a back end marks the guest memory that it has written, for a migration.

use std::{fs::File, io, os::fd::AsFd, os::unix::fs::FileExt};

use anyhow::ensure;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::{
    FrontEnd,
    message::{VERSION, header, request, u32s, u64s},
    ring::Ring,
};

/// VHOST_F_LOG_ALL.
pub const LOG_ALL: u64 = 1 << 26;
/// VHOST_VRING_F_LOG: also log the used ring.
const VRING_LOG: u32 = 1;
/// Bytes of guest memory for each bit.
pub const LOG_PAGE: u64 = 4096;

/// Shared memory with a bit for each page of guest memory.
pub struct DirtyLog {
    file: File,
    len: u64,
}

impl DirtyLog {
    /// Creates a log without marks for guest memory that ends at `end`.
    pub fn new(end: u64) -> io::Result<Self> {
        let file = File::from(memfd_create("dirty-log", MemfdFlags::CLOEXEC)?);
        let len = end.div_ceil(LOG_PAGE * 8).next_multiple_of(LOG_PAGE);
        ftruncate(&file, len)?;
        Ok(Self { file, len })
    }

    /// Removes all marks. Marks that the back end makes meanwhile may be lost.
    pub fn clear(&self) -> io::Result<()> {
        self.file.write_all_at(&vec![0; self.len as usize], 0)
    }

    /// Returns the numbers of the marked pages, in ascending order.
    pub fn marked(&self) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; self.len as usize];
        self.file.read_exact_at(&mut bytes, 0)?;
        let is_marked = |page: &u64| bytes[(page / 8) as usize] & 1 << (page % 8) != 0;
        Ok((0..self.len * 8).filter(is_marked).collect())
    }
}

impl FrontEnd {
    /// Gives the back end `log`.
    pub fn send_log(&self, log: &DirtyLog) -> anyhow::Result<()> {
        let payload = u64s(&[log.len, 0]);
        let message = [header(request::SET_LOG_BASE, VERSION, payload.len()), payload].concat();
        self.channel.send_raw(&message, &[log.file.as_fd()])?;
        let reply = self.channel.reply_to(request::SET_LOG_BASE)?;
        ensure!(reply.len() == 16, "SET_LOG_BASE answered {} bytes", reply.len());
        Ok(())
    }

    /// Switches marking on or off, for the memory and for the used rings of `queues`, in the order of QEMU.
    pub fn switch_log(&self, is_on: bool, queues: &[(u32, &Ring)]) -> anyhow::Result<()> {
        let log_all = if is_on { LOG_ALL } else { 0 };
        self.channel.tell(request::SET_FEATURES, &u64s(&[self.features() | log_all]), &[])?;
        for &(index, ring) in queues {
            let [table, avail, used] = ring.addresses();
            let user = |addr| self.ram.user_addr(addr);
            let flags = if is_on { VRING_LOG } else { 0 };
            let addresses = u64s(&[user(table), user(used), user(avail), used]);
            self.channel.tell(request::SET_VRING_ADDR, &[u32s(&[index, flags]), addresses].concat(), &[])?;
        }
        Ok(())
    }
}
