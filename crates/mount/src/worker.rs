//! [`QueueWorker`]: one thread that carries requests from the kernel to the daemon, and replies back.
//!
//! It owns a descriptor of `/dev/fuse`, a request queue, and the stages that a message passes:
//!
//! 1. [`RequestReader`] reads a request straight into a slot.
//! 2. [`ReconnectStage`], if the mount may reconnect, keeps the request and renumbers it.
//! 3. [`PassthroughStage`] may refuse an open, and notes what is opened, closed and forgotten.
//! 4. [`CoherenceStage`], if the kernel's caches follow a version table, notes the moment.
//! 5. [`RequestQueue`] holds the request until the daemon has written the reply into the same slot.
//! 6. The reply passes the stages in reverse; [`ReplyWriter`] writes it to the kernel from the slot.
//!
//! A worker never waits for one request: it sleeps until the kernel or the daemon has something, so a request that
//! blocks in the daemon only occupies a slot. While all slots are taken, requests are still read, into the spare slot:
//! INTERRUPT and FORGET take their own queue, anything else waits in the [`Backlog`](super::backlog).

use std::{convert::Infallible, sync::Arc};

use transom_guest::{ring::Used, transport::Transport as _};
use transom_polling::AdaptivePoller;
use transom_user::platform::now_ns;
use transom_wire::{Opcode, header::InHeader};
use zerocopy::FromBytes as _;

use super::{
    MountEnd,
    backlog::ParkedRequest,
    coherence::CoherenceStage,
    connection::Connection,
    daemon_client::DaemonClient,
    event_waiter::EventWaiter,
    fuse_device::FuseDevice,
    lone_caller::LoneCaller,
    passthrough::{PassthroughStage, RequestKind, capabilities},
    reconnect::{ReconnectStage, RenumberVerdict},
    reply_out::{Reply, ReplyWriter},
    request_in::{Incoming, RequestReader},
    request_queue::RequestQueue,
};

/// Requests that are read before replies are looked for again.
const READS_MAX: usize = 8;

/// A thread of the mount, and all that it uses alone.
pub(super) struct QueueWorker {
    index: usize,
    connection: Arc<Connection>,
    device: Arc<FuseDevice>,
    queue: RequestQueue,
    reader: RequestReader,
    passthrough: PassthroughStage,
    /// Present if the kernel's caches follow a version table.
    coherence: Option<CoherenceStage>,
    /// Present if the mount may reconnect.
    reconnect: Option<ReconnectStage>,
    replies: ReplyWriter,
    poller: AdaptivePoller,
    lone_caller: LoneCaller,
}

impl QueueWorker {
    /// Creates worker `index` of `connection`, which reads requests from `device`.
    pub(super) fn new(
        index: usize,
        connection: Arc<Connection>,
        device: Arc<FuseDevice>,
        queue: RequestQueue,
        poller: AdaptivePoller,
        lone_caller: LoneCaller,
    ) -> Self {
        let slots = queue.slot_count();
        let passthrough = PassthroughStage::new(
            index,
            Arc::clone(&device),
            Arc::clone(&connection.devices),
            Arc::clone(&connection.passthrough),
        );
        let reconnect = connection.reconnect.as_ref().map(|shared| ReconnectStage::new(Arc::clone(shared), slots));
        let coherence = connection.coherence.as_ref().map(|shared| CoherenceStage::new(Arc::clone(shared), slots));
        Self {
            index,
            connection,
            reader: RequestReader::new(Arc::clone(&device)),
            replies: ReplyWriter::new(Arc::clone(&device)),
            device,
            queue,
            passthrough,
            coherence,
            reconnect,
            poller,
            lone_caller,
        }
    }

    /// Returns the name for the worker's thread.
    pub(super) fn thread_name(&self) -> String {
        format!("transom-fuse-{}", self.index)
    }

    /// Returns what the worker's connection has in common.
    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Carries messages until the connection ends. Returns the worker, with the requests that were not answered.
    pub(super) fn run(mut self) -> Self {
        let limited = if self.passthrough.is_on() { capabilities::drop_most() } else { Ok(()) };
        let waiter = limited.and_then(|()| EventWaiter::new(&self.connection, self.queue.index(), &self.device));
        let ended = waiter.and_then(|mut waiter| {
            loop {
                self.run_once(&mut waiter)?;
            }
        });
        let Err::<Infallible, _>(end) = ended;
        self.connection.end(end);
        self
    }

    /// Carries what there is, then polls or sleeps until there is more.
    fn run_once(&mut self, waiter: &mut EventWaiter) -> Result<(), MountEnd> {
        let has_replied = self.take_replies()?;
        // A lone caller makes the next request after it got its reply. Let it run before asking the kernel.
        let is_callers_turn = has_replied && self.queue.pending_count() == 0 && self.lone_caller.is_alone();
        let has_work = has_replied | (!is_callers_turn && self.take_requests()?);
        if has_work {
            self.poller.record_work(now_ns());
        }
        if has_work && !is_callers_turn {
            return Ok(());
        }
        if self.poller.should_poll(now_ns()) {
            self.yield_now();
            return Ok(());
        }
        if !self.queue.enable_signal() {
            waiter.wait(self.can_read(), None)?;
            self.poller.record_sleep();
        }
        self.queue.disable_signal();
        if self.connection.device.is_gone() { Err(MountEnd::Gone) } else { Ok(()) }
    }

    fn yield_now(&mut self) {
        let begin_ns = now_ns();
        std::thread::yield_now();
        let now_ns = now_ns();
        self.poller.record_yield(now_ns - begin_ns, now_ns);
    }

    /// Takes requests from the kernel. Returns whether there were any.
    fn take_requests(&mut self) -> Result<bool, MountEnd> {
        let before = self.queue.pending_count();
        let mut has_some = false;
        for _ in 0..READS_MAX {
            if !self.take_request()? {
                break;
            }
            // FORGET and the like have no reply to poll for.
            let is_first = !has_some && self.queue.pending_count() == before + 1;
            has_some = true;
            if is_first && before == 0 && self.lone_caller.poll_reply(|| self.queue.has_reply()) {
                return Ok(true);
            }
        }
        self.lone_caller.record_requests(self.queue.pending_count().saturating_sub(before));
        Ok(has_some)
    }

    /// Takes one request from the kernel. Returns whether there may be another.
    fn take_request(&mut self) -> Result<bool, MountEnd> {
        let taken = self.queue.take_slot();
        if taken.is_none() && !self.connection.backlog.has_room() {
            return Ok(false);
        }
        let slot = taken.unwrap_or(self.queue.spare_slot());
        self.passthrough.begin_reading();
        let incoming = self.reader.read(&self.queue, slot);
        let is_empty = matches!(incoming, Ok(Incoming::Empty));
        let is_sent = incoming.and_then(|incoming| self.route(slot, taken.is_some(), incoming));
        self.passthrough.end_reading();
        let is_sent = is_sent?;
        if let (Some(slot), false) = (taken, is_sent) {
            self.queue.free_slot(slot);
        }
        Ok(!is_empty)
    }

    /// Passes on what was read into `slot`. Returns whether the slot is in flight; the spare slot never is.
    fn route(&mut self, slot: u16, is_own_slot: bool, incoming: Incoming) -> Result<bool, MountEnd> {
        match incoming {
            Incoming::Empty | Incoming::Skipped => Ok(false),
            Incoming::Forget(message) => self.forget(&message).map(|()| false),
            Incoming::Interrupt(message, unique) => self.interrupt(&message, unique).map(|()| false),
            Incoming::Request { header, opcode, len_bytes } => {
                if opcode == Some(Opcode::Release) && self.passthrough.is_on() {
                    self.passthrough.note_release(header.nodeid.into(), &self.queue.args(slot, len_bytes));
                }
                if is_own_slot {
                    return self.submit(slot, &header, len_bytes);
                }
                let message = self.queue.copy_request(slot, &header, len_bytes);
                self.connection.backlog.put(ParkedRequest { worker: self.index, header, message });
                Ok(false)
            }
        }
    }

    fn forget(&self, message: &[u8]) -> Result<(), MountEnd> {
        if let Some(reconnect) = &self.reconnect {
            return self.send_hiprio(reconnect.forget(message));
        }
        if let Some(coherence) = &self.coherence {
            coherence.note_forget(message);
        }
        self.passthrough.note_forget(message);
        self.connection.send_hiprio(message)
    }

    fn interrupt(&self, message: &[u8], unique: Option<u64>) -> Result<(), MountEnd> {
        if let Some(unique) = unique {
            if self.connection.interrupt_parked(unique) {
                return Ok(());
            }
            if let Some(reconnect) = &self.reconnect {
                reconnect.note_interrupt(unique);
            }
        }
        self.connection.send_hiprio(message)
    }

    fn send_hiprio(&self, message: Option<Vec<u8>>) -> Result<(), MountEnd> {
        message.map_or(Ok(()), |message| self.connection.send_hiprio(&message))
    }

    /// Sends the kernel's request in `slot` to the daemon, or answers it. Returns whether it was sent.
    fn submit(&mut self, slot: u16, header: &InHeader, len_bytes: usize) -> Result<bool, MountEnd> {
        let unique = header.unique.get();
        if let Some(reconnect) = &mut self.reconnect
            && let RenumberVerdict::Answer(outcome) = reconnect.renumber_request(&self.queue, slot, header, len_bytes)
        {
            return self.replies.finish(unique, outcome).map(|()| false);
        }
        let args = self.queue.args(slot, len_bytes);
        let kind = self.passthrough.kind(header, &args);
        if let Some(errno) = self.passthrough.refusal(kind, header) {
            return self.replies.finish(unique, Err(errno)).map(|()| false);
        }
        if let Some(coherence) = &mut self.coherence {
            coherence.note_request(slot, header, &args, || self.queue.copy_request(slot, header, len_bytes));
        }
        if self.queue.submit(slot, header, len_bytes, &args, kind) {
            self.connection.device.notify(self.queue.index());
        }
        Ok(true)
    }

    /// Sends requests that waited for a slot, while there are free slots.
    pub(super) fn submit_parked(&mut self) -> Result<(), MountEnd> {
        while self.queue.has_free_slot()
            && let Some(parked) = self.connection.backlog.take_of(self.index)
            && let Some(slot) = self.queue.take_slot()
        {
            self.queue.write_request(slot, &parked.message);
            if !self.submit(slot, &parked.header, parked.message.len())? {
                self.queue.free_slot(slot);
            }
        }
        Ok(())
    }

    /// Sends passthrough's own requests, while there are free slots.
    fn submit_commands(&mut self) {
        while self.passthrough.has_commands() {
            let Some(slot) = self.queue.take_slot() else { return };
            let Some((command, message)) = self.passthrough.next_command() else { return self.queue.free_slot(slot) };
            let Ok((header, _)) = InHeader::read_from_prefix(&message) else { continue };
            self.queue.write_request(slot, &message);
            let args = self.queue.args(slot, message.len());
            if self.queue.submit(slot, &header, message.len(), &args, RequestKind::Mapping(command)) {
                self.connection.device.notify(self.queue.index());
            }
        }
    }

    /// Passes on the replies that have come. Returns whether there were any.
    fn take_replies(&mut self) -> Result<bool, MountEnd> {
        let mut has_some = false;
        while let Some(used) = self.queue.pop()? {
            has_some = true;
            self.reply(used)?;
            self.queue.complete(used.cookie);
            self.submit_commands();
            self.submit_parked()?;
        }
        Ok(has_some)
    }

    /// Passes on the reply in the slot of `used`, or fails its request. The slot stays taken.
    fn reply(&mut self, used: Used) -> Result<(), MountEnd> {
        let reply = Reply::read(&self.queue, used);
        let Reply { slot, unique, kind, written_bytes, .. } = reply;
        let outcome = reply.outcome();
        if let RequestKind::Mapping(command) = kind {
            return self.passthrough.command_done(command, outcome);
        }
        if outcome.is_err() {
            self.passthrough.note_failed_open(kind);
            if let Some(coherence) = &mut self.coherence {
                coherence.note_failed(slot);
            }
        }
        let Some((mut header, mut body)) = reply.message else {
            tracing::warn!(unique, written_bytes, "the daemon sent an invalid reply; the request fails with EIO");
            return self.replies.fail(unique);
        };
        if outcome.is_ok() && self.passthrough.take_open(kind, unique, body)? {
            return Ok(());
        }
        if let Some(reconnect) = &self.reconnect {
            let message = reconnect.reply(&self.replies, slot, &header, body)?;
            return self.send_hiprio(message);
        }
        if outcome.is_ok() {
            self.passthrough.adjust_attributes(kind, &body);
        }
        let mut coherence = self.coherence.as_mut().filter(|_| outcome.is_ok());
        if let Some(coherence) = &mut coherence {
            coherence.cut_trailer(slot, &mut header, &mut body);
            coherence.adjust_reply(slot, &body);
        }
        let is_taken = self.replies.write(&header, body)?;
        if let Some(coherence) = coherence {
            coherence.note_written(slot, is_taken);
        }
        if !is_taken && outcome.is_ok() {
            self.passthrough.note_rejected_reply(kind, &body);
        }
        Ok(())
    }

    /// Passes on the replies that the daemon had written before the connection ended.
    pub(super) fn drain(&mut self) {
        while let Ok(Some(used)) = self.queue.pop() {
            // The end of the mount shows elsewhere too.
            let _ = self.reply(used);
            self.queue.set_answered(used.cookie);
        }
    }

    /// Returns the requests that the daemon has not answered, as the kernel sent them. Empty if the mount cannot
    /// reconnect.
    pub(super) fn unanswered(&self) -> Vec<ParkedRequest> {
        self.reconnect.as_ref().map(|stage| stage.unanswered(&self.queue, self.index)).unwrap_or_default()
    }

    /// Returns a client that talks to the daemon through this worker's queue, before the worker runs.
    ///
    /// # Errors
    /// The connection has ended, or a system call failed.
    pub(super) fn daemon_client(&mut self) -> Result<DaemonClient<'_>, MountEnd> {
        let waiter = EventWaiter::new(&self.connection, self.queue.index(), &self.device)?;
        Ok(DaemonClient::new(&mut self.queue, &self.connection, &self.device, waiter))
    }

    /// Returns whether there is a place for another request.
    fn can_read(&self) -> bool {
        self.queue.has_free_slot() || self.connection.backlog.has_room()
    }
}
