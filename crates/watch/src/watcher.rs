//! A thread that reads changes and passes them to a consumer.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    thread::{self, JoinHandle},
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::{Errno, write},
};

use crate::{Change, Event, Tree, Watch, WatchError};

/// What is done about changes. Called by one thread, in the order of the kernel's messages.
///
/// While a method runs nothing is read, and the kernel's queue fills up: hand work that waits to another thread.
pub trait Consumer: Send {
    /// Returns whether changes are wanted now. Until they are, nothing is read, the kernel's queue keeps what it has
    /// room for, and this is asked again every 50 ms. Once they are, this is not asked any more.
    fn is_ready(&mut self) -> bool {
        true
    }

    /// Everything that has happened until now was passed on: the kernel's queue is empty.
    fn caught_up(&mut self) {}

    /// Something has changed.
    fn changed(&mut self, change: &Change<'_>);

    /// Changes were lost, or not read before the end: anything may have changed.
    fn overflowed(&mut self);

    /// Nothing is observed any more: anything may have changed, and will.
    fn ended(&mut self, error: WatchError);
}

/// A running thread. Ends when it is dropped.
#[derive(Debug)]
pub struct Watcher {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts a thread that passes the changes in `tree`, or all if there is no tree, to `consumer`.
    ///
    /// # Errors
    ///
    /// Those of creating a thread and a descriptor.
    pub fn start(watch: Watch, tree: Option<Tree>, consumer: impl Consumer + 'static) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("watch".into()).spawn(move || run(watch, tree, consumer, &stopped))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Pause between two questions whether changes are wanted.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Reads after the end, for what has happened before it. The queue that the kernel keeps by default has fewer buffers.
const LAST_READS: usize = 256;

fn run(watch: Watch, tree: Option<Tree>, consumer: impl Consumer, stop: &OwnedFd) {
    let mut reading = Reading { watch, tree, consumer };
    while !reading.consumer.is_ready() {
        match poll(&mut [PollFd::new(stop, PollFlags::IN)], Some(&PAUSE)) {
            Ok(0) | Err(Errno::INTR) => {}
            _ => return,
        }
    }
    let mut is_drained = false;
    loop {
        // Between two reads too: the thread can be stopped however much happens.
        match wait(&reading.watch, stop, is_drained) {
            Ok(true) => break,
            Ok(false) => {}
            Err(errno) => return reading.consumer.ended(WatchError::Read(errno)),
        }
        match reading.read() {
            Ok(is_any) => is_drained = !is_any,
            Err(error) => return reading.consumer.ended(error),
        }
    }
    for _ in 0..LAST_READS {
        match reading.read() {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => break,
        }
    }
    reading.consumer.overflowed();
}

struct Reading<C> {
    watch: Watch,
    tree: Option<Tree>,
    consumer: C,
}

impl<C: Consumer> Reading<C> {
    /// Reads once and passes on what there is. Returns whether there was anything.
    fn read(&mut self) -> Result<bool, WatchError> {
        let Self { watch, tree, consumer } = self;
        let is_any = watch.read(|event| match event {
            Event::Overflow => consumer.overflowed(),
            Event::Change(change) => {
                let change = match tree {
                    Some(tree) => tree.narrow(&change),
                    None => Some(change),
                };
                if let Some(change) = change {
                    consumer.changed(&change);
                }
            }
        })?;
        if !is_any {
            consumer.caught_up();
        }
        Ok(is_any)
    }
}

/// Waits for changes, unless there may be more. Returns whether to stop.
fn wait(watch: &Watch, stop: &OwnedFd, is_drained: bool) -> Result<bool, Errno> {
    let limit = (!is_drained).then_some(Timespec::default());
    let mut fds = [PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
    match poll(&mut fds, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(!fds[1].revents().is_empty()),
        Err(errno) => Err(errno),
    }
}
