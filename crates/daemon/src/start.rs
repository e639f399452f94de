//! From options to an isolated process that may begin to serve.
//!
//! The order matters: what needs the machine as the caller sees it (limits, sockets) comes before the sandbox, what
//! needs privileges before they are dropped, and threads come last.

use crate::listen::{self, Listening, Traces};
use crate::options::Options;
use crate::padding::{self, Views};
use crate::privileges::{self, Privileges, nofile};
use crate::sandbox::{self, IdScope, Sandboxed, termination};
use crate::seccomp;
use rustix::fs::Mode;
use rustix::process::umask;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use tracing::{debug, info};

/// What an isolated process serves with.
#[derive(Debug)]
pub struct Started {
    /// The share: an `O_PATH` descriptor of its directory or file.
    pub root: OwnedFd,
    /// `/proc/self/fd`: an `O_PATH` descriptor through which others like it can be opened anew.
    pub proc_self_fd: OwnedFd,
    /// Where front ends connect.
    pub listener: UnixListener,
    /// Where readers of the metrics connect, if `--metrics-socket` is given.
    pub metrics: Option<UnixListener>,
    /// What makes views of files, where the front end needs them.
    pub padding: Option<Views>,
    /// What the process may do.
    pub privileges: Privileges,
    /// The ids that the process knows.
    pub ids: IdScope,
    /// Descriptors that may be held on behalf of the guest.
    pub guest_fds: u64,
    /// What to remove at the end: dropping the last reference does it, and a signal.
    pub traces: Arc<Traces>,
}

/// Isolates this process as the options ask for. To be called before the first thread is started.
///
/// With a sandbox the caller's process stays behind, and a child returns. From here on only the listed system calls are
/// allowed, and SIGTERM, SIGHUP and SIGINT end the process.
pub fn start(options: &Options, mut listening: Listening) -> anyhow::Result<Started> {
    let limit = nofile::set_limit(options.inodes.rlimit_nofile)?;
    let guest_fds = nofile::for_guest(limit, options.inodes.max_fds)?;
    let metrics = match &options.metrics_socket {
        Some(path) => Some(listen::open_metrics(path, &mut listening.traces)?),
        None => None,
    };
    // New files get the modes that the guest asks for.
    umask(Mode::empty());

    let padding = padding::start(options);
    let owners = &options.ownership;
    let Sandboxed { root, proc_self_fd, listener, traces, ids } = sandbox::enter(
        &options.share.path,
        options.isolation.sandbox,
        &owners.namespace_uids,
        &owners.namespace_gids,
        listening,
    )?;
    let privileges = privileges::reduce(&options.isolation.capability_changes, options.inodes.file_handles, ids)?;
    nofile::make_room(limit, &root);
    seccomp::restrict(options.isolation.seccomp, options.inodes.file_handles)?;
    let traces = Arc::new(traces);
    termination::watch(Arc::downgrade(&traces))?;

    debug!(?privileges, ?ids, guest_fds, "isolated");
    // Programs that start daemons wait for these words.
    info!("Waiting for vhost-user socket connection...");
    Ok(Started { root, proc_self_fd, listener, metrics, padding, privileges, ids, guest_fds, traces })
}
