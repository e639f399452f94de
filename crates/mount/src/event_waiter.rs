//! What a worker sleeps on: requests of the kernel, replies of the daemon, and the end of the connection.

use std::{mem::MaybeUninit, os::fd::OwnedFd, sync::Arc};

use rustix::{
    event::epoll::{self, CreateFlags, Event, EventData, EventFlags},
    io::Errno,
};
use transom_user::platform::{timespec, until};

use super::{MountEnd, connection::Connection, fuse_device::FuseDevice};

const STOP: u64 = 1;
const OTHER: u64 = 0;

/// An epoll instance for one worker.
pub(super) struct EventWaiter {
    epoll: OwnedFd,
    device: Arc<FuseDevice>,
    /// Whether `device` is registered with `epoll`.
    is_device_registered: bool,
}

impl EventWaiter {
    /// Creates a waiter for `device`, the queue with number `queue`, and the end of `connection`.
    ///
    /// # Errors
    /// The connection has ended, or a system call failed.
    pub(super) fn new(connection: &Connection, queue: u16, device: &Arc<FuseDevice>) -> Result<Self, MountEnd> {
        let epoll = epoll::create(CreateFlags::CLOEXEC).map_err(MountEnd::Kernel)?;
        let add = |fd, data, flags| epoll::add(&epoll, fd, EventData::new_u64(data), flags).map_err(MountEnd::Kernel);
        add(connection.stop(), STOP, EventFlags::IN)?;
        // Edge-triggered, so that nobody has to read the eventfd.
        let call = connection.device.call_fd(queue).ok_or(MountEnd::Gone)?;
        add(call, OTHER, EventFlags::IN | EventFlags::ET)?;
        Ok(Self { epoll, device: Arc::clone(device), is_device_registered: false })
    }

    /// Blocks until the daemon signals the queue, until a request is waiting if `for_requests`, or until `deadline_ns`
    /// of the monotonic clock. May return early.
    ///
    /// # Errors
    /// The connection has ended, or a system call failed.
    pub(super) fn wait(&mut self, for_requests: bool, deadline_ns: Option<u64>) -> Result<(), MountEnd> {
        self.register_device(for_requests)?;
        let timeout = deadline_ns.map(|deadline_ns| timespec(until(deadline_ns)));
        let mut events = [MaybeUninit::<Event>::uninit(); 3];
        let happened = match epoll::wait(&self.epoll, &mut events, timeout.as_ref()) {
            Ok((happened, _)) => happened,
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(MountEnd::Kernel(errno)),
        };
        if happened.iter().any(|event| event.data.u64() == STOP) { Err(MountEnd::Stopped) } else { Ok(()) }
    }

    /// Registers or removes the descriptor of `/dev/fuse`.
    ///
    /// It is registered as exclusive, so that a request wakes one worker rather than all. Such a registration cannot be
    /// modified, only removed and added.
    fn register_device(&mut self, is_wanted: bool) -> Result<(), MountEnd> {
        if is_wanted == self.is_device_registered {
            return Ok(());
        }
        self.is_device_registered = is_wanted;
        let device = &*self.device;
        if is_wanted {
            let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
            epoll::add(&self.epoll, device, EventData::new_u64(OTHER), flags)
        } else {
            epoll::delete(&self.epoll, device)
        }
        .map_err(MountEnd::Kernel)
    }
}
