//! Changes in the directories that a consumer holds, by inotify: where fanotify is not granted.
//!
//! Watches cost kernel memory that is charged to the user, so their number is bounded by us and by
//! `/proc/sys/fs/inotify/max_user_watches`. Messages have no pids, hence the [`Journal`].

mod message;

use std::{
    collections::HashMap,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags},
    io::{Errno, read},
    path::Arg,
};

use crate::{Change, ChangeKind, Event, Journal, WatchError};
use message::Message;

/// Bytes that are read before authors are found: about 2000 messages.
const BATCH_LEN: usize = 128 * 1024;

/// Room that the kernel demands for one message.
const MESSAGE_LEN_MAX: usize = 16 + 255 + 1;

/// What is observed of each directory. Names and contents of files in it are included, those below are not.
const MASK: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVE)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::EXCL_UNLINK);

/// Watches on objects that a consumer holds.
#[derive(Debug)]
pub(crate) struct Inotify {
    queue: OwnedFd,
    journal: Arc<Journal>,
    ids: HashMap<i32, u64>,
    watches: HashMap<u64, i32>,
    watches_max: usize,
    buffer: Box<[u8]>,
}

impl Inotify {
    /// Creates a source that sees nothing yet, and holds at most `watches_max` objects.
    pub(crate) fn open(watches_max: usize, journal: Arc<Journal>) -> Result<Self, WatchError> {
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(WatchError::Limit)?;
        Ok(Self {
            queue,
            journal,
            ids: HashMap::new(),
            watches: HashMap::new(),
            watches_max,
            buffer: vec![0; BATCH_LEN].into(),
        })
    }

    /// Observes the object at `path`.
    ///
    /// # Errors
    ///
    /// ENOSPC if there are too many watches, EACCES if the object may not be read; ENOENT.
    pub(crate) fn hold(&mut self, id: u64, path: impl Arg) -> Result<(), Errno> {
        if self.watches.contains_key(&id) {
            return Ok(());
        }
        if self.watches.len() >= self.watches_max {
            return Err(Errno::NOSPC);
        }
        let watch = inotify::add_watch(&self.queue, path, MASK)?;
        // What we announced before has no message.
        self.journal.doubt_all();
        if let Some(other) = self.ids.insert(watch, id) {
            self.watches.remove(&other);
        }
        self.watches.insert(id, watch);
        Ok(())
    }

    /// Stops observing an object.
    pub(crate) fn release(&mut self, id: u64) {
        let Some(watch) = self.watches.remove(&id) else { return };
        self.ids.remove(&watch);
        // Fails if the object is gone, and the watch with it.
        let _ = inotify::remove_watch(&self.queue, watch);
    }

    /// Returns the number of objects that are observed.
    pub(crate) fn held(&self) -> usize {
        self.watches.len()
    }

    /// Reads a batch. Returns whether there was anything. Does not block.
    pub(crate) fn read(&mut self, each: &mut dyn FnMut(Event<'_>)) -> Result<bool, WatchError> {
        let reading = self.journal.begin();
        let (len, is_drained) = self.fill()?;
        let (mut changes, mut gone, mut is_overflow) = (Vec::new(), Vec::new(), false);
        let mut previous: Option<Message<'_>> = None;
        let mut rest = &self.buffer[..len];
        while !rest.is_empty() {
            let (message, others) = Message::parse(rest)?;
            rest = others;
            is_overflow |= message.flags.contains(ReadFlags::QUEUE_OVERFLOW);
            if message.flags.contains(ReadFlags::IGNORED) {
                gone.push(message.watch);
            }
            let Some(change) = self.ids.get(&message.watch).and_then(|id| message.change(*id)) else { continue };
            match (previous.replace(message), change.place) {
                (Some(from), Some(to)) if from.moves_to(&message) => match changes.last_mut() {
                    Some(Change { kind: kind @ ChangeKind::MovedOut, .. }) => *kind = ChangeKind::Renamed { to },
                    _ => changes.push(change),
                },
                _ => changes.push(change),
            }
        }
        if is_overflow {
            // Announced changes may have lost their messages.
            self.journal.doubt_all();
        }
        self.journal.attribute(reading, is_drained, &mut changes);
        if is_overflow {
            each(Event::Overflow);
        }
        changes.into_iter().for_each(|change| each(Event::Change(change)));
        for watch in gone {
            if let Some(id) = self.ids.remove(&watch) {
                self.watches.remove(&id);
            }
        }
        Ok(len > 0)
    }

    /// Fills the buffer. Returns how much it has, and whether the kernel's queue is empty.
    fn fill(&mut self) -> Result<(usize, bool), WatchError> {
        let mut len = 0;
        while self.buffer.len() - len >= MESSAGE_LEN_MAX {
            match read(&self.queue, &mut self.buffer[len..]) {
                Ok(count) => len += count,
                Err(Errno::AGAIN) => return Ok((len, true)),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(WatchError::Read(errno)),
            }
        }
        Ok((len, false))
    }
}

impl AsFd for Inotify {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.queue.as_fd()
    }
}
