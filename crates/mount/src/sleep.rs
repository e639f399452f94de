//! What a thread of a mount sleeps on: the kernel's requests, the daemon's replies, and the end.

use std::{mem::MaybeUninit, os::fd::OwnedFd, sync::Arc};

use rustix::{
    event::epoll::{self, CreateFlags, Event, EventData, EventFlags},
    io::Errno,
};

use super::{End, kernel::Kernel, lane::Lane};
use transom_user::platform::{timespec, until};

const STOP: u64 = 1;
const OTHER: u64 = 0;

pub(super) struct Sleep {
    epoll: OwnedFd,
    kernel: Arc<Kernel>,
    watches_kernel: bool,
}

impl Sleep {
    pub(super) fn new(lane: &Lane) -> Result<Self, End> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(End::Kernel)?;
        let add = |fd, data, flags| epoll::add(&epoll, fd, EventData::new_u64(data), flags).map_err(End::Kernel);
        add(lane.shared.stop(), STOP, EventFlags::IN)?;
        // By edges: nobody has to read the eventfd then.
        add(lane.shared.device.call_fd(lane.queue).ok_or(End::Gone)?, OTHER, EventFlags::IN | EventFlags::ET)?;
        Ok(Self { epoll, kernel: Arc::clone(&lane.kernel), watches_kernel: false })
    }

    /// Blocks until the daemon has told of the queue, until there is a request if `watches_kernel`, or until `deadline_ns` of
    /// the monotonic clock; may return early.
    ///
    /// Errors: the mount has ended.
    pub(super) fn until_something(&mut self, watches_kernel: bool, deadline_ns: Option<u64>) -> Result<(), End> {
        self.watch_kernel(watches_kernel)?;
        let timeout = deadline_ns.map(|deadline_ns| timespec(until(deadline_ns)));
        let mut events = [MaybeUninit::<Event>::uninit(); 3];
        let happened = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((happened, _)) => happened,
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(End::Kernel(errno)),
        };
        if happened.iter().any(|event| event.data.u64() == STOP) { Err(End::Stopped) } else { Ok(()) }
    }

    /// The kernel's descriptor becomes readable for one thread at a time, not for all that sleep. Such a registration cannot
    /// be changed, only taken away and made again.
    fn watch_kernel(&mut self, is_watched: bool) -> Result<(), End> {
        if is_watched == self.watches_kernel {
            return Ok(());
        }
        self.watches_kernel = is_watched;
        let kernel = &*self.kernel;
        if is_watched {
            let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
            epoll::add(&self.epoll, kernel, EventData::new_u64(OTHER), flags)
        } else {
            epoll::delete(&self.epoll, kernel)
        }
        .map_err(End::Kernel)
    }
}
