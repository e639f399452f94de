//! `transom bench` itself: runs a suite over some daemons, in some guests.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use transom_vm::{
    Accelerator, CacheMode, Kernel, Qemu,
    packages::{Cache, OnStderr},
    tools::Tools,
    uml::Uml,
};

use super::Common;
use crate::{
    daemon::Candidate,
    guests::{self, Guest, Measured, mount::Mount, user::User, vm::Machine},
    process::Placement,
    report::{HOST, console},
    suite::Suite,
    workload::Group,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  transom bench
      Take a first look, in a minute: transomd and virtiofsd 1.14, with the guest library.
  transom bench --suite all --guest user,mount,uml --daemon transomd --daemon virtiofsd --daemon virtiofsd-c
      Measure everything, including the C daemon of QEMU 7.2.
  transom bench --daemon transomd --daemon 'pool=virtiofsd --thread-pool-size=4'
      Give a daemon a name and options.
  transom bench --suite seeds --dax-window-mib 256
      Compare a DAX window with requests, with the guest library.
  transom bench --suite scale --dax-window-mib 4,16,32,64,128 --daemon transomd
      Compare windows of a sixteenth to twice the size of the file.
  transom bench --suite io --guest mount -o passthrough --daemon transomd
      Show the effect of a mount option.
  transom bench --daemon transomd --socket /run/share.sock
      Include a running daemon; the first daemon is compared with each other.
  transom bench compare before.json after.json --fail-below 0.9
      Show the effect of a change.

NAME.html is one self-contained file. NAME.json has every sample.
Ctrl-C ends after the current workload and keeps the completed rounds. A daemon that fails is left out from then on.
Faults by MAP_SYNC are not measured: they need a host file on persistent memory.";

#[derive(Debug, Args)]
pub(super) struct Measure {
    #[command(flatten)]
    common: Common,
    /// The socket of a running daemon that waits for a front end; for --guest user, and for mount if it keeps serving
    #[arg(long = "socket", value_name = "PATH")]
    sockets: Vec<PathBuf>,
    /// The set of workloads.
    #[arg(long, value_enum, default_value_t = Suite::Quick)]
    suite: Suite,
    /// Run only these groups of the suite.
    #[arg(long, value_enum, value_name = "GROUP", value_delimiter = ',', hide_possible_values = true)]
    groups: Vec<Group>,
    /// The kind of guest.
    #[arg(long = "guest", value_enum, value_delimiter = ',', default_values_t = [GuestName::User])]
    guests: Vec<GuestName>,
    /// Cache modes of the daemons.
    #[arg(long, value_name = "MODE", value_delimiter = ',', default_value = "auto")]
    cache: Vec<CacheMode>,
    /// Factor for the number of files and operations.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Where the daemon runs, as seen from the guest [default: other-core for user, anywhere for mount, same-core for
    /// uml and qemu]
    #[arg(long, value_enum)]
    placement: Option<Placement>,
    /// The kernel that --guest uml or qemu boots [default: one is fetched or built]
    #[arg(long, value_name = "PATH")]
    kernel: Option<PathBuf>,
    /// Memory of a virtual machine, in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 512)]
    memory_mib: u32,
    /// Also measure the first daemon with a DAX window of MIB; for --guest user and qemu. A single window comes before
    /// all others, several sizes come after the first daemon
    #[arg(long, value_name = "MIB", value_delimiter = ',')]
    dax_window_mib: Vec<u64>,
    /// Also measure the first daemon with these options of transom mount; needs --guest mount. A single list comes
    /// before all others, several lists come after the first daemon
    #[arg(short = 'o', long, value_name = "LIST")]
    mount_options: Vec<String>,
}

/// The client of the share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum GuestName {
    /// The guest library in this process: no kernel, no machine
    User,
    /// This machine's kernel, on a mount of the share; cold workloads need root, to drop caches
    Mount,
    /// User Mode Linux: an ordinary process, with the least overhead of its own
    Uml,
    /// A PC under KVM or emulation; runs any kernel
    Qemu,
}

impl GuestName {
    /// Returns the guest with what it needs, found or fetched into the cache. A window needs a newer QEMU.
    pub(super) fn find(
        self,
        kernel: Option<&std::path::Path>,
        placement: Option<Placement>,
        memory_mib: u32,
        with_window: bool,
    ) -> anyhow::Result<Box<dyn Guest>> {
        match self {
            Self::User => return Ok(Box::new(User::new(placement.unwrap_or(Placement::OtherCore).where_possible()))),
            Self::Mount => return Ok(Box::new(Mount { placement: placement.unwrap_or(Placement::Anywhere) })),
            Self::Uml | Self::Qemu => {}
        }
        let (cache, report) = (Cache::locate()?, OnStderr::default());
        let tools = Tools::new(&cache, &report);
        let (vmm, kernel): (Box<dyn transom_vm::Vmm>, Kernel) = match self {
            Self::Qemu => {
                let qemu = if with_window { tools.qemu_with_window(None)? } else { tools.qemu(None, true)? };
                let kernel = tools.kernel(kernel)?;
                let accelerator = Accelerator::best(&qemu, &kernel, tools.cache());
                (Box::new(Qemu::new(qemu, accelerator, tools.cache())), kernel)
            }
            _ => (Box::new(Uml), tools.uml_kernel(kernel)?),
        };
        let placement = placement.unwrap_or(Placement::SameCore).where_possible();
        let has_window = with_window && self == Self::Qemu;
        Ok(Box::new(Machine { vmm, kernel, has_window, placement, memory_mib }))
    }
}

impl Measure {
    pub(super) fn run(&self) -> anyhow::Result<std::process::ExitCode> {
        ensure!(
            self.scale.is_finite() && self.scale > 0.0,
            "--scale {} is invalid: it must be a positive number",
            self.scale
        );
        ensure!(
            self.sockets.is_empty() || self.guests.len() == 1,
            "a daemon at a --socket has one front end at a time: --guest names one kind of guest"
        );
        ensure!(
            self.mount_options.is_empty() || self.guests.contains(&GuestName::Mount),
            "--mount-options are for --guest mount"
        );
        let mut candidates = self.candidates()?;
        let mut contents = self.suite.contents(self.scale, &self.groups)?;
        if !self.sockets.is_empty() {
            contents
                .leave_out(&[Group::Guests, Group::Breadth], "a daemon at a --socket has one guest and its own share");
        }
        let with_window = !self.dax_window_mib.is_empty();
        let find = |guest: &GuestName| guest.find(self.kernel.as_deref(), self.placement, self.memory_mib, with_window);
        let plan = guests::Plan {
            candidates: candidates.clone(),
            guests: self.guests.iter().map(find).collect::<anyhow::Result<_>>()?,
            caches: self.cache.clone(),
            rounds: self.common.rounds.unwrap_or(contents.rounds),
            parts: contents.parts,
        };
        let is_stopped = watch_signals()?;
        let measured = guests::measure(&plan, &self.common.shared_in, &is_stopped)?;
        let Measured { samples, notes, whole_rounds, failures } = measured;
        let mut notes = [contents.notes, notes, failures.clone()].concat();
        let is_interrupted = is_stopped.load(Ordering::Relaxed);
        if is_interrupted {
            notes.push(format!("interrupted: {whole_rounds} of {} rounds are complete", plan.rounds));
        }
        if samples.iter().all(|sample| sample.daemon == HOST) {
            ensure!(is_interrupted, "nothing was measured\n{}", notes.join("\n"));
            eprintln!("interrupted before anything was measured");
            return Ok(INTERRUPTED.into());
        }
        // The first daemon that was measured is compared with the others.
        candidates.retain(|candidate| samples.iter().any(|sample| sample.daemon == candidate.name));
        let suite = self.suite.name();
        let report = self.common.report(&format!("transom bench: {suite}"), &candidates, None, notes, samples)?;
        let name = self.common.name.as_deref().unwrap_or(&suite);
        report.write(&self.common.out, name)?;
        print!("{}", console::console(&report));
        println!("\n{}", self.common.out.join(format!("{name}.html")).display());
        if is_interrupted {
            return Ok(INTERRUPTED.into());
        }
        ensure!(failures.is_empty(), "some measurements failed, as reported above");
        Ok(std::process::ExitCode::SUCCESS)
    }

    /// Returns the daemons to start and those that already run.
    fn candidates(&self) -> anyhow::Result<Vec<Candidate>> {
        let is_socket_only = self.common.daemons.is_empty() && !self.sockets.is_empty();
        let mut candidates = if is_socket_only { Vec::new() } else { self.common.candidates()? };
        for (number, socket) in self.sockets.iter().enumerate() {
            ensure!(socket.exists(), "there is no socket {socket:?}");
            candidates.push(Candidate::at_socket(format!("socket-{}", number + 1), socket.clone()));
        }
        if let Some(first) = candidates.first().cloned() {
            let mounted = self.mount_options.iter().map(|list| first.with_mount_options(list));
            put_beside(&mut candidates, mounted.collect::<anyhow::Result<_>>()?);
            let with_window = |&mib: &u64| {
                let name = if self.dax_window_mib.len() == 1 { "DAX".to_owned() } else { format!("DAX-{mib}") };
                let window_len =
                    mib.checked_mul(1 << 20).with_context(|| format!("a window of {mib} MiB is too large"))?;
                anyhow::Ok(Candidate { name, window_len: Some(window_len), ..first.clone() })
            };
            put_beside(&mut candidates, self.dax_window_mib.iter().map(with_window).collect::<anyhow::Result<_>>()?);
        }
        for (number, candidate) in candidates.iter().enumerate() {
            let is_fit = !["", HOST].contains(&candidate.name.as_str()) && !candidate.name.contains('/');
            let advice =
                if candidate.mount.is_some() { "take options without /" } else { "give it another: NAME=PROGRAM" };
            ensure!(is_fit, "{:?} is not a valid name for a daemon; {advice}", candidate.name);
            let is_twice = candidates[..number].iter().any(|other| other.name == candidate.name);
            ensure!(!is_twice, "two daemons are named {}; rename one: NAME=PROGRAM", candidate.name);
        }
        Ok(candidates)
    }
}

/// Adds variants of the first daemon. A single variant goes before all others, so that it is the one compared; several
/// go after the first daemon, which is compared with each.
fn put_beside(candidates: &mut Vec<Candidate>, ways: Vec<Candidate>) {
    let at = usize::from(ways.len() > 1);
    candidates.splice(at..at, ways);
}

/// The exit status that a shell reports for a command interrupted by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Sets the returned flag on SIGINT and SIGTERM. A second signal ends the process at once.
fn watch_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&is_stopped))?;
        signal_hook::flag::register(signal, Arc::clone(&is_stopped))?;
    }
    Ok(is_stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_other_way_is_compared_and_several_are_compared_with() {
        let named = |names: &[&str]| -> Vec<_> {
            names.iter().map(|name| Candidate::at_socket((*name).to_owned(), "socket".into())).collect()
        };
        for (ways, all) in [
            (&[][..], &["first", "other"][..]),
            (&["way"], &["way", "first", "other"]),
            (&["one", "two"], &["first", "one", "two", "other"]),
        ] {
            let mut candidates = named(&["first", "other"]);
            put_beside(&mut candidates, named(ways));
            assert_eq!(candidates.iter().map(|candidate| &*candidate.name).collect::<Vec<_>>(), all);
        }
    }
}
