//! Waits for write-backs as long as they get on. A slow host may take minutes, and loses nothing by that; one that does
//! not answer is given up.

use std::{
    fs,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant},
};

/// A host that has taken nothing for so long does not answer.
pub(super) const GIVEN_UP_AFTER: Duration = Duration::from_secs(60);
/// How often a wait looks whether less is left.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How the guest's write-backs get on, all together.
#[derive(Debug)]
pub(super) struct Stall {
    /// The least that was left.
    least_kib: u64,
    /// Since when it is no less.
    since: Instant,
    limit: Duration,
}

impl Stall {
    pub(super) fn new() -> Self {
        Self { least_kib: u64::MAX, since: Instant::now(), limit: GIVEN_UP_AFTER }
    }

    /// Waits for an outcome; `None` if it does not come, and nothing has been written for [`GIVEN_UP_AFTER`].
    pub(super) fn wait<T>(&mut self, outcome: &Receiver<T>) -> Option<T> {
        loop {
            match outcome.recv_timeout(LOOK_EVERY) {
                Ok(outcome) => return Some(outcome),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let left = unwritten_kib(&fs::read_to_string("/proc/meminfo").unwrap_or_default());
            if left < self.least_kib {
                (self.least_kib, self.since) = (left, Instant::now());
            } else if self.since.elapsed() >= self.limit {
                return None;
            }
        }
    }
}

/// Returns how much is written in memory only, or on its way.
fn unwritten_kib(meminfo: &str) -> u64 {
    let kib = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let counts = matches!(name, "Dirty" | "Writeback" | "WritebackTmp");
        value.split_whitespace().next()?.parse::<u64>().ok().filter(|_| counts)
    };
    meminfo.lines().filter_map(kib).sum()
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use super::*;

    #[test]
    fn what_does_not_come_is_given_up_and_what_has_come_is_not() {
        let mut stall = Stall { least_kib: 0, since: Instant::now(), limit: Duration::from_millis(1) };
        let (_sender, never) = mpsc::channel::<()>();
        assert_eq!(stall.wait(&never), None);
        let (sender, there) = mpsc::channel();
        sender.send(1).unwrap();
        assert_eq!(stall.wait(&there), Some(1));
        let (sender, ended) = mpsc::channel::<()>();
        drop(sender);
        assert_eq!(stall.wait(&ended), None);
    }

    #[test]
    fn what_comes_later_is_waited_for() {
        let (sender, later) = mpsc::channel();
        let thread = thread::spawn(move || {
            thread::sleep(LOOK_EVERY * 2);
            sender.send(2).unwrap();
        });
        assert_eq!(Stall::new().wait(&later), Some(2));
        thread.join().unwrap();
    }

    #[test]
    fn dirty_pages_and_those_on_their_way_count() {
        let meminfo = "MemTotal: 100 kB\nDirty:   12 kB\nWriteback:  3 kB\nAnonPages: 7 kB\nWritebackTmp: 5 kB\n";
        assert_eq!(unwritten_kib(meminfo), 20);
        assert_eq!(unwritten_kib(""), 0);
    }
}
