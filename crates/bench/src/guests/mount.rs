//! This machine's kernel: mounts the share here, and a separate process runs the workloads on it.

use std::{
    env,
    fs::File,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::atomic::Ordering,
};

use anyhow::{Context, ensure};
use transom_user::share::Share;

use super::{
    Guest, Run, host,
    observed::{Observations, Observer},
    vm::workload_words,
};
use crate::{
    daemon::{Candidate, Daemon, Source},
    process::{Placement, on_core},
    workload::{Group, place::Forget},
};

/// Mounts on this machine.
pub struct Mount {
    /// Where the daemon and the workloads run.
    pub placement: Placement,
}

impl Guest for Mount {
    fn name(&self) -> String {
        format!("mount, {}", self.placement.as_str())
    }

    fn objection(&self, candidate: &Candidate) -> Option<String> {
        candidate.window_len.map(|_| "a mount's measurements have no window yet".to_owned())
    }

    fn lacks(&self, group: Group, _: &[&Candidate]) -> Option<&'static str> {
        (group == Group::Guests).then_some("several guests at once are measured by the guest library only")
    }

    fn run(&self, run: &Run<'_>) -> anyhow::Result<Observations> {
        let candidate = run.candidate.context("a daemon to run over")?;
        let dir = tempfile::tempdir()?;
        let (daemon, socket) = match &candidate.source {
            Source::Program(_) => {
                let daemon = Daemon::start(candidate, run.shared, run.cache, self.placement, dir.path())?;
                let socket = daemon.socket.clone();
                (Some(daemon), socket)
            }
            Source::Socket(socket) => (None, socket.clone()),
        };
        let point = dir.path().join("mnt");
        std::fs::create_dir(&point)?;
        let log = || daemon.as_ref().map_or_else(|| "elsewhere".to_owned(), Daemon::log);
        let share = Share::builder().socket(socket);
        let options = candidate.mount.clone().unwrap_or_default();
        let passthrough = options.passthrough;
        let mount = on_core(self.placement.guest_core(), || transom_mount::Mount::start(share, &point, options))?;
        let mut mount = mount.with_context(|| format!("{} wrote: {}", candidate.name, log()))?;
        if passthrough {
            mount.passthrough().context("no passthrough")?;
        }
        let pids = daemon.iter().map(|daemon| daemon.process.id()).collect();
        let result = self.work(run, &point, pids).with_context(|| format!("{} wrote: {}", candidate.name, log()));
        let unmounted = mount.unmount().with_context(|| format!("unmounting {point:?}"));
        result.and_then(|observations| unmounted.map(|()| observations))
    }

    fn run_on_host(&self, run: &Run<'_>) -> anyhow::Result<Observations> {
        host::run(run, self.placement.guest_core())
    }
}

impl Mount {
    fn work(&self, run: &Run<'_>, point: &std::path::Path, daemons: Vec<u32>) -> anyhow::Result<Observations> {
        let mut observer = Observer::new(daemons, run.params.settle_ms, run.bar);
        let point = point.to_str().context("the directory for temporary files has a path that is not UTF-8")?;
        let mut command = Command::new(env::current_exe()?);
        command.args(workload_words(point, run.params, forget())?);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = on_core(self.placement.guest_core(), || command.spawn())??;
        let lines = BufReader::new(child.stdout.take().context("standard output was piped")?).lines();
        let heard = lines.into_iter().try_for_each(|line| {
            observer.hear(serde_json::from_str(&line?)?);
            ensure!(!run.is_stopped.load(Ordering::Relaxed), "stopped");
            Ok(())
        });
        if heard.is_err() {
            child.kill()?;
        }
        let status = child.wait()?;
        heard?;
        ensure!(status.success(), "the workloads on the mount: {status}");
        observer.complete()
    }
}

/// Returns how to drop caches, which only root can do.
fn forget() -> Forget {
    let is_allowed = File::options().write(true).open("/proc/sys/vm/drop_caches").is_ok();
    if is_allowed { Forget::Names } else { Forget::Impossible }
}
