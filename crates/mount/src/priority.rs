//! The high-priority queue: FORGET, BATCH_FORGET and INTERRUPT of all threads. None of them is answered.
//!
//! It does not wait for requests, and requests do not wait for it: where every slot of the other queues is taken by locks
//! that somebody waits for, an INTERRUPT still gets through. Locks: `inner`, held to add and to pop, never while waiting;
//! `turn`, under which `inner` is taken, by threads that wait for room.

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

use super::{End, queues::PRIORITY_CHAINS_MAX, slots::segment};
use transom_user::transport::VhostUser;

/// Bytes of one message; longer lists of references are sent in parts.
const MESSAGE_LEN_MAX: usize = 4096;
const LIST_OFFSET: usize = size_of::<InHeader>() + size_of::<BatchForgetIn>();
const FORGETS_MAX: usize = (MESSAGE_LEN_MAX - LIST_OFFSET) / size_of::<ForgetOne>();
const _: () = assert!(FORGETS_MAX > 0);

pub(super) struct Priority {
    inner: Mutex<Inner>,
    /// Held by the one thread that waits for room: a wake of the device is for one, and the others wait for that one.
    turn: Mutex<()>,
}

struct Inner {
    ring: Ring,
    messages: DmaBuffer,
    /// Messages that are not in flight.
    free: Vec<u16>,
}

impl Priority {
    /// The queue with `messages`, which hold [`Self::MEMORY_LEN`] bytes.
    pub(super) fn new(ring: Ring, messages: DmaBuffer) -> Self {
        Self {
            turn: Mutex::new(()),
            inner: Mutex::new(Inner { ring, messages, free: (0..PRIORITY_CHAINS_MAX).rev().collect() }),
        }
    }

    pub(super) const MEMORY_LEN: usize = PRIORITY_CHAINS_MAX as usize * MESSAGE_LEN_MAX;

    /// Sends one message as the kernel gave it, BATCH_FORGET of any length. Blocks only while the queue is full: the daemon
    /// takes its messages whatever its other queues do.
    ///
    /// Errors: the device is gone or broken, or `stop` became readable.
    pub(super) fn send(&self, device: &VhostUser, stop: BorrowedFd<'_>, message: &[u8]) -> Result<(), End> {
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

    fn send_one(&self, device: &VhostUser, stop: BorrowedFd<'_>, message: &[u8]) -> Result<(), End> {
        if message.len() > MESSAGE_LEN_MAX {
            // The kernel has nothing else for this queue that is as long.
            return Ok(());
        }
        loop {
            if device.is_gone() {
                return Err(End::Gone);
            }
            let added = self.inner.lock().add(message)?;
            if let Some(is_wanted) = added {
                if is_wanted {
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
    /// Puts a message into the ring, and tells whether the device wants to be told; nothing where it is full.
    fn add(&mut self, message: &[u8]) -> Result<Option<bool>, End> {
        self.reap()?;
        let Some(slot) = self.free.pop() else { return Ok(None) };
        let offset = usize::from(slot) * MESSAGE_LEN_MAX;
        self.messages.write(offset, message);
        let readable = [segment(&self.messages, offset, message.len())];
        self.ring.add(&readable, &[], slot).expect("a free message stands for a chain that the ring has room for");
        Ok(Some(self.ring.needs_notify()))
    }

    /// Whether there is no room, and then the device tells when it has used a message.
    fn is_full_and_armed(&mut self) -> Result<bool, End> {
        self.reap()?;
        if self.free.is_empty() && self.ring.arm() {
            self.reap()?;
        }
        Ok(self.free.is_empty())
    }

    fn reap(&mut self) -> Result<(), End> {
        while let Some(used) = self.ring.pop().map_err(|broken| End::Broken(broken.0))? {
            self.free.push(used.cookie);
        }
        Ok(())
    }
}

/// Blocks until the device has told of the queue.
fn wait(device: &VhostUser, stop: BorrowedFd<'_>) -> Result<(), End> {
    let call = device.call_fd(QUEUE_HIPRIO as u16).ok_or(End::Gone)?;
    let mut fds = [PollFd::new(&call, PollFlags::IN), PollFd::new(&stop, PollFlags::IN)];
    // EINTR leads to another look.
    let _ = poll(&mut fds, None);
    if !fds[1].revents().is_empty() {
        return Err(End::Stopped);
    }
    if !fds[0].revents().is_empty() {
        // Another thread may have been faster; the flag of the daemon's side decides whether this blocks, so it is set.
        let _ = rustix::io::ioctl_fionbio(call, true);
        let _ = rustix::io::read(call.as_fd(), &mut [0; 8]);
    }
    Ok(())
}
