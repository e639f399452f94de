//! Watches the calls of the daemon's threads that serve requests, and disturbs one of them.

use std::{
    collections::HashMap,
    fs,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rustix::io::Errno;

use crate::{
    calls,
    listener::{Listener, Question},
};

/// What happens to the call with some number, counted from 0 over the calls that serve the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disturbance {
    None,
    /// It fails in one of its ways, by the number of the way; a call that has fewer ways is made.
    Fail(usize, usize),
    /// It waits for [`Disturber::go_on`].
    Hold(usize),
}

/// A call that was seen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) asked: Question,
    /// Why it failed, where it was made to.
    pub(crate) failed: Option<Errno>,
}

/// Answers the questions of one daemon's listener, on a thread that ends with the daemon.
pub(crate) struct Disturber(Arc<Shared>);

struct Shared {
    listener: Listener,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// `None` between requests: nothing is counted.
    disturbance: Option<Disturbance>,
    calls: Vec<Call>,
    held: Option<Question>,
}

/// How often a thread looks for what it is not told of.
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl Disturber {
    pub(crate) fn start(listener: Listener) -> Self {
        let shared = Arc::new(Shared { listener, state: Mutex::default(), changed: Condvar::new() });
        let this = Self(shared.clone());
        thread::Builder::new().name("disturber".into()).spawn(move || shared.run()).unwrap();
        this
    }

    /// Counts calls from now on and disturbs one.
    pub(crate) fn arm(&self, disturbance: Disturbance) {
        let mut state = self.0.lock();
        assert!(state.held.is_none());
        (state.disturbance, state.calls) = (Some(disturbance), Vec::new());
    }

    /// Returns the calls that were counted.
    pub(crate) fn disarm(&self) -> Vec<Call> {
        let mut state = self.0.lock();
        state.disturbance = None;
        std::mem::take(&mut state.calls)
    }

    /// Waits until a call is held, which it returns, or `is_over`.
    pub(crate) fn wait_for_held(&self, mut is_over: impl FnMut(&[Call]) -> bool) -> Option<Question> {
        let mut state = self.0.lock();
        loop {
            if state.held.is_some() {
                return state.held;
            }
            if is_over(&state.calls) {
                return None;
            }
            let waited = self.0.changed.wait_timeout(state, LOOK_EVERY);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the held call be made, and those that follow.
    pub(crate) fn go_on(&self) {
        let mut state = self.0.lock();
        state.disturbance = Some(Disturbance::None);
        let held = state.held.take();
        drop(state);
        if let Some(question) = held {
            self.0.listener.allow(question).unwrap();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut serving = HashMap::new();
        // Fails when the daemon has ended.
        while let Ok(asked) = self.listener.next(Duration::from_secs(3600)) {
            let Some(asked) = asked else { continue };
            if self.answer(asked, &mut serving).is_err() {
                break;
            }
        }
    }

    fn answer(&self, asked: Question, serving: &mut HashMap<u32, bool>) -> std::io::Result<()> {
        let mut state = self.lock();
        let Some(disturbance) = state.disturbance else { return self.listener.allow(asked) };
        // A thread is asked about before it has its name: what is no serving thread yet is looked at again.
        let serves = serving.get(&asked.tid).copied().unwrap_or(false) || is_serving(asked.tid);
        serving.insert(asked.tid, serves);
        if !serves {
            return self.listener.allow(asked);
        }
        let number = state.calls.len();
        state.calls.push(Call { asked, failed: None });
        match disturbance {
            Disturbance::Fail(nth, way) if nth == number => match calls::failures(&asked).get(way) {
                Some(&errno) => {
                    state.calls[number].failed = Some(errno);
                    self.listener.fail(asked, errno)
                }
                None => self.listener.allow(asked),
            },
            Disturbance::Hold(nth) if nth == number => {
                state.held = Some(asked);
                self.changed.notify_all();
                Ok(())
            }
            _ => self.listener.allow(asked),
        }
    }
}

/// Whether requests are served by that thread, by its name.
fn is_serving(tid: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{tid}/comm")).unwrap_or_default();
    ["vring_worker", "pool", "lock-waiter"].iter().any(|prefix| name.starts_with(prefix))
}
