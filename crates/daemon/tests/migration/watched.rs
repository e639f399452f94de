//! A queue that compares guest memory before and after each request with what the daemon has marked.

use std::{cell::RefCell, collections::BTreeSet, rc::Rc, time::Instant};

use transom_frontend::{
    FrontEnd,
    dirty::{DirtyLog, LOG_PAGE},
    fuse::Exchange,
    message::HANG_AFTER,
    queue::{Completion, Queue},
};

/// The queue that requests go to.
pub(crate) const REQUEST: u32 = 1;

/// A queue, and the pages that each of its requests changed.
pub(crate) struct Watched {
    pub(crate) front_end: Rc<FrontEnd>,
    pub(crate) queue: Queue,
    pub(crate) log: Rc<DirtyLog>,
    /// Whether marks are expected.
    pub(crate) is_logging: bool,
    pub(crate) has_event_idx: bool,
    /// Length of each writable buffer but the first, which has the reply's header.
    pub(crate) piece: usize,
    /// The number of pages that requests have changed.
    pub(crate) changed: Rc<RefCell<usize>>,
}

impl Exchange for Watched {
    fn exchange(&mut self, readable: &[&[u8]], room: usize) -> anyhow::Result<Completion> {
        let mut rooms = vec![room.min(16)];
        rooms.extend((16..room).step_by(self.piece).map(|from| self.piece.min(room - from)));
        // The daemon takes nothing until the memory is copied.
        self.front_end.enable(REQUEST, false)?;
        let used = self.queue.ring.used_idx();
        let token = self.queue.submit(readable, &rooms).expect("the ring has room");
        let ram = self.queue.ram().clone();
        let contents = || ram.read(0, ram.size() as usize);
        self.log.clear()?;
        let before = contents();
        self.front_end.enable(REQUEST, true)?;
        self.queue.kick.wake()?;
        let began = Instant::now();
        while self.queue.ring.used_idx() == used {
            assert!(began.elapsed() < HANG_AFTER, "the request is not answered");
            std::thread::yield_now();
        }
        self.settle();
        let after = contents();
        let pages = before.chunks(LOG_PAGE as usize).zip(after.chunks(LOG_PAGE as usize)).enumerate();
        let changed: BTreeSet<u64> =
            pages.filter(|(_, (before, after))| before != after).map(|(page, _)| page as u64).collect();
        let mut marked: BTreeSet<u64> = self.log.marked()?.into_iter().collect();
        if self.is_logging {
            // The event index is marked a moment after it is written.
            while !changed.is_subset(&marked) && began.elapsed() < HANG_AFTER {
                marked = self.log.marked()?.into_iter().collect();
            }
            assert!(changed.is_subset(&marked), "changed {changed:?}, but marked {marked:?}");
            // Each buffer may begin and end within a page; the used ring and its event index have four more at most.
            let most: usize = rooms.iter().map(|room| room / LOG_PAGE as usize + 2).sum::<usize>() + 4;
            assert!(marked.len() <= most, "{} pages are marked for {room} bytes", marked.len());
        } else {
            assert!(marked.is_empty(), "marked {marked:?} while the log is off");
        }
        *self.changed.borrow_mut() += changed.len();
        self.queue.wait(token)
    }
}

impl Watched {
    /// Waits until the daemon sleeps, which has written its event index or flags by then.
    fn settle(&self) {
        let ring = &self.queue.ring;
        let [_, _, used] = ring.addresses();
        let event = used + 4 + 8 * u64::from(ring.size());
        let ram = self.queue.ram();
        let began = Instant::now();
        let is_asleep = || match self.has_event_idx {
            true => u16::from_le(ram.load(event)) == ring.next_avail(),
            false => u16::from_le(ram.load(used)) == 0,
        };
        while !is_asleep() {
            assert!(began.elapsed() < HANG_AFTER, "the daemon does not sleep");
            std::thread::yield_now();
        }
    }
}
