//! An io_uring by which the kernel's requests come, and the memory of its entries: heads of this process's own, and payloads in
//! the memory shared with the daemon.
//!
//! The kernel touches either only within calls of the thread that has registered them, since it copies there
//! (IORING_SETUP_DEFER_TASKRUN): between two calls they are this thread's. A daemon that writes to the payload at the wrong
//! time changes the data of a reply, which is its own to choose.
//! Source: linux/fs/fuse/dev_uring.c, Documentation/filesystems/fuse/fuse-io-uring.rst, io_uring(7).

#![expect(unsafe_code, reason = "what is handed to an io_uring is named by pointers")]

use std::{
    cell::UnsafeCell,
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd},
    sync::Arc,
};

use io_uring::{
    EnterFlags, IoUring, cqueue,
    opcode::{PollAdd, UringCmd80},
    squeue::Entry128,
    types::{Fd, Fixed},
};
use rustix::io::Errno;
use transom_wire::header::{InHeader, OutHeader};
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::header::{COMMIT_AND_FETCH, CommandReq, Head, PART_LEN, REGISTER};
use crate::fuse::{
    kernel::{Kernel, Piece},
    lane::Memory,
};

/// Commands that are gathered before a call submits them.
const SUBMISSIONS_MAX: u32 = 64;
/// Completions that are not an entry's: a few descriptors that are watched, each of which may complete more than once.
const WATCHES_MAX: u32 = 64;
/// Where the descriptor of `/dev/fuse` lies in the ring's table.
const DEVICE: Fixed = Fixed(0);
/// Of the `user_data` of what is no entry.
const WATCHED: u64 = 1 << 32;
/// A head, and a payload.
const BUFFERS: u32 = 2;
/// Of an SQE: where the number of buffers lies.
const SQE_LEN_OFFSET: usize = 24;

/// The ring of one thread.
pub(in crate::fuse) struct KernelRing {
    /// To end before the memory that it knows of.
    ring: IoUring<Entry128>,
    /// By entry.
    heads: Box<[UnsafeCell<Head>]>,
    /// By entry, for the time of its registration.
    buffers: Box<[[libc::iovec; BUFFERS as usize]]>,
    memory: Arc<Memory>,
    /// What each call says beside what it does.
    flags: EnterFlags,
}

// SAFETY: the pointers in `buffers` are to heads, which go with the value, and into memory that is shared anyway.
unsafe impl Send for KernelRing {}

/// A request without its payload, as the kernel has described it.
pub(super) struct Request {
    pub(super) header: InHeader,
    /// Zeros, or what an earlier request has left, behind their end.
    pub(super) args: [u8; PART_LEN],
    pub(super) commit_id: u64,
    pub(super) payload_len: usize,
}

/// What has come.
pub(super) enum Event {
    /// An entry has a request, or will have none any more.
    Entry(u16, Result<(), Errno>),
    /// A descriptor that is watched has become readable; whether it goes on being watched.
    Readable(u32, bool),
}

impl KernelRing {
    /// One with `entries`, for payloads in `memory`. Errors: what io_uring_setup(2) says, EPERM where a policy forbids it.
    pub(super) fn new(entries: u16, memory: Arc<Memory>) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize((u32::from(entries) + WATCHES_MAX).next_power_of_two())
            .build(SUBMISSIONS_MAX)?;
        let heads = (0..entries).map(|_| UnsafeCell::new(Head::new_zeroed())).collect();
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // Who waits for requests does not wait for a disk, and the load of the machine should not look like it.
        let has_idle = ring.params().is_feature_no_iowait();
        let flags = if has_idle { EnterFlags::NO_IOWAIT } else { EnterFlags::empty() };
        Ok(Self { ring, heads, buffers: vec![[none; BUFFERS as usize]; usize::from(entries)].into(), memory, flags })
    }

    /// Begins, for requests of `kernel`; from then on only the calling thread may use it.
    pub(super) fn enable(&mut self, kernel: &Kernel) -> io::Result<()> {
        let submitter = self.ring.submitter();
        submitter.register_enable_rings()?;
        submitter.register_files(&[kernel.as_fd().as_raw_fd()])?;
        self.ring.submitter().register_ring_fd()
    }

    /// Gives the kernel an entry of the queue `qid`, with `payload_len` bytes of the memory from `payload` on for its data.
    ///
    /// Errors: the entry's event has them.
    pub(super) fn register(&mut self, qid: u16, entry: u16, payload: usize, payload_len: usize) -> Result<(), Errno> {
        let index = usize::from(entry);
        let head = libc::iovec { iov_base: self.heads[index].get().cast(), iov_len: size_of::<Head>() };
        let payload = Piece { memory: &self.memory.memory, offset: payload, len_bytes: payload_len }.iovec();
        self.buffers[index] = [head, payload];
        let address = self.buffers[index].as_ptr() as u64;
        let area = area(&CommandReq { flags: 0.into(), commit_id: 0.into(), qid: qid.into(), padding: [0; 6] });
        let mut command = UringCmd80::new(DEVICE, REGISTER).addr(Some(address)).cmd(area).build();
        // SAFETY: an `Entry128` is `repr(C)` and the 128 bytes of an SQE, of which these four are `len`; any number is valid.
        unsafe { (&raw mut command).byte_add(SQE_LEN_OFFSET).cast::<u32>().write_unaligned(BUFFERS) };
        self.push(command.user_data(entry.into()))
    }

    /// The request that has come for `entry`.
    pub(super) fn request(&self, entry: u16) -> Request {
        // SAFETY: the cell's memory is ours between two calls, as described above, and any bytes are a `Head`.
        let head = unsafe { self.heads[usize::from(entry)].get().read() };
        let mut header = [0; size_of::<InHeader>()];
        header.copy_from_slice(&head.in_out[..size_of::<InHeader>()]);
        Request {
            header: zerocopy::transmute!(header),
            args: head.op_in,
            commit_id: head.entry.commit_id.get(),
            payload_len: head.entry.payload_sz.get() as usize,
        }
    }

    /// Answers the request of `entry` with `header` and the first `payload_len` bytes of its payload, and has it wait for another.
    pub(super) fn commit(
        &mut self,
        qid: u16,
        entry: u16,
        commit_id: u64,
        header: &OutHeader,
        payload_len: usize,
    ) -> Result<(), Errno> {
        let mut head = Head::new_zeroed();
        head.in_out[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        head.entry.payload_sz = (payload_len as u32).into();
        // SAFETY: as in `request`.
        unsafe { self.heads[usize::from(entry)].get().write(head) };
        let area = area(&CommandReq { flags: 0.into(), commit_id: commit_id.into(), qid: qid.into(), padding: [0; 6] });
        self.push(UringCmd80::new(DEVICE, COMMIT_AND_FETCH).cmd(area).build().user_data(entry.into()))
    }

    /// Tells by [`Event::Readable`] with `token` when something can be read from `fd`, each time that something was added.
    pub(super) fn watch(&mut self, fd: BorrowedFd<'_>, token: u32) -> Result<(), Errno> {
        let poll = PollAdd::new(Fd(fd.as_raw_fd()), libc::POLLIN as u32).multi(true).build();
        self.push(poll.user_data(WATCHED | u64::from(token)).into())
    }

    /// The next that has come.
    pub(super) fn next(&mut self) -> Option<Event> {
        let done = self.ring.completion().next()?;
        let number = done.user_data() as u32;
        if done.user_data() & WATCHED != 0 {
            return Some(Event::Readable(number, cqueue::more(done.flags())));
        }
        let outcome = if done.result() < 0 { Err(Errno::from_raw_os_error(-done.result())) } else { Ok(()) };
        Some(Event::Entry(number as u16, outcome))
    }

    /// Commands that no call has submitted yet.
    pub(super) fn pending(&mut self) -> usize {
        self.ring.submission().len()
    }

    /// Submits what is pending and takes what has come, without a call where there is neither; tells whether there are events.
    pub(super) fn flush(&mut self) -> Result<bool, Errno> {
        let is_idle = {
            let submission = self.ring.submission();
            submission.is_empty() && !submission.taskrun()
        };
        if !is_idle {
            self.enter(0)?;
        }
        Ok(!self.ring.completion().is_empty())
    }

    /// Submits what is pending, and blocks until there is an event; may return early.
    pub(super) fn wait(&mut self) -> Result<(), Errno> {
        self.enter(1)
    }

    fn push(&mut self, command: Entry128) -> Result<(), Errno> {
        if self.ring.submission().is_full() {
            self.enter(0)?;
        }
        // SAFETY: what a command points to are heads and buffers of this value and memory that it keeps; the descriptor of a poll
        // is only looked at while it is submitted.
        let pushed = unsafe { self.ring.submission().push(&command) };
        pushed.map_err(|_| Errno::BUSY)
    }

    fn enter(&mut self, events_min: u32) -> Result<(), Errno> {
        let pending = self.pending() as u32;
        let flags = self.flags | EnterFlags::GETEVENTS;
        // SAFETY: a call without an argument beside its numbers; what the commands point to lives: see `push`.
        let entered = unsafe { self.ring.submitter().enter::<libc::sigset_t>(pending, events_min, flags.bits(), None) };
        match entered.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

/// The command area of an SQE.
fn area(request: &CommandReq) -> [u8; 80] {
    let mut area = [0; 80];
    area[..size_of::<CommandReq>()].copy_from_slice(request.as_bytes());
    area
}
