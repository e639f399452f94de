//! The subcommands that compare daemons, from their options to a report.

use std::{env, fs, path::PathBuf};

use clap::Args;
use transom_bench::{
    daemon::Candidate,
    guest, limits,
    memory::{self, MemoryReport},
    process::Placement,
    report::{Facts, Report, Sample, Version, markdown},
    round_trip::{self, Operation},
    workload::Params,
};
use transom_vm::{Accelerator, CacheMode, Kernel, Qemu, Vmm};

/// What every comparison has.
#[derive(Args)]
pub(crate) struct Common {
    /// A daemon with virtiofsd's command line; the first one is compared with each other one.
    #[arg(long = "daemon", value_name = "[NAME=]PROGRAM [ARGUMENT...]", required = true)]
    daemons: Vec<Candidate>,
    /// Where the directory that is shared is made.
    #[arg(long, default_value = "/dev/shm")]
    shared_in: PathBuf,
    /// Rounds over all daemons.
    #[arg(long, default_value_t = 9)]
    rounds: u32,
    /// Write NAME.json and NAME.md there.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    /// The name of both files.
    #[arg(long)]
    name: Option<String>,
}

#[derive(Args)]
pub(crate) struct RoundTrip {
    #[command(flatten)]
    common: Common,
    /// Where the daemon runs.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Placement::SameCore, Placement::OtherCore])]
    placement: Vec<Placement>,
    /// Requests under way at once.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16])]
    depth: Vec<u16>,
    /// What is asked.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Operation::ALL)]
    operations: Vec<Operation>,
    /// Requests in a burst, against the usual number.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// The daemons' cache mode.
    #[arg(long, default_value = "auto")]
    cache: CacheMode,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum VmmName {
    /// A PC by emulation; runs any kernel
    Qemu,
    /// User Mode Linux: an ordinary process, whose own work hides least of the daemon's
    Uml,
}

#[derive(Args)]
pub(crate) struct Guest {
    #[command(flatten)]
    common: Common,
    /// The virtual machine monitor.
    #[arg(long, value_enum, default_value_t = VmmName::Uml)]
    vmm: VmmName,
    /// The kernel image; its modules are looked for beside it.
    #[arg(long)]
    kernel: PathBuf,
    /// Memory of the guest, MiB.
    #[arg(long, default_value_t = 512)]
    memory_mib: u32,
    /// Where the daemon runs.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Placement::SameCore])]
    placement: Vec<Placement>,
    /// The daemons' cache modes.
    #[arg(long, value_delimiter = ',', default_values_t = [CacheMode::Never, CacheMode::Auto].map(|mode| mode.as_str().to_owned()))]
    cache: Vec<String>,
    #[command(flatten)]
    params: Params,
}

impl Guest {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let cache_dir = self.common.out.join("cache");
        let vmm: Box<dyn Vmm> = match self.vmm {
            VmmName::Qemu => Box::new(Qemu::new(None, Accelerator::Tcg, &cache_dir)?),
            VmmName::Uml => anyhow::bail!("User Mode Linux is not there yet"),
        };
        fs::create_dir_all(&cache_dir)?;
        let plan = guest::Plan {
            candidates: self.common.daemons.clone(),
            placements: self.placement,
            caches: self.cache.iter().map(|mode| mode.parse()).collect::<Result<_, _>>()?,
            rounds: self.common.rounds,
            params: self.params,
            kernel: Kernel::at(&self.kernel)?,
            memory_mib: self.memory_mib,
        };
        let samples = guest::measure(&plan, vmm.as_ref(), &self.common.shared_in)?;
        let title = format!("The same guest over each daemon, {}", vmm.name());
        self.common.report(&title, "guest", Some(self.kernel.display().to_string()), samples)
    }
}

#[derive(Args)]
pub(crate) struct Memory {
    #[command(flatten)]
    common: Common,
    /// Files that are looked up.
    #[arg(long, default_value_t = 1_000_000)]
    inodes: u32,
}

impl Memory {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        memory::raise_descriptor_limit();
        let shared = tempfile::Builder::new().prefix("transom-bench-").tempdir_in(&self.common.shared_in)?;
        memory::populate(shared.path(), self.inodes)?;
        let mut samples = Vec::new();
        for repetition in 0..self.common.rounds {
            for candidate in &self.common.daemons {
                samples.push(memory::measure(candidate, shared.path(), self.inodes, repetition)?);
            }
        }
        let report = MemoryReport {
            command: env::args().collect(),
            facts: Facts::collect(None, &self.common.shared_in.display().to_string()),
            samples,
        };
        let name = self.common.name.as_deref().unwrap_or("memory");
        fs::create_dir_all(&self.common.out)?;
        fs::write(self.common.out.join(format!("{name}.json")), serde_json::to_vec_pretty(&report)?)?;
        let text = memory::markdown(&report);
        fs::write(self.common.out.join(format!("{name}.md")), &text)?;
        print!("{text}");
        Ok(())
    }
}

impl RoundTrip {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let plan = round_trip::Plan {
            candidates: self.common.daemons.clone(),
            placements: self.placement,
            depths: self.depth,
            operations: self.operations,
            rounds: self.common.rounds,
            scale: self.scale,
            cache: self.cache,
        };
        let samples = round_trip::measure(&plan, &self.common.shared_in)?;
        self.common.report("Round trips without a guest", "round-trip", None, samples)
    }
}

impl Common {
    /// Adds limits and facts, writes the files, prints the table.
    fn report(
        self,
        title: &str,
        name: &str,
        guest_kernel: Option<String>,
        samples: Vec<Sample>,
    ) -> anyhow::Result<()> {
        let daemons = self.daemons.iter().map(|candidate| Version {
            name: candidate.name.clone(),
            version: candidate.version(),
            args: candidate.args.clone(),
        });
        let limits_dir = tempfile::tempdir_in(&self.shared_in)?;
        let report = Report {
            title: title.to_owned(),
            command: env::args().collect(),
            facts: Facts::collect(guest_kernel, &self.shared_in.display().to_string()),
            daemons: daemons.collect(),
            limits: limits::measure(limits_dir.path())?,
            samples,
        };
        report.write(&self.out, self.name.as_deref().unwrap_or(name))?;
        print!("{}", markdown(&report));
        Ok(())
    }
}
