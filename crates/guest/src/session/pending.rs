//! Requests whose replies nobody waits for yet: polled, waited for, or awaited.
//!
//! A [`Pending`] is a future. Its waker is called by whoever receives the reply: a thread that waits for another, an
//! interrupt handler that calls [`VirtioFs::interrupt`](crate::device::VirtioFs::interrupt), or an executor that has
//! nothing else to do and calls [`Session::drive`]. What each reply becomes is its [`Answer`].

use core::{
    future::Future,
    marker::PhantomData,
    ops::Deref,
    pin::Pin,
    task::{Context, Poll},
};

use transom_wire::{Unique, operation::Operation};

use super::{
    Session,
    answer::Answer,
    head::complete_header,
    orphans::{Orphan, brings_something},
    prepared::Request,
    reply::{self, HEADER_LEN},
    request::Caller,
    sent::Sent,
};
use crate::{
    Errno, Platform,
    channel::{OwnedMessage, OwnedReply, Ticket},
    sync::rank,
};

/// A request for `O` in progress, over a session that is borrowed or shared (`&Session` or `Arc<Session>`).
///
/// Dropping it leaves the reply to nobody. A reference or an open file that comes with it is given back by whoever next
/// starts a request or calls [`Session::flush_forgets`]. Its data is not free then: the device may read or write the
/// range until it has used the request. To go on at once, allocate another buffer; the dropped one is in use until its
/// `Arc` has no other owner.
///
/// In an interrupt handler, its waker may only mark the task: it may not poll or start a request, and may free memory
/// only if handlers may use the allocator. In a thread, it may poll.
#[must_use = "the reply is lost with this"]
pub struct Pending<P: Platform, S: Deref<Target = Session<P>>, O: Operation<Reply: Answer>> {
    session: S,
    /// Absent once the reply was taken.
    ticket: Option<Ticket>,
    unique: Unique,
    /// The most bytes that the reply may have.
    room: usize,
    /// Absent once this was dropped.
    sent: Option<Sent>,
    operation: PhantomData<fn() -> O>,
}

impl<P: Platform, S: Deref<Target = Session<P>>, O: Operation<Reply: Answer>> Pending<P, S, O> {
    /// Sends a request and returns at once, on the queue of `caller`, whose interrupt is not used.
    ///
    /// Blocks only while the queue is full of requests that the device has not served, of which
    /// [`Settings::in_flight_max`](crate::device::Settings::in_flight_max) is the limit.
    pub fn start(session: S, caller: &Caller<'_>, request: Request<O>) -> Result<Self, Errno> {
        rank::may_wait::<P>();
        session.settle_orphans();
        let Request { mut head, data, room: reply_data, .. } = request;
        let unique = session.next_unique();
        let len_of = |part: &Option<(_, core::ops::Range<usize>)>| part.as_ref().map_or(0, |(_, range)| range.len());
        let sent = Sent::new(O::OPCODE, &head, len_of(&data), reply_data.as_ref());
        complete_header(&mut head, sent.data_len, unique);
        let reply_head_len = HEADER_LEN + <O::Reply as Answer>::fixed_len(&sent);
        let room = reply_head_len + len_of(&reply_data);
        let message = OwnedMessage { head, data, reply_head_len, reply_data };
        let ticket = session.channel.start(session.queue_of(caller), message)?;
        Ok(Self { session, ticket: Some(ticket), unique, room, sent: Some(sent), operation: PhantomData })
    }

    /// Returns whether the reply has come; then [`Self::wait`] does not block.
    pub fn is_ready(&self) -> bool {
        self.ticket.as_ref().is_none_or(|ticket| self.session.channel.is_finished(ticket))
    }

    /// Blocks until the reply has come, and returns it.
    pub fn wait(mut self) -> Result<<O::Reply as Answer>::Output, Errno> {
        let ticket = self.ticket.take().ok_or(Errno::INVAL)?;
        self.conclude(ticket)
    }

    fn conclude(&self, ticket: Ticket) -> Result<<O::Reply as Answer>::Output, Errno> {
        let (session, Some(sent)) = (&*self.session, &self.sent) else { return Err(Errno::INVAL) };
        let OwnedReply { head, written } = session.channel.finish(ticket)?;
        let body_len = session.judge(reply::check(&head, written, self.room, self.unique))?;
        <O::Reply as Answer>::accept(session, sent, head.get(HEADER_LEN..).unwrap_or_default(), body_len)
    }
}

impl<P: Platform, S: Deref<Target = Session<P>> + Unpin, O: Operation<Reply: Answer>> Future for Pending<P, S, O> {
    type Output = Result<<O::Reply as Answer>::Output, Errno>;

    /// Polled again after its reply was taken, it returns EINVAL.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(ticket) = this.ticket.take() else { return Poll::Ready(Err(Errno::INVAL)) };
        if this.session.channel.watch(&ticket, context.waker()) {
            return Poll::Ready(this.conclude(ticket));
        }
        this.ticket = Some(ticket);
        Poll::Pending
    }
}

impl<P: Platform, S: Deref<Target = Session<P>>, O: Operation<Reply: Answer>> Drop for Pending<P, S, O> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket.take() else { return };
        match self.sent.take().filter(|_| brings_something(O::ROW.effect)) {
            Some(sent) => self.session.adopt(Orphan { ticket, unique: self.unique, room: self.room, sent }),
            None => self.session.channel.abandon(ticket),
        }
    }
}

impl<P: Platform> Session<P> {
    /// Receives replies on a request queue, and calls the wakers of their [`Pending`], until `is_over` returns true or
    /// the device is gone: what an executor does while none of its tasks is ready.
    ///
    /// Blocks as a caller of any operation does. `is_over` is checked after replies have come; if something else
    /// changes what it returns, this may take 200 ms to notice.
    pub fn drive(&self, queue: u16, is_over: &mut dyn FnMut() -> bool) {
        rank::may_wait::<P>();
        self.channel.drive(queue % self.request_queues, is_over);
    }
}
