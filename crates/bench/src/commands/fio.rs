//! `transom bench fio`.

use std::{env, path::PathBuf};

use clap::Args;
use transom_vm::{
    Accelerator, CacheMode,
    packages::{Cache, OnStderr, Packages},
    peer,
    tools::Tools,
};

use crate::{
    daemon::Candidate,
    fio::{self, Side, Way},
    limits,
    report::{Facts, Report, SCHEMA, Version, markdown},
};

#[derive(Debug, Args)]
pub(super) struct Fio {
    /// The transomd to measure [default: the one next to this program]
    #[arg(long)]
    transomd: Option<PathBuf>,
    /// The virtiofsd to compare it with [default: 1.14, built if needed]
    #[arg(long)]
    virtiofsd: Option<PathBuf>,
    /// QEMU with a window [default: the machine's, or a newer Debian's from the cache]
    #[arg(long)]
    qemu: Option<PathBuf>,
    /// The kernel: an image, or a Debian series.
    #[arg(long)]
    kernel: Option<PathBuf>,
    /// Where to create the shared directory; for direct I/O, on a disk.
    #[arg(long, default_value = "/var/tmp")]
    shared_in: PathBuf,
    /// Number of rounds.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds of each fio run.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Warm-up of each run in seconds, not measured: files are mapped, caches fill.
    #[arg(long, default_value_t = 2.0)]
    warm_up: f64,
    /// Size of each file, in MiB; each fio job has one, at most four.
    #[arg(long, default_value_t = 64)]
    file_mib: u64,
    /// Size of the window, in MiB.
    #[arg(long, default_value_t = 512)]
    window_mib: u64,
    /// Memory of the guest, in MiB.
    #[arg(long, default_value_t = 1024)]
    memory_mib: u32,
    /// Virtual processors of the guest.
    #[arg(long, default_value_t = 1)]
    cpus: u32,
    /// Only configurations whose names contain one of these words.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Write NAME.json, NAME.md and NAME.html there.
    #[arg(long, default_value = "bench-results")]
    out: PathBuf,
    /// Name of these files.
    #[arg(long, default_value = "fio")]
    name: String,
}

impl Fio {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let (cache, report) = (Cache::locate()?, OnStderr::default());
        let tools = Tools::new(&cache, &report);
        let qemu = tools.qemu_with_window(self.qemu.as_deref())?;
        let kernel = tools.kernel(self.kernel.as_deref())?;
        let kernel_name = kernel.image.file_name().map(|name| name.to_string_lossy().into_owned());
        let ours = match &self.transomd {
            Some(path) => path.clone(),
            None => env::current_exe()?.with_file_name("transomd"),
        };
        let peer = match &self.virtiofsd {
            Some(path) => path.clone(),
            None => peer::virtiofsd(&Packages::new(&cache, &report), peer::Build::Release)?,
        };
        let accelerator = Accelerator::best(&qemu, &kernel, tools.cache());
        let plan = fio::Plan {
            sides: self.sides(&Candidate::named("transomd", &ours)?, &Candidate::named("virtiofsd", &peer)?),
            rounds: self.rounds,
            file_len: self.file_mib << 20,
            seconds: self.seconds,
            warm_up: self.warm_up,
            kernel,
            accelerator,
            memory_mib: self.memory_mib,
            cpus: self.cpus,
        };
        let samples = fio::measure(&plan, &qemu, tools.cache(), &self.shared_in)?;
        let versions = plan.sides.iter().map(|side| Version {
            name: side.name.clone(),
            version: match side.way {
                Way::NineP(cache) => format!("virtio-9p of the same QEMU, cache={cache}"),
                Way::VirtioFs { .. } => side.daemon.version(),
            },
            args: side.daemon.args.clone(),
        });
        let limits_dir = tempfile::tempdir_in(&self.shared_in)?;
        let report = Report {
            schema: SCHEMA,
            notes: Vec::new(),
            title: "fio in a guest: with and without DAX".into(),
            command: super::command_line(),
            facts: Facts::collect(kernel_name, &self.shared_in),
            daemons: versions.collect(),
            limits: limits::measure(limits_dir.path())?,
            samples,
        };
        report.write(&self.out, &self.name)?;
        print!("{}", markdown(&report));
        Ok(())
    }

    fn sides(&self, ours: &Candidate, peer: &Candidate) -> Vec<Side> {
        let virtio_fs = |name: &str, daemon: &Candidate, cache, window_len| Side {
            name: name.into(),
            daemon: daemon.clone(),
            way: Way::VirtioFs { cache, window_len },
        };
        let nine_p = |name: &str, cache| Side { name: name.into(), daemon: ours.clone(), way: Way::NineP(cache) };
        let sides = [
            virtio_fs("DAX", ours, CacheMode::Never, Some(self.window_mib << 20)),
            virtio_fs("transomd-never", ours, CacheMode::Never, None),
            virtio_fs("transomd-auto", ours, CacheMode::Auto, None),
            virtio_fs("virtiofsd-never", peer, CacheMode::Never, None),
            virtio_fs("virtiofsd-auto", peer, CacheMode::Auto, None),
            nine_p("9p-none", "none"),
            nine_p("9p-mmap", "mmap"),
        ];
        let is_wanted = |side: &Side| self.only.is_empty() || self.only.iter().any(|word| side.name.contains(word));
        sides.into_iter().filter(is_wanted).collect()
    }
}
