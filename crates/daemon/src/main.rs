//! transomd's entry: from a command line to a daemon that serves.
//!
//! The order matters: what needs the machine as the caller sees it (socket, log) comes before the sandbox, what needs
//! privileges before they are dropped, and threads come last.

use std::process::ExitCode;
use std::sync::Arc;
use tracing::{debug, error, info, warn};
use transom_daemon::listen::{self, Listening};
use transom_daemon::options::{self, Invocation, Options};
use transom_daemon::privileges::{self, nofile};
use transom_daemon::sandbox::{self, termination};
use transom_daemon::{capabilities, log, seccomp};

fn main() -> ExitCode {
    let options = match options::parse(std::env::args_os()) {
        Ok(Invocation::Serve(options)) => options,
        Ok(Invocation::PrintCapabilities) => {
            println!("{}", capabilities::CAPABILITIES);
            return ExitCode::SUCCESS;
        }
        Err(usage) => usage.exit(),
    };
    // Before the log takes a descriptor, so that the number given with --fd is the caller's.
    let listening = listen::open(&options.socket.endpoint);
    log::open(options.log);
    for remark in &options.remarks {
        warn!("{remark}");
    }
    let result = listening.map_err(anyhow::Error::from).and_then(|listening| run(&options, listening));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options, mut listening: Listening) -> anyhow::Result<()> {
    let fds = nofile::set_limit(options.inodes.rlimit_nofile)
        .and_then(|limit| nofile::for_guest(limit, options.inodes.max_fds))?;
    let metrics = match &options.metrics_socket {
        Some(path) => Some(listen::open_metrics(path, &mut listening.traces)?),
        None => None,
    };
    // New files get the modes that the guest asks for.
    rustix::process::umask(rustix::fs::Mode::empty());
    let sandboxed = sandbox::enter(
        &options.share.path,
        options.isolation.sandbox,
        &options.ownership.namespace_uids,
        &options.ownership.namespace_gids,
        listening,
    )?;
    let privileges =
        privileges::reduce(&options.isolation.capability_changes, options.inodes.file_handles, sandboxed.ids)?;
    let traces = Arc::new(sandboxed.traces);
    termination::watch(traces.clone())?;
    seccomp::restrict(options.isolation.seccomp)?;
    // Programs that start daemons wait for these words.
    info!(fds, "Waiting for vhost-user socket connection...");
    debug!(?privileges, ids = ?sandboxed.ids, "isolated");

    let _ = (sandboxed.root, sandboxed.proc_self_fd, metrics);
    let served = serve(&sandboxed.listener);
    traces.remove();
    served
}

fn serve(listener: &std::os::unix::net::UnixListener) -> anyhow::Result<()> {
    use std::io::Read;
    let (mut front_end, _) = listener.accept()?;
    front_end.read_to_end(&mut Vec::new())?;
    Ok(())
}
