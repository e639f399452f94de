//! Requests by io_uring rather than by read(2) and write(2): FUSE over io_uring, Linux 6.14.
//!
//! The kernel has a queue for each processor, and a queue entries, each for one request at a time. A request's data goes
//! straight to where the daemon reads it, the data of the reply is taken from where the daemon wrote it; one call answers
//! requests and takes the next. [`lane`] is the thread, [`ring`] what it shares with the kernel. FORGET and INTERRUPT come by
//! `/dev/fuse` as ever, and so does what the kernel asks before every queue has entries. What a mount does beside carrying
//! messages, passing files through and reconnecting, it does without rings only.

mod body_len;
mod header;
mod lane;
mod ring;

use std::{fs, io, sync::Arc};

use rustix::io::Errno;
use thiserror::Error;

use super::{
    lane::{Lane, Memory},
    options::Options,
};
pub(super) use lane::UringLane;
use ring::KernelRing;

/// Slots of a thread that are no entries, for what comes by `/dev/fuse`.
const READ_SLOTS: u16 = 16;

/// Why requests do not come by io_uring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoRings {
    /// [`Options::io_uring`] does not say so.
    #[error("it was not asked for")]
    Off,
    /// Answers of opens come from any thread with passthrough.
    #[error("it does not go together with passthrough")]
    Passthrough,
    /// With another daemon requests are given again, from any thread.
    #[error("it does not go together with reconnect")]
    Reconnect,
    /// The kernel has not offered it.
    #[error(
        "the kernel does not offer it: it is older than 6.14, or root has to switch it on for later mounts: \
         echo Y > /sys/module/fuse/parameters/enable_uring"
    )]
    Kernel,
    /// Each of the machine's processors needs entries: there are more processors than slots.
    #[error("{0} processors are too many for {1} threads")]
    Processors(u16, u16),
    /// There is no ring to be had.
    #[error("io_uring_setup: {0}")]
    Setup(Errno),
}

/// What a mount's threads need to have their requests by io_uring.
pub(super) struct Rings {
    /// One for each thread.
    rings: Vec<KernelRing>,
    /// Queues of the kernel.
    processors: u16,
    /// Of each queue.
    entries: u16,
}

impl Rings {
    /// For `lanes` threads with room for `chains_max` requests each.
    pub(super) fn new(options: &Options, lanes: u16, chains_max: u16, memory: &Arc<Memory>) -> Result<Self, NoRings> {
        match options {
            Options { io_uring: false, .. } => return Err(NoRings::Off),
            Options { passthrough: true, .. } => return Err(NoRings::Passthrough),
            Options { reconnect: Some(_), .. } => return Err(NoRings::Reconnect),
            _ => {}
        }
        let refused = |error: io::Error| NoRings::Setup(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        let list = fs::read_to_string("/sys/devices/system/cpu/possible").map_err(refused)?;
        let processors = count(&list).ok_or(NoRings::Setup(Errno::INVAL))?;
        let queues_max = processors.div_ceil(lanes.max(1));
        let entries = chains_max.saturating_sub(READ_SLOTS) / queues_max;
        if entries == 0 {
            return Err(NoRings::Processors(processors, lanes));
        }
        let ring = |_| KernelRing::new(entries * queues_max, Arc::clone(memory)).map_err(refused);
        Ok(Self { rings: (0..lanes).map(ring).collect::<Result<_, _>>()?, processors, entries })
    }

    /// The threads' lanes; each gets every so many-th queue.
    pub(super) fn carry(self, lanes: Vec<Lane>) -> impl Iterator<Item = UringLane> {
        let Self { rings, processors, entries } = self;
        let step = lanes.len();
        let of = move |(index, (lane, ring)): (usize, (Lane, KernelRing))| {
            let queues = (0..processors).skip(index).step_by(step).collect();
            UringLane::new(lane, ring, queues, entries)
        };
        lanes.into_iter().zip(rings).enumerate().map(of)
    }
}

/// How many processors a list as `0-3,8` names.
fn count(list: &str) -> Option<u16> {
    list.trim().split(',').try_fold(0u16, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_and_a_list_that_is_none_has_none() {
        let counted = ["0\n", "0-1\n", "0-3,8-11,64", "", "3-1", "0-65535", "a"].map(count);
        assert_eq!(counted, [Some(1), Some(2), Some(9), None, None, None, None]);
    }
}
