//! A guest with an NVDIMM, which can be killed at any moment.

use std::{
    ffi::OsString,
    fs,
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;
use rustix::process::{Signal, pidfd_send_signal};
use transom_vm::{Boot, GuestChannels, GuestSpec, Qemu, RunOutcome, Started, Vmm};

use super::nvdimm;
use crate::guest::{INSIDE, Virtual};
use crate::job::FileSystem;

/// QEMU with an NVDIMM, whose contents are those of a file of the host, shared: what the guest has stored is there at
/// once, and stays when QEMU is killed.
#[derive(Debug)]
pub(super) struct Machine {
    qemu: Qemu,
    spec: GuestSpec,
    on: FileSystem,
    /// The process that runs, or has run last.
    process: Mutex<Option<OwnedFd>>,
    /// Its number.
    id: AtomicU32,
}

const STOP_MAX: Duration = Duration::from_secs(30);
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

impl Machine {
    /// A guest with the NVDIMM in the file `nvdimm`, and the share at `/share`. Errors: it has no QEMU.
    pub(super) fn new(machine: &Virtual, nvdimm: &Path, share: &Path, on: FileSystem) -> anyhow::Result<Self> {
        let mut memory =
            OsString::from(format!("memory-backend-file,id=nvdimm,share=on,size={},mem-path=", nvdimm::LEN));
        memory.push(nvdimm);
        let words = ["-machine", "nvdimm=on", "-m", "slots=1,maxmem=4G", "-device", "nvdimm,memdev=nvdimm", "-object"];
        let arguments = words.map(OsString::from).into_iter().chain([memory]);
        let qemu = machine.qemu()?.with_arguments(arguments);
        // One processor: Linux 7.2 patches its code a second after it began, and takes the trap that stands in for it
        // meanwhile for a fault where QEMU 7.2 has translated it for another processor just then.
        let spec = GuestSpec { shares: vec![machine.share(share, "/share")], cpus: 1, ..machine.spec().clone() };
        Ok(Self { qemu, spec, on, process: Mutex::default(), id: AtomicU32::new(0) })
    }

    /// Boots, and runs a program of [`inside`](super::inside). Blocks until it has ended, or the machine is killed.
    pub(super) fn run(&self, words: &[&str]) -> transom_vm::Result<RunOutcome> {
        let command = ["/init", INSIDE].iter().chain(words).map(Into::into).collect();
        transom_vm::run(&GuestSpec { command, ..self.spec.clone() }, self)
    }

    /// Kills the machine that runs, if one does.
    pub(super) fn kill(&self) {
        self.send(Signal::KILL);
    }

    /// Does `work` while the machine stands still.
    pub(super) fn while_stopped<T>(&self, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        self.send(Signal::STOP);
        let done = self.is_stopped().and_then(|()| work());
        self.send(Signal::CONT);
        done
    }

    fn send(&self, signal: Signal) {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = &*process {
            // It fails where the process has ended.
            let _ = pidfd_send_signal(process, signal);
        }
    }

    /// Waits until each thread of the machine has stopped.
    fn is_stopped(&self) -> anyhow::Result<()> {
        let id = self.id.load(Ordering::Relaxed);
        let deadline = Instant::now() + STOP_MAX;
        while !threads(id)?.iter().all(|state| state.starts_with(['T', 't'])) {
            ensure!(Instant::now() < deadline, "process {id} does not stop");
            thread::sleep(BETWEEN_LOOKS);
        }
        Ok(())
    }
}

impl Vmm for Machine {
    fn name(&self) -> &'static str {
        self.qemu.name()
    }

    fn modules(&self) -> &'static [&'static str] {
        match self.on {
            // Built in, in the kernels that are booted.
            FileSystem::Ext4 => &["virtio_pci", "virtio_console", "nfit", "nd_pmem"],
            FileSystem::Xfs => &["virtio_pci", "virtio_console", "nfit", "nd_pmem", "xfs"],
        }
    }

    fn guest_channels(&self) -> GuestChannels {
        self.qemu.guest_channels()
    }

    fn start(&self, boot: &Boot<'_>) -> transom_vm::Result<Started> {
        let started = self.qemu.start(boot)?;
        self.id.store(started.process.id(), Ordering::Relaxed);
        *self.process.lock().unwrap_or_else(PoisonError::into_inner) =
            started.process.pidfd().try_clone_to_owned().ok();
        Ok(started)
    }
}

/// The states of a process's threads, each as one letter and what follows it.
fn threads(id: u32) -> anyhow::Result<Vec<String>> {
    let threads = fs::read_dir(format!("/proc/{id}/task"))?.flatten();
    // One that has ended meanwhile has no state.
    let states = threads.filter_map(|thread| fs::read_to_string(thread.path().join("stat")).ok());
    Ok(states.filter_map(|state| Some(state.rsplit_once(") ")?.1.to_owned())).collect())
}
