//! The guest of a round: a session whose requests can be given up, and what it knows and has open before the request.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use transom_frontend::{
    fuse::{Answer, Exchange, Session},
    message::HANG_AFTER,
    queue::{Completion, Queue},
};

/// The nodeid of the root.
pub(crate) const ROOT: u64 = 1;

/// A queue whose caller stops waiting when its front end has left.
pub(crate) struct Leavable {
    queue: Queue,
    has_left: Arc<AtomicBool>,
}

pub(crate) type Guest = Session<Leavable>;

impl Leavable {
    pub(crate) fn new(queue: Queue, has_left: &Arc<AtomicBool>) -> Self {
        Self { queue, has_left: has_left.clone() }
    }
}

impl Exchange for Leavable {
    fn exchange(&mut self, readable: &[&[u8]], room: usize) -> anyhow::Result<Completion> {
        let rooms: Vec<usize> = [16.min(room), room.saturating_sub(16)].into_iter().filter(|&room| room > 0).collect();
        let Some(token) = self.queue.submit(readable, &rooms) else { anyhow::bail!("the ring is full") };
        self.queue.notify()?;
        let begun_at = Instant::now();
        while self.queue.reap()? == 0 {
            anyhow::ensure!(!self.has_left.load(Relaxed), "the front end has left");
            anyhow::ensure!(begun_at.elapsed() < HANG_AFTER, "no answer for {} s", HANG_AFTER.as_secs());
            thread::sleep(Duration::from_micros(200));
        }
        self.queue.wait(token)
    }
}

/// What the guest has looked up and opened before the request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prepared {
    pub(crate) file: u64,
    pub(crate) file_fh: u64,
    pub(crate) copy: u64,
    pub(crate) copy_fh: u64,
    pub(crate) dir: u64,
    pub(crate) dir_fh: u64,
    pub(crate) link: u64,
}

impl Prepared {
    pub(crate) fn prepare(s: &mut Guest) -> Answer<Self> {
        let mut lookup = |name: &[u8]| Ok(s.lookup(ROOT, name)?.nodeid.get());
        let (file, copy, dir, link) = (lookup(b"file")?, lookup(b"copy")?, lookup(b"dir")?, lookup(b"link")?);
        lookup(b"victim")?;
        let flags = libc::O_RDWR as u32;
        let (file_fh, copy_fh, dir_fh) = (s.open(file, flags)?, s.open(copy, flags)?, s.opendir(dir)?);
        Ok(Self { file, file_fh, copy, copy_fh, dir, dir_fh, link })
    }
}
