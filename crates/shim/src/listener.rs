//! Decides what others may do to mapped files: anything except shorten them.
//!
//! Touching a mapping past the end of a file raises a fatal signal, for example in a virtual machine. This thread never
//! waits for the user, who may be waiting for a verdict.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
};

use rustix::{
    fs::{FallocateFlags, OFlags, fstat},
    io::Errno,
    process::Pid,
};

use crate::{
    caller::{Call, Proc},
    fanotify::{self, AccessVerdict, Event, EventKind},
};

/// The user's process, which may do anything: the sender of the last request.
#[derive(Debug, Clone, Default)]
pub(crate) struct User(Arc<AtomicI32>);

impl User {
    pub(crate) fn set(&self, pid: Pid) {
        self.0.store(pid.as_raw_nonzero().get(), Ordering::Release);
    }

    fn get(&self) -> Option<Pid> {
        Pid::from_raw(self.0.load(Ordering::Acquire))
    }
}

/// Answers events for as long as the process lives. Blocks.
pub(crate) fn listen(group: &OwnedFd, proc: &Proc, user: &User) -> Result<(), Errno> {
    loop {
        fanotify::wait(group, |event| fanotify::answer(group, &event, judge(&event, proc, user)))?;
    }
}

fn judge(event: &Event, proc: &Proc, user: &User) -> AccessVerdict {
    if is_users(event, proc, user) {
        return AccessVerdict::Allow;
    }
    // If the size cannot be read, assume that the file may shrink.
    let size = fstat(&event.file).map_or(u64::MAX, |stat| stat.st_size.cast_unsigned());
    let call = event.thread.map_or(Call::Other, |thread| proc.call(thread));
    let shortens = match (event.kind, call) {
        (EventKind::Open, Call::Open { flags }) => size > 0 && truncates(flags),
        (EventKind::Access { .. }, Call::Truncate { len }) => len < size,
        (EventKind::Access { .. }, Call::Fallocate { mode }) => discards(mode),
        // A truncation through io_uring to a multiple of the page size; one to another size looks like a read.
        (EventKind::Access { offset, count: 0 }, Call::Ring) => offset < size,
        _ => false,
    };
    if shortens { AccessVerdict::Deny } else { AccessVerdict::Allow }
}

fn truncates(flags: u64) -> bool {
    OFlags::from_bits_retain(flags as u32).contains(OFlags::TRUNC)
}

fn discards(mode: u64) -> bool {
    FallocateFlags::from_bits_retain(mode as u32)
        .intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::COLLAPSE_RANGE)
}

fn is_users(event: &Event, proc: &Proc, user: &User) -> bool {
    user.get().zip(event.thread).is_some_and(|(user, thread)| proc.has_thread(user, thread))
}
