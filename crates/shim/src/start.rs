//! The main function of the process and its threads.

use std::{
    os::fd::{AsFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Barrier, mpsc},
    thread,
};

use rustix::{
    fs::{MemfdFlags, fstat, memfd_create},
    io::Errno,
    net::sockopt::set_socket_passcred,
    thread::gettid,
};

use crate::{
    Step, VIEW_SIZE, backing,
    caller::Proc,
    channel,
    channel::Message,
    fanotify,
    fork::exit_now,
    guards::Guards,
    isolation::{self, Duty},
    listener::{self, User},
    mount::{self, Mounted},
    nodes::Nodes,
    opener::Opener,
    seccomp, server,
};

/// The threads need little stack.
const STACK_SIZE: usize = 128 * 1024;

/// Runs the process after the fork, and never returns. `socket` is its only connection.
pub(crate) fn run(socket: OwnedFd) -> ! {
    let result = catch_unwind(AssertUnwindSafe(|| live(&socket)));
    match result {
        Ok(Ok(())) => exit_now(0),
        Ok(Err((step, errno))) => {
            // Fails if the user is gone.
            let _ = channel::send(&socket, Message::Failed { step, errno }, None);
            exit_now(1)
        }
        Err(_) => exit_now(101),
    }
}

fn live(socket: &OwnedFd) -> Result<(), (Step, Errno)> {
    isolation::leave_the_user().map_err(|errno| (Step::Process, errno))?;
    let Mounted { device, root } = mount::mount()?;
    let device = Arc::new(device);
    let (closing, closed) = mpsc::channel();
    let nodes = Arc::new(Nodes::new(closing));

    set_socket_passcred(socket, true).map_err(|errno| (Step::Process, errno))?;
    let user = User::default();
    // Optional: without it there are views, and requests for guards fail with this error.
    let watch = fanotify::open().and_then(|group| Ok((Arc::new(group), Proc::open()?)));

    let threads = 3 + usize::from(watch.is_ok());
    let ready = Arc::new(Barrier::new(threads));
    let (opener, server_device, server_nodes) = (gettid(), device.clone(), nodes.clone());
    spawn("views", Duty::Serve, &ready, move || server::serve(&server_device, &server_nodes, opener))?;
    let closer_device = device.clone();
    spawn("closing", Duty::Close, &ready, move || {
        closed.into_iter().try_for_each(|id| backing::close(&closer_device, id))
    })?;
    let group = match watch {
        Ok((group, proc)) => {
            let (listener_group, user) = (group.clone(), user.clone());
            spawn("guard", Duty::Listen, &ready, move || listener::listen(&listener_group, &proc, &user))?;
            Ok(group)
        }
        Err(errno) => Err(errno),
    };
    ready.wait();

    isolation::confine(&root).map_err(|errno| (Step::Isolation, errno))?;
    let opener = Opener { device: &device, root: &root, nodes: &nodes };
    let probe = memfd_create("probe", MemfdFlags::CLOEXEC).map_err(|errno| (Step::Probe, errno))?;
    seccomp::restrict().map_err(|errno| (Step::Isolation, errno))?;
    let size = opener.view(probe.as_fd()).and_then(fstat).map_err(|errno| (Step::Probe, errno))?.st_size;
    if size.cast_unsigned() != VIEW_SIZE {
        return Err((Step::Probe, Errno::IO));
    }
    drop(probe);
    channel::send(socket, Message::Ready, None)
        .and_then(|()| opener.serve(socket, &mut Guards::new(group), &user))
        .map_err(|errno| (Step::Process, errno))
}

/// Starts a thread whose end ends the process. It waits at `ready` after dropping the capabilities that it does not
/// need.
fn spawn(
    name: &str,
    duty: Duty,
    ready: &Arc<Barrier>,
    work: impl FnOnce() -> Result<(), Errno> + Send + 'static,
) -> Result<(), (Step, Errno)> {
    let ready = ready.clone();
    let work = move || {
        let result = catch_unwind(AssertUnwindSafe(|| {
            isolation::drop_capabilities(duty)?;
            ready.wait();
            work()
        }));
        exit_now(if matches!(result, Ok(Ok(()))) { 0 } else { 101 });
    };
    thread::Builder::new()
        .name(name.into())
        .stack_size(STACK_SIZE)
        .spawn(work)
        .map(drop)
        .map_err(|error| (Step::Process, Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)))
}
