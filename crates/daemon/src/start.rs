//! From options to an isolated process that is ready to serve.
//!
//! The order matters: steps that need the machine as the caller sees it (limits, sockets) come before the sandbox,
//! steps that need privileges come before privileges are dropped, and threads come last.

use crate::changes::{self, Changes};
use crate::listen::{self, Listening, Supervision, Traces};
use crate::options::{Endpoint, Options, SandboxMode};
use crate::padding::{self, Views};
use crate::privileges::{self, Privileges, nofile};
use crate::sandbox::{self, IdScope, Life, Sandboxed, termination};
use crate::seccomp;
use crate::upgrade::control::Control;
use rustix::fs::{Mode, stat};
use rustix::process::umask;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use tracing::{debug, info};
use transom_host::group::TableFile;

/// What an isolated process serves with.
#[derive(Debug)]
pub struct Started {
    /// The share: an `O_PATH` descriptor of its directory or file.
    pub root: OwnedFd,
    /// `/proc/self/fd`: an `O_PATH` descriptor through which others like it can be reopened.
    pub proc_self_fd: OwnedFd,
    /// Where front ends connect.
    pub listener: UnixListener,
    /// Where readers of the metrics connect, if `--metrics-socket` is given.
    pub metrics: Option<UnixListener>,
    /// Where the supervisor's orders come from, if there is one.
    pub control: Option<Control>,
    /// Makes views of files, if the front end needs them.
    pub padding: Option<Views>,
    /// The version table of the coherence group, not joined yet.
    pub group: Option<TableFile>,
    /// The pid namespace that this process shares with others: its inode, if it is known and there is a group.
    pub pid_namespace: Option<u64>,
    /// Sees changes on the host, if that is wanted and possible.
    pub changes: Option<Changes>,
    /// The privileges of the process.
    pub privileges: Privileges,
    /// The ids that the process can use.
    pub ids: IdScope,
    /// What survives this process, with `--resilient`.
    pub life: Option<Life>,
    /// The number of descriptors that may be held for the guest.
    pub guest_fds: u64,
    /// What to remove at the end, when the last reference is dropped or a signal arrives.
    pub traces: Arc<Traces>,
}

/// Isolates this process as the options require. Must be called before the first thread starts.
///
/// With a sandbox, the caller's process stays outside, and a child returns. From then on only the listed system calls
/// are allowed, and SIGTERM, SIGHUP and SIGINT end the process.
pub fn start(options: &Options, mut listening: Listening, supervision: Option<Supervision>) -> anyhow::Result<Started> {
    let limit = nofile::set_limit(options.inodes.rlimit_nofile)?;
    let guest_fds = nofile::for_guest(limit, options.inodes.max_fds)?;
    let (metrics, control) = match (supervision, &options.metrics_socket) {
        (Some(supervision), _) => (supervision.metrics, Some(supervision.control)),
        (None, Some(path)) => (Some(listen::open_private(path, &mut listening.traces)?), None),
        (None, None) => (None, None),
    };
    // New files get the modes that the guest requests.
    umask(Mode::empty());

    // The sandbox hides it. Joined after the last fork: see `serve`.
    let writable = (!options.share.is_readonly).then_some(&*options.share.path);
    let group = options.cache.coherence_group.as_ref();
    let group = group.map(|place| TableFile::open(place, writable)).transpose()?;
    let shares_pids = group.is_some() && options.isolation.sandbox != SandboxMode::Namespace;
    let pid_namespace = shares_pids.then(|| stat("/proc/self/ns/pid").ok()).flatten().map(|stat| stat.st_ino);
    let padding = padding::start(options);
    let watch = changes::open(options, &mut listening.traces)?;
    let owners = &options.ownership;
    let Sandboxed { root, proc_self_fd, listener, traces, ids } = sandbox::enter(
        &options.share.path,
        options.share.layer.as_deref(),
        options.isolation.sandbox,
        &owners.namespace_uids,
        &owners.namespace_gids,
        listening,
    )?;
    let privileges = privileges::reduce(&options.isolation.capability_changes, options.inodes.file_handles, ids)?;
    nofile::make_room(limit, &root);
    // From here on in a process that others outlive.
    let queues = 1 + usize::from(options.workers.request_queues);
    let is_resilient = options.socket.resilient && control.is_some();
    let life = is_resilient.then(|| sandbox::outlive(&proc_self_fd, queues)).transpose()?;
    let observes_directories = watch.as_ref().is_some_and(|opened| opened.watch.directories().is_some());
    let uses = seccomp::Uses { file_handles: options.inodes.file_handles, observes_directories };
    // The filter does not let the first reader of the clock find it.
    transom_host::clock::now_ns();
    seccomp::restrict(options.isolation.seccomp, uses)?;
    let changes = match watch {
        Some(watch) => changes::prepare(watch, &root, options)?,
        None => None,
    };
    let traces = Arc::new(traces);
    termination::watch(Arc::downgrade(&traces), control.is_some())?;

    debug!(?privileges, ?ids, guest_fds, "isolated");
    if control.is_none() && options.socket.endpoint != Endpoint::Nowhere {
        // Programs that start daemons wait for this message.
        info!("Waiting for vhost-user socket connection...");
    }
    Ok(Started {
        root,
        proc_self_fd,
        listener,
        metrics,
        control,
        changes,
        padding,
        group,
        pid_namespace,
        privileges,
        ids,
        life,
        guest_fds,
        traces,
    })
}
