//! The high-priority queue: FORGET, BATCH_FORGET and INTERRUPT of all workers. They have no replies.
//!
//! It is independent of the request queues: an INTERRUPT gets through even if every slot of those is taken by a blocked
//! lock. Locks: `inner`, held to add and to pop, never while waiting; `turn`, under which `inner` is taken, by threads
//! that wait for room.

use std::os::fd::{AsFd as _, BorrowedFd};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, poll};
use transom_guest::{dma::DmaBuffer, ring::Ring, transport::Transport as _};
use transom_wire::{
    Opcode,
    config::QUEUE_HIPRIO,
    header::InHeader,
    ops::forget::{BatchForgetIn, ForgetOne},
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::{MountEnd, queues::HIPRIO_CHAINS_MAX, slots::segment};
use transom_user::transport::VhostUser;

/// The longest message. A longer BATCH_FORGET is sent in parts.
const MESSAGE_LEN_MAX: usize = 4096;
const LIST_OFFSET: usize = size_of::<InHeader>() + size_of::<BatchForgetIn>();
const FORGETS_MAX: usize = (MESSAGE_LEN_MAX - LIST_OFFSET) / size_of::<ForgetOne>();
const _: () = assert!(FORGETS_MAX > 0);

/// The high-priority queue of a connection.
pub(super) struct HiprioQueue {
    inner: Mutex<Inner>,
    /// Held by the one thread that waits for room. The device's signal wakes one thread; the others wait for this one.
    turn: Mutex<()>,
}

struct Inner {
    ring: Ring,
    messages: DmaBuffer,
    /// Messages that are not in flight.
    free: Vec<u16>,
}

impl HiprioQueue {
    /// Creates the queue, with `messages` of [`Self::MEMORY_LEN`] bytes.
    pub(super) fn new(ring: Ring, messages: DmaBuffer) -> Self {
        Self {
            turn: Mutex::new(()),
            inner: Mutex::new(Inner { ring, messages, free: (0..HIPRIO_CHAINS_MAX).rev().collect() }),
        }
    }

    /// The bytes of memory for messages.
    pub(super) const MEMORY_LEN: usize = HIPRIO_CHAINS_MAX as usize * MESSAGE_LEN_MAX;

    /// Sends one message of the kernel; a BATCH_FORGET may have any length.
    ///
    /// Blocks only while the queue is full: the daemon takes its messages whatever its other queues do.
    ///
    /// # Errors
    /// The device is gone or broken, or `stop` became readable.
    pub(super) fn send(&self, device: &VhostUser, stop: BorrowedFd<'_>, message: &[u8]) -> Result<(), MountEnd> {
        let Ok((header, rest)) = InHeader::read_from_prefix(message) else { return Ok(()) };
        if header.opcode.get() != Opcode::BatchForget as u32 || message.len() <= MESSAGE_LEN_MAX {
            return self.send_one(device, stop, message);
        }
        let Some(list) = rest.get(size_of::<BatchForgetIn>()..) else { return Ok(()) };
        for part in list.chunks(FORGETS_MAX * size_of::<ForgetOne>()) {
            let count = (part.len() / size_of::<ForgetOne>()) as u32;
            let header = InHeader { len: ((LIST_OFFSET + part.len()) as u32).into(), ..header };
            let counted = BatchForgetIn { count: count.into(), dummy: 0.into() };
            self.send_one(device, stop, &[header.as_bytes(), counted.as_bytes(), part].concat())?;
        }
        Ok(())
    }

    fn send_one(&self, device: &VhostUser, stop: BorrowedFd<'_>, message: &[u8]) -> Result<(), MountEnd> {
        if message.len() > MESSAGE_LEN_MAX {
            // No other message for this queue is as long.
            return Ok(());
        }
        loop {
            if device.is_gone() {
                return Err(MountEnd::Gone);
            }
            let added = self.inner.lock().add(message)?;
            if let Some(should_notify) = added {
                if should_notify {
                    device.notify(QUEUE_HIPRIO as u16);
                }
                return Ok(());
            }
            let _turn = self.turn.lock();
            let is_full = self.inner.lock().is_full_and_armed()?;
            if is_full {
                wait(device, stop)?;
            }
        }
    }
}

impl Inner {
    /// Puts a message into the ring. Returns whether to notify the device, or `None` if the ring is full.
    fn add(&mut self, message: &[u8]) -> Result<Option<bool>, MountEnd> {
        self.reap()?;
        let Some(slot) = self.free.pop() else { return Ok(None) };
        let offset = usize::from(slot) * MESSAGE_LEN_MAX;
        self.messages.write(offset, message);
        let readable = [segment(&self.messages, offset, message.len())];
        self.ring.add(&readable, &[], slot).expect("the ring has room for as many chains as there are messages");
        Ok(Some(self.ring.needs_notify()))
    }

    /// Returns whether there is no room. If so, the device will signal the next message that it has used.
    fn is_full_and_armed(&mut self) -> Result<bool, MountEnd> {
        self.reap()?;
        if self.free.is_empty() && self.ring.arm() {
            self.reap()?;
        }
        Ok(self.free.is_empty())
    }

    fn reap(&mut self) -> Result<(), MountEnd> {
        while let Some(used) = self.ring.pop().map_err(|broken| MountEnd::Broken(broken.0))? {
            self.free.push(used.cookie);
        }
        Ok(())
    }
}

/// Blocks until the device has signalled the queue.
fn wait(device: &VhostUser, stop: BorrowedFd<'_>) -> Result<(), MountEnd> {
    let call = device.call_fd(QUEUE_HIPRIO as u16).ok_or(MountEnd::Gone)?;
    let mut fds = [PollFd::new(&call, PollFlags::IN), PollFd::new(&stop, PollFlags::IN)];
    // After EINTR the caller looks again.
    let _ = poll(&mut fds, None);
    if !fds[1].revents().is_empty() {
        return Err(MountEnd::Stopped);
    }
    if !fds[0].revents().is_empty() {
        // Another thread may have read it already. Only the flag of the open file, which the daemon shares, keeps this
        // from blocking, so it is set here.
        let _ = rustix::io::ioctl_fionbio(call, true);
        let _ = rustix::io::read(call.as_fd(), &mut [0; 8]);
    }
    Ok(())
}
