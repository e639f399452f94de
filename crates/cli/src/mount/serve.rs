//! The process that serves a mount: from mounting to the end, by a signal or otherwise.

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
    low_level::signal_name,
};
use transom_mount::{Mount, MountEnd, Options, PassthroughCounts, Stopper};
use transom_user::share::Builder;

use super::locks;

/// What to mount, and how.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) source: Builder,
    pub(super) mountpoint: PathBuf,
    pub(super) options: Options,
    /// Arguments for the daemon; empty if it runs already.
    pub(super) daemon_args: Vec<OsString>,
}

/// Serves until the mount ends, and prints where it is.
pub(super) fn foreground(request: &Request) -> Result<()> {
    serve(request, |mount| {
        let (path, threads) = (mount.path().display(), mount.threads());
        let s = if threads == 1 { "" } else { "s" };
        eprintln!(
            "transom: mounted at {path}, {threads} request queue{s}; press Ctrl-C or run `umount {path}` to unmount"
        );
        warnings(request, mount).iter().for_each(|warning| eprintln!("transom: {warning}"));
    })
}

/// Returns one line for each part of the request that cannot be fulfilled or is dangerous.
pub(super) fn warnings(request: &Request, mount: &Mount) -> Vec<String> {
    let passthrough = mount
        .passthrough()
        .err()
        .map(|why| format!("passthrough is not available, every operation is a request: {why}"));
    [passthrough, locks::warning(&request.daemon_args)].into_iter().flatten().collect()
}

/// Writes warnings of the mount to standard error.
fn log() {
    let log = tracing_subscriber::fmt().with_writer(io::stderr).without_time().with_target(false);
    let log = log.with_ansi(io::stderr().is_terminal());
    // Fails if a subscriber is already installed, as in a test.
    let _ = log.with_max_level(tracing::Level::WARN).try_init();
}

/// Prints how many files could have been passed through and were not.
fn report_opens(mount: &Mount) {
    if let Ok(PassthroughCounts { passed, ordinary, .. }) = mount.passthrough()
        && ordinary > 0
    {
        eprintln!("transom: {ordinary} of {} file opens were not passed through", passed + ordinary);
    }
}

/// Serves until the mount ends; calls `on_ready` once the mount can be used.
pub(super) fn serve(request: &Request, on_ready: impl FnOnce(&Mount)) -> Result<()> {
    log();
    // Installed before the mount exists, so that no signal can leave a stale mount.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let mut mount = Mount::start(request.source.clone(), &request.mountpoint, request.options.clone())?;
    on_ready(&mount);
    let (stopper, handle) = (mount.stopper(), signals.handle());
    let watcher = std::thread::spawn(move || stop_by_signals(&stopper, &mut signals));
    let end = mount.wait();
    handle.close();
    let signal = watcher.join().ok().flatten();
    if request.options.passthrough {
        report_opens(&mount);
    }
    match end {
        MountEnd::Unmounted | MountEnd::Stopped => {
            eprintln!("transom: {}", after_a_good_end(mount.path(), end, signal));
            Ok(())
        }
        end => {
            mount.stay();
            Err(end).with_context(|| after_the_end(mount.path()))
        }
    }
}

/// Unmounts on the first signal, which it returns. If the share is in use, detaches the mount from the tree, and aborts
/// it on the second signal.
fn stop_by_signals(stopper: &Stopper, signals: &mut Signals) -> Option<i32> {
    let mut signals = signals.forever();
    let signal = signals.next()?;
    match stopper.unmount() {
        Ok(()) => return Some(signal),
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            eprintln!(
                "transom: the mount is in use: it ends when the last open file is closed; send the signal again to \
                 end it now"
            );
        }
        Err(error) => eprintln!("transom: cannot unmount: {error}; send the signal again to end it anyway"),
    }
    if let Err(error) = stopper.detach() {
        eprintln!("transom: cannot detach the mount, it stays in the tree: {error}");
    }
    if signals.next().is_some() {
        stopper.abort();
    }
    Some(signal)
}

/// Returns why a mount has ended that nobody needs any more.
fn after_a_good_end(path: &Path, end: MountEnd, signal: Option<i32>) -> String {
    let signal = signal.map(|signal| format!(" after {}", signal_name(signal).unwrap_or("a signal")));
    format!("the mount at {} has ended: {end}{}", path.display(), signal.unwrap_or_default())
}

fn after_the_end(path: &Path) -> String {
    let path = path.display();
    format!("every request at {path} fails from now on, until `umount {path}`")
}
