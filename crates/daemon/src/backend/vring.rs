//! A queue's ring whose notifications never block.
//!
//! The descriptors come from the front end. Without this, a partially written kick, or a call pipe that nobody reads,
//! could block a thread, and with it the ring's mutex, for as long as the front end likes.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use transom_host::journal::QueueSlots;
use vhost_user_backend::{
    VhostUserBackend, VringEpollHandler, VringMutex, VringStateGuard, VringStateMutGuard, VringT,
};
use virtio_queue::{Error, QueueT};
use vm_memory::{GuestAddress, GuestAddressSpace};
use vmm_sys_util::epoll::EventSet;

use super::{
    Memory,
    dirty_log::{self, DirtyLog},
    in_flight::InFlight,
    view::MemoryView,
};

/// Length of the used ring's flags and index (virtio 1.3 §2.7.8).
const USED_HEADER_LEN: u64 = 4;
/// Length of a used ring's entry.
const USED_ENTRY_LEN: u64 = 8;
/// Length of the event index behind the entries.
const EVENT_LEN: u64 = 2;

/// A queue's ring, shared with the thread that handles the front end's messages.
#[derive(Clone)]
pub(super) struct Vring {
    ring: VringMutex<Memory>,
    /// Notifies the front end that the ring is broken, if it asked for that. Protected by its own lock, within which no
    /// other is taken.
    error: Arc<Mutex<Option<File>>>,
    /// The kick, if it is an eventfd, every write to which is an edge. Protected by its own lock, within which no other
    /// is taken.
    kick: Arc<Mutex<Option<File>>>,
    /// The requests that go on when the ring starts again.
    resumed: Arc<OnceLock<Arc<InFlight>>>,
    /// VIRTIO_F_EVENT_IDX is negotiated.
    has_event_index: Arc<AtomicBool>,
}

impl Vring {
    /// Puts the chain `head` on the used ring, which is in `view`. If `log` is on, marks the entry, and calls `written`
    /// before, which marks the chain's buffers. Records both steps in `slots`. `memory` must be the device's, whose
    /// regions have logs.
    pub(super) fn add_used_logged(
        &self,
        head: u16,
        len: u32,
        view: &MemoryView<'_>,
        (log, memory): (&DirtyLog, &Memory),
        slots: Option<&QueueSlots>,
        written: impl FnOnce(),
    ) -> Result<(), Error> {
        let mut ring = self.ring.get_mut();
        let is_logged = log.is_on();
        if is_logged {
            written();
        }
        let index = ring.get_queue().next_used();
        let slot = u64::from(index % ring.get_queue().size());
        if let Some(slots) = slots {
            slots.publish(head, index);
        }
        ring.get_queue_mut().add_used(view, head, len)?;
        if let Some(slots) = slots {
            slots.free(head);
        }
        if is_logged {
            let used = ring.get_queue().used_ring();
            let memory = memory.memory();
            dirty_log::mark(&memory, GuestAddress(used + USED_HEADER_LEN + slot * USED_ENTRY_LEN), USED_ENTRY_LEN);
            dirty_log::mark(&memory, GuestAddress(used), USED_HEADER_LEN);
        }
        Ok(())
    }

    /// Notifies the driver of all chains that are back on the ring, which is in `view`, if it asked for that. Also
    /// notifies if that cannot be read.
    pub(super) fn notify_driver(&self, view: &MemoryView<'_>) -> io::Result<()> {
        let mut ring = self.ring.get_mut();
        if !ring.get_queue_mut().needs_notification(view).unwrap_or(true) {
            return Ok(());
        }
        accept_full(ring.signal_used_queue())
    }

    /// Returns whether the driver kicks only for the entry that the device has asked for last, as if it had been told
    /// to leave out kicks after the first (virtio 1.3 §2.7.10).
    pub(super) fn has_event_index(&self) -> bool {
        self.has_event_index.load(Relaxed)
    }

    /// Marks what enabling or disabling notifications has written, if `log` is on: the flags, or the event index behind
    /// the used ring.
    pub(super) fn mark_notification(&self, log: &DirtyLog, memory: &Memory) {
        if log.is_on() {
            let ring = self.ring.get_ref();
            let (used, size) = (ring.get_queue().used_ring(), u64::from(ring.get_queue().size()));
            let memory = memory.memory();
            dirty_log::mark(&memory, GuestAddress(used), USED_HEADER_LEN);
            dirty_log::mark(&memory, GuestAddress(used + USED_HEADER_LEN + size * USED_ENTRY_LEN), EVENT_LEN);
        }
    }

    /// Returns what `step` returns, or `None` without calling it if the front end has stopped or disabled the ring. A
    /// stop waits for the end of the step, which must therefore be short.
    pub(super) fn unless_stopped<T>(&self, step: impl FnOnce() -> T) -> Option<T> {
        let ring = self.ring.get_ref();
        let is_running = ring.is_enabled() && ring.get_queue().ready();
        is_running.then(step)
    }

    /// Lets requests of `in_flight` that a stop has set aside go on when this ring starts again.
    pub(super) fn resumes(&self, in_flight: &Arc<InFlight>) {
        self.resumed.get_or_init(|| in_flight.clone());
    }

    /// Registers the kick with `handler` anew, by edges and with the event `number`, which is not one of a queue.
    ///
    /// The crate registers a kick by its level, and so has to read it at each event. An edge comes with every write to
    /// an eventfd, whether anyone reads it or not, so the read can be left out. Other kinds of kick stay as they are: a
    /// pipe that nobody reads fills up.
    ///
    /// Registrations change under the ring's lock only. A kick that is no longer registered stays so: its ring has
    /// stopped.
    pub(super) fn watch_edges<B: VhostUserBackend>(&self, handler: &VringEpollHandler<B>, number: u16) {
        if self.lock_kick().is_none() {
            return;
        }
        let ring = self.ring.get_ref();
        let Some(kick) = ring.get_kick().as_ref().map(AsRawFd::as_raw_fd) else { return };
        if handler.unregister_listener(kick, EventSet::IN, number.into()).is_ok()
            && let Err(error) = handler.register_listener(kick, EventSet::IN | EventSet::EDGE_TRIGGERED, number.into())
        {
            tracing::error!(%error, "a queue cannot be watched, and is not served until its ring starts again");
        }
    }

    /// Has the ring looked at once, as one that starts is: its last kick may have gone to another daemon, which had
    /// stopped it by then. Never blocks.
    pub(super) fn kick(&self) {
        if let Some(kick) = &*self.lock_kick() {
            // The front end may have changed it. A full counter is a kick, too.
            never_block(kick);
            let _ = rustix::io::write(kick, &1u64.to_ne_bytes());
        }
    }

    fn lock_kick(&self) -> MutexGuard<'_, Option<File>> {
        self.kick.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifies the front end that the driver broke the ring (vhost-user, "VHOST_USER_SET_VRING_ERR"). Never blocks.
    pub(super) fn signal_error(&self) {
        let error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*error
            && let Err(errno) = rustix::io::write(file, &1u64.to_ne_bytes())
            && errno != rustix::io::Errno::AGAIN
        {
            tracing::warn!(%errno, "cannot notify the front end of the broken ring");
        }
    }
}

impl<'a> VringStateGuard<'a, Memory> for Vring {
    type G = <VringMutex<Memory> as VringStateGuard<'a, Memory>>::G;
}

impl<'a> VringStateMutGuard<'a, Memory> for Vring {
    type G = <VringMutex<Memory> as VringStateMutGuard<'a, Memory>>::G;
}

impl VringT<Memory> for Vring {
    fn new(memory: Memory, queue_size_max: u16) -> Result<Self, Error> {
        let ring = VringMutex::new(memory, queue_size_max)?;
        Ok(Self {
            ring,
            error: Arc::default(),
            kick: Arc::default(),
            resumed: Arc::default(),
            has_event_index: Arc::default(),
        })
    }

    /// Sets the kick descriptor to non-blocking. The front end only writes to it, so that does not affect it.
    fn set_kick(&self, file: Option<File>) {
        if let Some(file) = &file {
            never_block(file);
        }
        // Without a copy, the kick is read at each event, as others are.
        *self.lock_kick() = file.as_ref().filter(|file| is_event_fd(file)).and_then(|file| file.try_clone().ok());
        self.ring.set_kick(file);
        self.kick();
    }

    /// Returns true even for a spurious wake-up: the ring shows whether there is work.
    fn read_kick(&self) -> io::Result<bool> {
        match self.ring.read_kick() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(self.get_ref().is_enabled()),
            result => result,
        }
    }

    /// Leaves an eventfd blocking, because a front end may wait for it in read(2). Our writes to an eventfd do not
    /// block.
    fn set_call(&self, file: Option<File>) {
        if let Some(file) = &file
            && !is_event_fd(file)
        {
            never_block(file);
        }
        self.ring.set_call(file);
    }

    fn signal_used_queue(&self) -> io::Result<()> {
        accept_full(self.ring.signal_used_queue())
    }

    fn get_ref(&self) -> <Self as VringStateGuard<'_, Memory>>::G {
        self.ring.get_ref()
    }

    fn get_mut(&self) -> <Self as VringStateMutGuard<'_, Memory>>::G {
        self.ring.get_mut()
    }

    fn add_used(&self, head: u16, len: u32) -> Result<(), Error> {
        self.ring.add_used(head, len)
    }

    fn enable_notification(&self) -> Result<bool, Error> {
        self.ring.enable_notification()
    }

    fn disable_notification(&self) -> Result<(), Error> {
        self.ring.disable_notification()
    }

    fn needs_notification(&self) -> Result<bool, Error> {
        self.ring.needs_notification()
    }

    fn set_enabled(&self, is_enabled: bool) {
        self.ring.set_enabled(is_enabled);
        if is_enabled {
            self.kick();
        }
    }

    fn set_queue_info(&self, table: u64, avail: u64, used: u64) -> Result<(), Error> {
        self.ring.set_queue_info(table, avail, used)
    }

    fn queue_next_avail(&self) -> u16 {
        self.ring.queue_next_avail()
    }

    fn set_queue_next_avail(&self, base: u16) {
        self.ring.set_queue_next_avail(base);
    }

    /// Ignored while the ring runs. The crate reads the index from the ring for each SET_VRING_ADDR, also when the
    /// front end only switches the log on, and it may be an older one by now. A reset disables the ring without
    /// stopping it, and the ring that follows is a new one.
    fn set_queue_next_used(&self, index: u16) {
        let mut ring = self.ring.get_mut();
        if !ring.get_queue().ready() || !ring.is_enabled() {
            ring.get_queue_mut().set_next_used(index);
        }
    }

    fn queue_used_idx(&self) -> Result<u16, Error> {
        self.ring.queue_used_idx()
    }

    fn set_queue_size(&self, size: u16) {
        self.ring.set_queue_size(size);
    }

    fn set_queue_event_idx(&self, is_enabled: bool) {
        self.has_event_index.store(is_enabled, Relaxed);
        self.ring.set_queue_event_idx(is_enabled);
    }

    /// A ring that starts again is known by its indices: it has as many chains that were taken and not returned as
    /// were set aside. A new ring has none.
    fn set_queue_ready(&self, is_ready: bool) {
        if let Some(in_flight) = self.resumed.get().filter(|_| is_ready) {
            let ring = self.ring.get_ref();
            let queue = ring.get_queue();
            in_flight.resume(queue.next_avail().wrapping_sub(queue.next_used()));
        }
        self.ring.set_queue_ready(is_ready);
    }

    /// Stores the error descriptor here, because the crate discards it.
    fn set_err(&self, file: Option<File>) {
        if let Some(file) = &file {
            never_block(file);
        }
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = file;
    }
}

/// A full pipe counts as notified, since it wakes its reader anyway.
fn accept_full(notified: io::Result<()>) -> io::Result<()> {
    match notified {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        result => result,
    }
}

/// Returns whether `file` is an eventfd, for which fstat(2) reports no file type.
fn is_event_fd(file: &File) -> bool {
    fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Unknown)
}

fn never_block(fd: impl AsFd) {
    let set = fcntl_getfl(&fd).and_then(|flags| fcntl_setfl(&fd, flags | OFlags::NONBLOCK));
    if let Err(error) = set {
        tracing::warn!(%error, "notifying the front end may block");
    }
}
