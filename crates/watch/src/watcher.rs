//! A thread that reads changes and passes them to a consumer.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    thread::{self, JoinHandle},
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, eventfd, poll},
    io::{Errno, write},
};

use crate::{Change, Event, Tree, Watch, WatchError};

/// What is done about changes. Called by one thread, in the order of the kernel's messages.
///
/// While a method runs nothing is read, and the kernel's queue fills up: hand work that waits to another thread.
pub trait Consumer: Send {
    /// Something has changed.
    fn changed(&mut self, change: &Change<'_>);

    /// Changes were lost: anything may have changed.
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

fn run(mut watch: Watch, mut tree: Option<Tree>, mut consumer: impl Consumer, stop: &OwnedFd) {
    loop {
        match wait(&watch, stop) {
            Ok(true) => return,
            Ok(false) => {}
            Err(errno) => return consumer.ended(WatchError::Read(errno)),
        }
        // One read for each wait: the thread can be stopped however much happens.
        let read = watch.read(|event| match event {
            Event::Overflow => consumer.overflowed(),
            Event::Change(change) => {
                let change = match &mut tree {
                    Some(tree) => tree.narrow(&change),
                    None => Some(change),
                };
                if let Some(change) = change {
                    consumer.changed(&change);
                }
            }
        });
        if let Err(error) = read {
            return consumer.ended(error);
        }
    }
}

/// Waits for changes. Returns whether to stop.
fn wait(watch: &Watch, stop: &OwnedFd) -> Result<bool, Errno> {
    let mut fds = [PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
    match poll(&mut fds, None) {
        Ok(_) | Err(Errno::INTR) => Ok(!fds[1].revents().is_empty()),
        Err(errno) => Err(errno),
    }
}
