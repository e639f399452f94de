//! A queue's ring whose wake-ups never block.
//!
//! The descriptors come from the front end. A kick of half a number, or a call pipe that nobody reads, would otherwise
//! hold a thread, and with it the ring's mutex, for as long as the front end likes.

use std::{fs::File, io, os::fd::AsFd};

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use vhost_user_backend::{VringMutex, VringStateGuard, VringStateMutGuard, VringT};
use virtio_queue::Error;

use super::Memory;

/// A queue's ring, shared with the thread that talks to the front end.
#[derive(Clone)]
pub(super) struct Vring(VringMutex<Memory>);

impl<'a> VringStateGuard<'a, Memory> for Vring {
    type G = <VringMutex<Memory> as VringStateGuard<'a, Memory>>::G;
}

impl<'a> VringStateMutGuard<'a, Memory> for Vring {
    type G = <VringMutex<Memory> as VringStateMutGuard<'a, Memory>>::G;
}

impl VringT<Memory> for Vring {
    fn new(memory: Memory, queue_size_max: u16) -> Result<Self, Error> {
        VringMutex::new(memory, queue_size_max).map(Self)
    }

    /// A front end writes to it, and never minds that it does not block.
    fn set_kick(&self, file: Option<File>) {
        if let Some(file) = &file {
            never_block(file);
        }
        self.0.set_kick(file);
    }

    /// Woken for nothing is woken: the ring says whether there is something.
    fn read_kick(&self) -> io::Result<bool> {
        match self.0.read_kick() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(self.get_ref().is_enabled()),
            result => result,
        }
    }

    /// A front end may wait for an eventfd in read(2), which has to go on blocking; our writes to one do not.
    fn set_call(&self, file: Option<File>) {
        if let Some(file) = &file
            && !is_event_fd(file)
        {
            never_block(file);
        }
        self.0.set_call(file);
    }

    /// A pipe that is full wakes its reader all the same.
    fn signal_used_queue(&self) -> io::Result<()> {
        match self.0.signal_used_queue() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            result => result,
        }
    }

    fn get_ref(&self) -> <Self as VringStateGuard<'_, Memory>>::G {
        self.0.get_ref()
    }

    fn get_mut(&self) -> <Self as VringStateMutGuard<'_, Memory>>::G {
        self.0.get_mut()
    }

    fn add_used(&self, head: u16, len: u32) -> Result<(), Error> {
        self.0.add_used(head, len)
    }

    fn enable_notification(&self) -> Result<bool, Error> {
        self.0.enable_notification()
    }

    fn disable_notification(&self) -> Result<(), Error> {
        self.0.disable_notification()
    }

    fn needs_notification(&self) -> Result<bool, Error> {
        self.0.needs_notification()
    }

    fn set_enabled(&self, is_enabled: bool) {
        self.0.set_enabled(is_enabled);
    }

    fn set_queue_info(&self, table: u64, avail: u64, used: u64) -> Result<(), Error> {
        self.0.set_queue_info(table, avail, used)
    }

    fn queue_next_avail(&self) -> u16 {
        self.0.queue_next_avail()
    }

    fn set_queue_next_avail(&self, base: u16) {
        self.0.set_queue_next_avail(base);
    }

    fn set_queue_next_used(&self, index: u16) {
        self.0.set_queue_next_used(index);
    }

    fn queue_used_idx(&self) -> Result<u16, Error> {
        self.0.queue_used_idx()
    }

    fn set_queue_size(&self, size: u16) {
        self.0.set_queue_size(size);
    }

    fn set_queue_event_idx(&self, is_enabled: bool) {
        self.0.set_queue_event_idx(is_enabled);
    }

    fn set_queue_ready(&self, is_ready: bool) {
        self.0.set_queue_ready(is_ready);
    }

    fn set_err(&self, file: Option<File>) {
        self.0.set_err(file);
    }
}

/// An eventfd has no type of file that fstat(2) would name.
fn is_event_fd(file: &File) -> bool {
    fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Unknown)
}

fn never_block(fd: impl AsFd) {
    let set = fcntl_getfl(&fd).and_then(|flags| fcntl_setfl(&fd, flags | OFlags::NONBLOCK));
    if let Err(error) = set {
        tracing::warn!(%error, "a wake-up of the front end may block");
    }
}
