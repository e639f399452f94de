//! The guest's side: requests that arrive together, and the daemon's work for them.

use anyhow::{Context as _, bail, ensure};
use transom_frontend::{
    message::HANG_AFTER,
    queue::{Queue, Token},
};
use transom_wire::header::{InHeader, OutHeader};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    counts::Counts,
    operation::{Operation, Request, SlotState, Step, Targets},
    trace::{Progress, Tracer},
};

/// A queue, and as many callers as requests are in flight.
pub(super) struct Guest {
    queue: Queue,
    targets: Targets,
    slots: Vec<SlotState>,
    unique: u64,
    notifications: u64,
}

/// What a guest does between a reply and the next request. It must be longer than a daemon that does not poll needs to
/// fall asleep, and shorter than a daemon that polls waits.
const THINK_NS: i64 = 5_000;

impl Guest {
    pub(super) fn new(queue: Queue, targets: Targets, depth: u16) -> Self {
        Self { queue, targets, slots: vec![SlotState::default(); depth.into()], unique: 1 << 32, notifications: 0 }
    }

    /// Prepares for `operation`, and does it `count` times without counting.
    pub(super) fn warm_up(&mut self, operation: Operation, count: u32) -> anyhow::Result<()> {
        self.steps(operation.preparation(), None)?;
        for _ in 0..count {
            self.steps(operation.counted(), None)?;
            self.steps(operation.afterwards(), None)?;
        }
        Ok(())
    }

    /// Does `operation` once in each slot, and returns what all of them cost.
    pub(super) fn count(&mut self, operation: Operation, tracer: &mut Tracer) -> anyhow::Result<Counts> {
        let (before, notified) = (tracer.counts().clone(), self.notifications);
        self.steps(operation.counted(), Some(tracer))?;
        let notifications = (self.notifications - notified) as f64;
        let counts = tracer.counts().since(&before);
        self.steps(operation.afterwards(), Some(tracer))?;
        // A notification is a write to an eventfd too.
        Ok(Counts { notifications, wakes: (counts.wakes - notifications).max(0.0), ..counts })
    }

    fn steps(&mut self, steps: &[Step], mut tracer: Option<&mut Tracer>) -> anyhow::Result<()> {
        for &step in steps {
            self.step(step, tracer.as_deref_mut()).with_context(|| format!("{step:?}"))?;
        }
        Ok(())
    }

    /// Sends the request of `step` in each slot and takes in the replies.
    fn step(&mut self, step: Step, tracer: Option<&mut Tracer>) -> anyhow::Result<()> {
        let slots = (0..).zip(&self.slots);
        let requests: Vec<Request> = slots.map(|(slot, state)| self.targets.request(step, slot, state)).collect();
        // The driver wants to be notified of what comes next.
        self.queue.ring.enable_call();
        let tokens: Vec<(Token, u64)> =
            requests.iter().map(|request| self.submit(request)).collect::<Result<_, _>>()?;
        self.queue.notify()?;
        match tracer {
            Some(tracer) => self.run(tracer)?,
            None => self.queue.wait_for_all()?,
        }
        for (index, (request, (token, unique))) in requests.iter().zip(tokens).enumerate() {
            let reply = self.queue.wait(token)?;
            if request.is_answered {
                let payload = check(request, unique, &reply.writable)?;
                self.slots[index].take_in(step, payload);
            }
        }
        Ok(())
    }

    fn submit(&mut self, request: &Request) -> anyhow::Result<(Token, u64)> {
        self.unique += 2;
        let len = size_of::<InHeader>() + request.args.len() + request.data_len;
        let header = InHeader {
            len: (len as u32).into(),
            opcode: (request.opcode as u32).into(),
            unique: self.unique.into(),
            nodeid: request.nodeid.into(),
            uid: 0.into(),
            gid: 0.into(),
            pid: 1.into(),
            total_extlen: 0.into(),
            padding: 0.into(),
        };
        let data = vec![0x66; request.data_len];
        let readable: Vec<&[u8]> =
            [header.as_bytes(), &request.args, &data].into_iter().filter(|part| !part.is_empty()).collect();
        let rooms = if request.is_answered { [size_of::<OutHeader>(), request.room] } else { [0, 0] };
        let rooms: Vec<usize> = rooms.into_iter().filter(|room| *room > 0).collect();
        let token = self.queue.submit(&readable, &rooms).context("the ring is full")?;
        Ok((token, self.unique))
    }

    /// Runs the daemon until it has answered all requests, and for as long as the guest thinks about the replies.
    fn run(&mut self, tracer: &mut Tracer) -> anyhow::Result<()> {
        let begun = std::time::Instant::now();
        let mut answered_at_ns = None;
        loop {
            let progress = tracer.run()?;
            self.take_notifications()?;
            let now_ns = tracer.elapsed_ns();
            if self.queue.in_flight() == 0 {
                let next_at_ns = *answered_at_ns.get_or_insert(now_ns) + THINK_NS;
                if progress == Progress::Waits || now_ns >= next_at_ns {
                    tracer.idle((next_at_ns - now_ns).max(0));
                    return Ok(());
                }
            } else if progress == Progress::Waits {
                // It waits for something outside, such as a disk.
                std::thread::yield_now();
            }
            // A traced daemon is slow: a thousand times what another may take.
            ensure!(begun.elapsed() < 10 * HANG_AFTER, "no reply for {} s", 10 * HANG_AFTER.as_secs());
        }
    }

    /// Does what a driver does when it is notified: takes the replies, and asks for the next notification.
    fn take_notifications(&mut self) -> anyhow::Result<()> {
        let mut count = [0; 8];
        match rustix::io::read(self.queue.call.waiting_end(), &mut count) {
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(()),
            Err(error) => return Err(error).context("reading notifications"),
        }
        self.notifications += u64::from_ne_bytes(count);
        loop {
            self.queue.reap()?;
            if !self.queue.ring.enable_call() {
                return Ok(());
            }
        }
    }
}

/// Checks the header of a reply and returns its payload.
fn check<'a>(request: &Request, unique: u64, reply: &'a [u8]) -> anyhow::Result<&'a [u8]> {
    let Ok((header, payload)) = OutHeader::read_from_prefix(reply) else { bail!("a reply without a header") };
    ensure!(header.unique.get() == unique, "the reply is to {}, not to {unique}", header.unique.get());
    let error = header.error.get();
    ensure!(
        error == 0 || request.may_fail,
        "the reply is error {error} ({})",
        rustix::io::Errno::from_raw_os_error(-error)
    );
    Ok(payload)
}
