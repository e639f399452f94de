//! References that the guest gives back: queued, counted per inode, sent in batches.
//!
//! A forget is never dropped: what could not be sent stays queued. Only the thread that has consumed the reply that
//! counted a reference queues its forget, so no forget overtakes its lookup. The queue's lock is never held while a
//! message is sent.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use transom_wire::{
    NodeId,
    header::InHeader,
    operation::{BatchForget, Forget, Operation, parts::NoReply},
    ops::forget::{BatchForgetIn, ForgetIn, ForgetOne},
};

use super::{
    Session, counters,
    head::{Head, Plain, complete_header},
    request::Caller,
};
use crate::{
    Errno, Platform,
    channel::ChannelError,
    sync::{Mutex, rank},
};

/// Inodes in one message. With this limit a message stays near 1 KiB and fits the stack, and a message is sent for
/// every 64 inodes that a cache drops, which is also the most that the server holds needlessly.
const BATCH: usize = 64;

const MESSAGE_LEN: usize = size_of::<InHeader>() + size_of::<BatchForgetIn>() + BATCH * size_of::<ForgetOne>();

/// Forgets that wait to be sent.
pub(super) struct Forgets<P: Platform>(Mutex<P, { rank::LEAF }, Vec<(NodeId, u64)>>);

impl<P: Platform> Forgets<P> {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Vec::with_capacity(BATCH)))
    }

    /// Queues a forget; returns true when there is a batch to send.
    fn add(&self, node: NodeId, nlookup: u64) -> bool {
        let mut waiting = self.0.lock();
        let recent = waiting.len().saturating_sub(BATCH);
        match waiting[recent..].iter_mut().find(|(known, _)| *known == node) {
            Some((_, sum)) => *sum = sum.saturating_add(nlookup),
            None => waiting.push((node, nlookup)),
        }
        waiting.len() >= BATCH
    }

    /// Takes up to a batch, the latest first; returns the number of inodes.
    fn take(&self, batch: &mut [(NodeId, u64); BATCH]) -> usize {
        let mut waiting = self.0.lock();
        let rest = waiting.len().saturating_sub(BATCH);
        let count = waiting.len() - rest;
        for (slot, one) in batch.iter_mut().zip(waiting.drain(rest..)) {
            *slot = one;
        }
        count
    }

    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl<P: Platform> Session<P> {
    /// Returns `nlookup` references to `node`: as many as the replies with its entry that were consumed, at any time
    /// after those replies.
    ///
    /// The forget is queued, and sent with others once there are enough; [`Self::flush_forgets`] sends it earlier. Does
    /// nothing after [`Self::destroy`]. May block while the high-priority queue is full.
    pub fn forget(&self, node: NodeId, nlookup: u64) {
        rank::may_wait::<P>();
        let counts = nlookup > 0 && node.0 != 0 && node != NodeId::ROOT;
        if !counts || self.is_destroyed.load(Ordering::Acquire) {
            return;
        }
        if self.forgets.add(node, nlookup) {
            // What cannot be sent now stays queued; the next forget tries again.
            let _ = self.send_forgets();
        }
    }

    /// Sends what is queued; meant for an idle moment. Errors: those of the channel; what was not sent stays queued.
    pub fn flush_forgets(&self) -> Result<(), Errno> {
        self.settle_orphans();
        while self.send_forgets()? {}
        Ok(())
    }

    /// Returns the number of queued inodes.
    pub fn queued_forgets(&self) -> usize {
        self.forgets.len()
    }

    /// Sends one batch; returns false if the queue was empty.
    fn send_forgets(&self) -> Result<bool, Errno> {
        let mut batch = [(NodeId(0), 0); BATCH];
        let count = self.forgets.take(&mut batch);
        let batch = &batch[..count];
        if batch.is_empty() {
            return Ok(false);
        }
        counters::add(&self.tally.forget_messages, 1);
        if let Err(error) = self.send_batch(batch) {
            counters::add(&self.tally.forget_failures, 1);
            batch.iter().for_each(|&(node, nlookup)| _ = self.forgets.add(node, nlookup));
            return Err(error.into());
        }
        counters::add(&self.tally.forgotten_lookups, batch.iter().map(|&(_, nlookup)| nlookup).sum());
        Ok(true)
    }

    fn send_batch(&self, batch: &[(NodeId, u64)]) -> Result<(), ChannelError> {
        let caller = Caller::default();
        if let &[(node, nlookup)] = batch {
            return self.send_unanswered(&mut Plain::<Forget>::new(
                node,
                &caller,
                &ForgetIn { nlookup: nlookup.into() },
            ));
        }
        let arg = BatchForgetIn { count: (batch.len() as u32).into(), dummy: 0.into() };
        let mut head = Head::<BatchForget, MESSAGE_LEN>::new(NodeId(0), &caller, &arg);
        for &(node, nlookup) in batch {
            head.item(&ForgetOne { nodeid: node.into(), nlookup: nlookup.into() });
        }
        self.send_unanswered(&mut head)
    }

    /// Sends a request that has no reply.
    fn send_unanswered<O, const N: usize>(&self, head: &mut Head<O, N>) -> Result<(), ChannelError>
    where
        O: Operation<Reply = NoReply>,
    {
        complete_header(head.as_mut_bytes(), 0, self.next_unique());
        self.channel.send_priority(head.as_mut_bytes())
    }
}
