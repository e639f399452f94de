//! A guest that is ready to boot: kernel and VMM are found, fetched or built, and the daemon's options are set.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use transom_vm::{
    Accelerator, AtReset, Dax, GuestSpec, Kernel, MountedBy, Qemu, Root, RunOutcome, Share, Stdio, Vmm,
    packages::{Cache, OnStderr, Packages},
    peer,
    tools::{Program, Tools},
    uml::Uml,
};

use crate::{
    job::Job,
    mounted::Mounted,
    overlay,
    places::Places,
    scenario::{Daemon, Guest, Scenario},
};

/// The bound on one boot with its job, beside the job's own time: most take some minutes in an emulated guest.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// The first argument of this program where it runs in a guest.
pub(crate) const INSIDE: &str = "inside";

/// What a scenario's job runs in.
pub(crate) enum Machine {
    /// A virtual machine.
    Virtual(Box<Virtual>),
    /// This one.
    Mounted(Mounted),
}

/// A kernel, what runs it, and the daemon that serves it.
pub(crate) struct Virtual {
    spec: GuestSpec,
    vmm: Box<dyn Vmm + Sync>,
    /// QEMU and the cache, for jobs that have machines of their own.
    program: Option<(Program, PathBuf)>,
    dax: Option<Dax>,
    /// Who mounts an overlay of the share, if it is one.
    overlay: Option<MountedBy>,
    daemon_args: Vec<std::ffi::OsString>,
}

impl Machine {
    /// Finds what `scenario` needs. Errors: something is not there and cannot be had.
    pub(crate) fn prepare(scenario: &Scenario, places: &Places<'_>) -> anyhow::Result<Self> {
        match scenario.guest {
            Guest::Mount | Guest::Passthrough | Guest::Coherent => {
                Mounted::prepare(scenario, places).map(Self::Mounted)
            }
            Guest::Uml | Guest::UmlOverlay(_) | Guest::Qemu(_) => {
                places.fetch(|| find(scenario, places)).map(|found| Self::Virtual(Box::new(found)))
            }
        }
    }

    /// Runs `command` with `share` at `/share` and `tools`, read-only, at `/tools`; gives its standard output.
    ///
    /// Errors: it did not get as far as the command's end.
    pub(crate) fn run(&self, share: &Path, tools: &Path, command: &[&str]) -> anyhow::Result<Vec<u8>> {
        match self {
            Self::Virtual(machine) => machine.run(share, tools, command),
            Self::Mounted(mounted) => mounted.run(share, tools, command),
        }
    }

    /// The virtual machine, for jobs that are about one.
    pub(crate) fn as_virtual(&self) -> anyhow::Result<&Virtual> {
        match self {
            Self::Virtual(machine) => Ok(machine),
            Self::Mounted(_) => anyhow::bail!("not a job of a mount"),
        }
    }

    /// The mount, for jobs that are about one.
    pub(crate) fn as_mounted(&self) -> anyhow::Result<&Mounted> {
        match self {
            Self::Virtual(_) => anyhow::bail!("not a job of a virtual machine"),
            Self::Mounted(mounted) => Ok(mounted),
        }
    }
}

fn find(scenario: &Scenario, places: &Places<'_>) -> anyhow::Result<Virtual> {
    let cache = Cache::locate()?;
    let report = OnStderr::default();
    let tools = Tools::new(&cache, &report);
    let mut found = None;
    let (kernel, vmm, memory_mib, cpus): (Kernel, Box<dyn Vmm + Sync>, _, _) = match scenario.guest {
        Guest::Mount | Guest::Passthrough | Guest::Coherent => anyhow::bail!("a mount has no machine"),
        Guest::Uml | Guest::UmlOverlay(_) => {
            (tools.uml_kernel(None).context("a kernel of User Mode Linux")?, Box::new(Uml), 512, 1)
        }
        Guest::Qemu(series) => {
            let kernel = tools.kernel(Some(Path::new(series))).context("a kernel")?;
            let program = match scenario.dax {
                Some(_) => tools.qemu_with_window(None).context("QEMU with a window")?,
                None => tools.qemu(None, true).context("QEMU")?,
            };
            found = Some((program.clone(), tools.cache().to_owned()));
            let at_reset = if scenario.job == Job::Reboot { AtReset::Reboots } else { AtReset::Ends };
            (kernel, Box::new(Qemu::new(program, Accelerator::Tcg, tools.cache()).at_reset(at_reset)), 1024, 2)
        }
    };
    let daemon = match scenario.daemon {
        // A run ends with its daemon; here it shall not.
        Daemon::Transomd if scenario.job == Job::DaemonKilled => {
            behind_a_script(&places.executable("transomd")?, places)?
        }
        Daemon::Transomd => places.executable("transomd")?,
        Daemon::Virtiofsd => {
            peer::virtiofsd(&Packages::new(&cache, &report), peer::Build::Packaged).context("virtiofsd")?
        }
    };
    let spec = GuestSpec {
        kernel,
        agent: std::env::current_exe().context("finding this executable")?,
        events: None,
        daemon,
        busybox: None,
        root: Root::Minimal,
        shares: Vec::new(),
        command: Vec::new(),
        env: Vec::new(),
        memory_mib,
        cpus,
        scratch: None,
        stdio: Stdio::default(),
        timeout: Some(TIMEOUT + scenario.job.duration()),
        console: None,
        snapshots: None,
        directory: None,
        user: None,
        network: transom_vm::network::Network::Off,
        is_foreground: false,
    };
    let daemon_args = scenario.daemon_args().into_iter().map(Into::into).collect();
    let overlay = match scenario.guest {
        Guest::UmlOverlay(mounted_by) => Some(mounted_by),
        Guest::Mount | Guest::Passthrough | Guest::Coherent | Guest::Uml | Guest::Qemu(_) => None,
    };
    Ok(Virtual { spec, vmm, program: found, dax: scenario.dax, overlay, daemon_args })
}

/// A script that starts the daemon and outlives it.
fn behind_a_script(daemon: &Path, places: &Places<'_>) -> anyhow::Result<PathBuf> {
    let path = places.fresh("daemon")?.join("script");
    fs::write(&path, format!("#!/bin/sh\n'{}' \"$@\"\nexec sleep 3600\n", daemon.display()))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

impl Virtual {
    /// As [`Machine::run`].
    fn run(&self, share: &Path, tools: &Path, command: &[&str]) -> anyhow::Result<Vec<u8>> {
        let tools = Share { host: tools.to_owned(), guest: "/tools".into(), is_read_only: true, ..Share::default() };
        let share = self.share(share, "/share");
        let share = match self.overlay {
            Some(mounted_by) => overlay::of(share, mounted_by)?,
            None => share,
        };
        Ok(self.run_with(vec![share, tools], command)?.stdout)
    }

    /// What every boot has in common.
    pub(crate) fn spec(&self) -> &GuestSpec {
        &self.spec
    }

    /// A QEMU of the scenario, to be given more arguments. Errors: its guest runs in none.
    pub(crate) fn qemu(&self) -> anyhow::Result<Qemu> {
        let (program, cache) = self.program.clone().context("a guest without QEMU")?;
        Ok(Qemu::new(program, Accelerator::Tcg, &cache))
    }

    /// The directory `host` as the scenario has it, mounted at `guest`.
    pub(crate) fn share(&self, host: &Path, guest: &str) -> Share {
        let (dax, daemon_args) = (self.dax, self.daemon_args.clone());
        Share { host: host.to_owned(), guest: guest.into(), dax, daemon_args, ..Share::default() }
    }

    /// The same, served without a window.
    pub(crate) fn plain_share(&self, host: &Path, guest: &str) -> Share {
        Share { dax: None, ..self.share(host, guest) }
    }

    /// Boots with `shares` and runs `command`.
    ///
    /// Errors: the guest did not get as far as the command's end.
    pub(crate) fn run_with(&self, shares: Vec<Share>, command: &[&str]) -> anyhow::Result<RunOutcome> {
        let command = command.iter().map(Into::into).collect();
        let spec = GuestSpec { shares, command, ..self.spec.clone() };
        Ok(transom_vm::run(&spec, self.vmm.as_ref())?)
    }

    /// Boots with one share at `/share` and runs a program of [`crate::window`] there; returns what it printed.
    ///
    /// Errors: the guest did not get as far, or the program failed.
    pub(crate) fn inside(&self, shares: Vec<Share>, words: &[&str]) -> anyhow::Result<String> {
        let command = [&["/init", INSIDE][..], words].concat();
        let RunOutcome { exit_code, stdout, stderr, warnings, .. } = self.run_with(shares, &command)?;
        let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        anyhow::ensure!(exit_code == 0, "in the guest, status {exit_code}: {stdout}{stderr}{}", warnings.join("\n"));
        Ok(stdout.into_owned())
    }
}
