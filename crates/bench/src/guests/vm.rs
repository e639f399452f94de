//! Linux in a virtual machine, under User Mode Linux or QEMU: one boot for each daemon and round.
//!
//! [`observed`] relays the workloads' reports from the guest.

mod observed;

use std::{env, ffi::OsString, time::Duration};

use anyhow::{Context, ensure};
use transom_vm::{Dax, DaxMode, GuestSpec, Kernel, Root, Share, Vmm};

use super::{Guest, ONLY_MOUNTS, Run, host, observed::Observations};
use crate::{
    daemon::{Candidate, Source},
    process::{Placement, on_core},
    workload::{Group, Params, place::Forget},
};
use observed::Observed;

/// The guest's mount point of the share.
const MOUNT_POINT: &str = "/mnt/share";
/// A guest that hangs is stopped after this time. A whole run takes a few minutes, even under emulation.
const TIMEOUT: Duration = Duration::from_secs(1800);

/// Linux virtual machines of one kind.
pub struct Machine {
    /// What runs them.
    pub vmm: Box<dyn Vmm>,
    /// The kernel to boot.
    pub kernel: Kernel,
    /// Whether devices can have a window.
    pub has_window: bool,
    /// Where daemon and guest run.
    pub placement: Placement,
    /// Memory of the guest, in MiB.
    pub memory_mib: u32,
}

/// Returns the arguments that start the workloads in a guest, to follow the program's path.
pub fn workload_words(dir: &str, params: &Params, forget: Forget) -> anyhow::Result<Vec<OsString>> {
    let forget =
        clap::ValueEnum::to_possible_value(&forget).map_or_else(String::new, |value| value.get_name().to_owned());
    let params = serde_json::to_string(params)?;
    Ok(["bench", "workload", dir, &params, "--forget", &forget].map(Into::into).to_vec())
}

impl Guest for Machine {
    fn name(&self) -> String {
        format!("{}, {}", self.vmm.name(), self.placement.as_str())
    }

    fn objection(&self, candidate: &Candidate) -> Option<String> {
        if candidate.window_len.is_some() && !self.has_window {
            return Some("this machine has no windows".into());
        }
        match &candidate.source {
            Source::Socket(_) => {
                Some("a machine's daemons are started for it; --socket is for --guest user and mount".into())
            }
            // Such a machine requests the tag from the daemon.
            Source::Program(_) if candidate.is_without_config && !self.vmm.daemon_args("").is_empty() => Some(
                "it does not offer VHOST_USER_PROTOCOL_F_CONFIG, without which this machine finds no device".into(),
            ),
            Source::Program(_) => candidate.mount.as_ref().map(|_| ONLY_MOUNTS.into()),
        }
    }

    fn lacks(&self, group: Group, _: &[&Candidate]) -> Option<&'static str> {
        (group == Group::Guests).then_some("several guests at once are measured in this process only")
    }

    fn run(&self, run: &Run<'_>) -> anyhow::Result<Observations> {
        let candidate = run.candidate.context("a daemon to run over")?;
        let mut command: Vec<OsString> = vec!["/init".into()];
        command.extend(workload_words(MOUNT_POINT, run.params, Forget::All)?);
        let share = Share {
            host: run.shared.to_owned(),
            guest: MOUNT_POINT.into(),
            is_read_only: false,
            cache: Some(run.cache),
            dax: candidate.window_len.map(|window_len| Dax { window_len, mode: DaxMode::Always }),
            version_table: None,
            layer: None,
            directory: None,
            daemon_args: candidate.args.iter().map(Into::into).collect(),
        };
        let spec = GuestSpec {
            kernel: self.kernel.clone(),
            agent: env::current_exe()?,
            events: None,
            daemon: candidate.program()?.to_owned(),
            busybox: None,
            root: Root::Minimal,
            shares: vec![share],
            command,
            env: Vec::new(),
            memory_mib: self.memory_mib,
            cpus: 1,
            scratch: None,
            stdio: transom_vm::Stdio::default(),
            timeout: Some(TIMEOUT),
            console: None,
            // A signal ends the guest at once.
            snapshots: None,
            directory: None,
            user: None,
            network: transom_vm::network::Network::Off,
            is_foreground: true,
        };
        let observed = Observed::new(self.vmm.as_ref(), self.placement, run.params.settle_ms, run.bar);
        // The daemon starts on its core; `observed` switches to the guest's core for the machine.
        let outcome = on_core(self.placement.daemon_core(), || transom_vm::run(&spec, &observed))??;
        let (status, stderr) = (outcome.exit_code, String::from_utf8_lossy(&outcome.stderr));
        ensure!(status == 0, "the workloads ended with {status}: {stderr}");
        observed.complete()
    }

    fn run_on_host(&self, run: &Run<'_>) -> anyhow::Result<Observations> {
        host::run(run, self.placement.guest_core())
    }
}
