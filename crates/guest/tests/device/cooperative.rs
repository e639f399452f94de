//! Threads that share a processor, and keep it until they yield.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use transom_guest::{
    channel::{Channel as _, Message, Sink, Source},
    device::{Settings, VirtioFs},
    platform::{Held, Platform},
};

use crate::{
    calls::echo,
    fake::{ALL, Fake, FakeTransport},
    platform::{Event, SLEEPING, Threads, direct},
    polled::Polled,
};

/// More yields than a thread makes while it polls before it would sleep.
const YIELDS: u64 = 1000;

/// A platform on which the reply comes only after other threads had the processor often enough: one of them releases a
/// lock that the request waits for.
struct Cooperative {
    fake: Arc<Fake>,
    yields: AtomicU64,
}

impl Platform for Cooperative {
    type RawMutex = parking_lot::RawMutex;
    type Event = Event;

    fn now_ns(&self) -> u64 {
        Threads.now_ns()
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }

    fn yield_now(&self) {
        if self.yields.fetch_add(1, Ordering::Relaxed) == YIELDS {
            let chain = self.fake.pop(1).expect("somebody waits for a reply");
            let written = chain.reply(&echo(&chain));
            self.fake.push(1, chain.head.into(), written);
        }
    }

    fn with_held(check: impl FnOnce(&Held)) {
        Threads::with_held(check);
    }
}

#[test]
fn who_watches_for_a_reply_yields_to_the_thread_that_it_depends_on() {
    for settings in [SLEEPING, Settings::default()] {
        let fake = Arc::new(Fake::new(ALL, 1, 16));
        let platform = Arc::new(Cooperative { fake: Arc::clone(&fake), yields: AtomicU64::new(0) });
        let device = VirtioFs::new(
            Polled { line: FakeTransport(fake), on_wait: |_: &FakeTransport, _| {} },
            platform,
            &direct(),
            settings,
        )
        .unwrap();
        let (sender, answered) = mpsc::channel();
        // A thread of its own, which is abandoned if it never gets its reply.
        let caller = thread::spawn(move || {
            let mut sum = [0; 8];
            let message =
                Message { head: &[3; 40], data: Source::Empty, reply_head: &mut sum, reply_data: Sink::Empty };
            sender.send(device.call(0, message).map(|_| u64::from_le_bytes(sum))).unwrap();
        });
        assert_eq!(answered.recv_timeout(Duration::from_secs(60)), Ok(Ok(120)));
        caller.join().unwrap();
    }
}
