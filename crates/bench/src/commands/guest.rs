//! `transom-bench guest`.

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::{Args, ValueEnum};
use transom_bench::{daemon::Candidate, guest, process::Placement, workload::Params};
use transom_vm::{
    Accelerator, CacheMode, Kernel, Qemu, Vmm,
    packages::{Cache, OnStderr},
    tools::Tools,
    uml::Uml,
};

use super::Common;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum VmmName {
    /// A PC by emulation; runs any kernel
    Qemu,
    /// User Mode Linux: an ordinary process, whose own work hides least of the daemon's
    Uml,
}

impl VmmName {
    /// The VMM and what it boots: the kernel at `path`, or one from the cache, where it is put if need be. A window needs a
    /// newer QEMU.
    pub(super) fn find(self, path: Option<&Path>, with_window: bool) -> anyhow::Result<(Box<dyn Vmm>, Kernel)> {
        let cache = Cache::locate()?;
        let report = OnStderr::default();
        let tools = Tools::new(&cache, &report);
        Ok(match self {
            Self::Qemu => {
                let qemu = if with_window { tools.qemu_with_window(None)? } else { tools.qemu(None, true)? };
                let kernel = tools.kernel(path)?;
                let accelerator = Accelerator::best(&qemu, &kernel, tools.cache());
                (Box::new(Qemu::new(qemu, accelerator, tools.cache())), kernel)
            }
            Self::Uml if with_window => bail!("UML has no window; --vmm qemu has"),
            Self::Uml => (Box::new(Uml), tools.uml_kernel(path)?),
        })
    }
}

#[derive(Args)]
pub(crate) struct Guest {
    #[command(flatten)]
    common: Common,
    /// The virtual machine monitor.
    #[arg(long, value_enum, default_value_t = VmmName::Uml)]
    vmm: VmmName,
    /// The kernel image, with its modules beside it where it has any; by default one is fetched or built.
    #[arg(long)]
    kernel: Option<PathBuf>,
    /// Memory of the guest, MiB.
    #[arg(long, default_value_t = 512)]
    memory_mib: u32,
    /// Where the daemon runs.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Placement::SameCore])]
    placement: Vec<Placement>,
    /// The daemons' cache modes.
    #[arg(long, value_delimiter = ',', default_value = "never,auto")]
    cache: Vec<CacheMode>,
    /// Measure the first daemon with a DAX window of so many MiB too, before all others; needs --vmm qemu.
    #[arg(long, value_name = "MIB")]
    dax_window_mib: Option<u64>,
    #[command(flatten)]
    params: Params,
}

impl Guest {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let mut common = self.common.with_daemons()?;
        if let (Some(mib), Some(first)) = (self.dax_window_mib, common.daemons.first()) {
            let with_window = Candidate { name: "DAX".to_owned(), window_len: Some(mib << 20), ..first.clone() };
            common.daemons.insert(0, with_window);
        }
        let (vmm, kernel) = self.vmm.find(self.kernel.as_deref(), self.dax_window_mib.is_some())?;
        let kernel_name = kernel.image.file_name().map(|name| name.to_string_lossy().into_owned());
        let plan = guest::Plan {
            candidates: common.daemons.clone(),
            placements: self.placement,
            caches: self.cache,
            rounds: common.rounds,
            params: self.params,
            kernel,
            memory_mib: self.memory_mib,
        };
        let samples = guest::measure(&plan, vmm.as_ref(), &common.shared_in)?;
        let title = format!("The same guest over each daemon: {}", vmm.name());
        common.report(&title, "guest", kernel_name, samples)
    }
}
