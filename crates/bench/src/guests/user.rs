//! The guest library in this process: no kernel and no VM between the workloads and the daemon.

use std::{
    borrow::Cow,
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::Context;
use transom_user::{guest::device::Settings, share::Share};

use super::{
    Guest, ONLY_MOUNTS, Run, host,
    observed::{Observations, Observer},
};
use crate::{
    daemon::{Candidate, Daemon, Source},
    process::{Placement, on_core},
    workload::{self, Group, place::Library},
};

/// Memory shared with a daemon: enough for what sixteen jobs have in flight and what a guest caches.
const ARENA_BYTES: usize = 128 << 20;

/// Guests in this process.
pub struct User {
    placement: Placement,
    /// Guests of daemons that were started elsewhere and may end with the connection, by daemon name.
    connected: Mutex<HashMap<String, Arc<Library>>>,
}

impl User {
    /// Creates guests whose threads and daemons run according to `placement`.
    pub fn new(placement: Placement) -> Self {
        Self { placement, connected: Mutex::default() }
    }

    fn settings(&self) -> Settings {
        settings(self.placement)
    }

    fn at_socket(&self, name: &str, socket: &Path) -> anyhow::Result<Arc<Library>> {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = connected.get(name) {
            return Ok(Arc::clone(library));
        }
        let library = Arc::new(Library::new(vec![connect(socket, self.settings())?])?);
        connected.insert(name.to_owned(), Arc::clone(&library));
        Ok(library)
    }

    fn work(&self, run: &Run<'_>, library: &Library, daemons: Vec<u32>) -> anyhow::Result<Observations> {
        let mut observer = Observer::new(daemons, run.params.settle_ms, run.bar);
        on_core(self.placement.guest_core(), || {
            workload::run(library, run.params, run.is_stopped, &mut |line| {
                observer.hear(line);
                Ok(())
            })
        })??;
        observer.complete()
    }
}

/// Returns the library's device settings for `placement`.
pub(crate) fn settings(placement: Placement) -> Settings {
    let mut settings = Settings::default();
    match placement {
        // Polling on the daemon's core would keep the daemon from running.
        Placement::SameCore => settings.poll_max_ns = 0,
        Placement::OtherCore => settings.pollers_max = 1,
        Placement::Anywhere => {}
    }
    settings
}

/// Returns the daemon with the options for its window, if it has one.
fn with_window(candidate: &Candidate) -> Cow<'_, Candidate> {
    let Some(len) = candidate.window_len else { return Cow::Borrowed(candidate) };
    let size = format!("--dax-window={len}");
    // The library needs no barrier and may map beyond the end of a file, as what this name stands for; with a window a
    // daemon has one queue unless more are asked for.
    let own = ["--tag=share", "--front-end=alioth", "--dax-policy=always", "--num-request-queues=8", &size];
    let args = own.into_iter().map(str::to_owned).chain(candidate.args.iter().cloned()).collect();
    Cow::Owned(Candidate { args, ..candidate.clone() })
}

fn connect(socket: &Path, settings: Settings) -> anyhow::Result<Share> {
    Ok(Share::builder().socket(socket).arena_len_bytes(ARENA_BYTES).settings(settings).connect()?)
}

impl Guest for User {
    fn name(&self) -> String {
        format!("user, {}", self.placement.as_str())
    }

    fn objection(&self, candidate: &Candidate) -> Option<String> {
        match candidate {
            Candidate { window_len: Some(_), source: Source::Socket(_), .. } => {
                Some("its window was chosen when it was started".into())
            }
            Candidate { mount: Some(_), .. } => Some(ONLY_MOUNTS.into()),
            _ => None,
        }
    }

    fn lacks(&self, group: Group, candidates: &[&Candidate]) -> Option<&'static str> {
        let has_window = candidates.iter().any(|candidate| candidate.window_len.is_some());
        (group.is_mapping() && !has_window).then_some("the library maps files through a window: --dax-window-mib")
    }

    fn run(&self, run: &Run<'_>) -> anyhow::Result<Observations> {
        let candidate = run.candidate.context("a daemon to run over")?;
        if let Source::Socket(socket) = &candidate.source {
            let library = self.at_socket(&candidate.name, socket)?;
            return self.work(run, &library, Vec::new());
        }
        let is_many = run.params.groups.contains(&Group::Guests);
        let count = if is_many { run.params.jobs.iter().copied().max().unwrap_or(1) } else { 1 };
        let mut daemons = Vec::new();
        let mut mounts = Vec::new();
        for _ in 0..count {
            let dir = tempfile::tempdir()?;
            let daemon = Daemon::start(&with_window(candidate), run.shared, run.cache, self.placement, dir.path())?;
            let mount = connect(&daemon.socket, self.settings());
            mounts.push(mount.with_context(|| format!("{} wrote: {}", candidate.name, daemon.log()))?);
            daemons.push((daemon, dir));
        }
        // The library must end before the daemons do.
        let library = Library::new(mounts)?;
        let pids = daemons.iter().map(|(daemon, _)| daemon.process.id()).collect();
        let result = self.work(run, &library, pids);
        drop(library);
        result.with_context(|| format!("{} wrote: {}", candidate.name, daemons[0].0.log()))
    }

    fn run_on_host(&self, run: &Run<'_>) -> anyhow::Result<Observations> {
        host::run(run, self.placement.guest_core())
    }
}
