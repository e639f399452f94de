//! `transom-bench library`.

use clap::Args;
use transom_bench::{
    library::{self, Operation},
    process::Placement,
};
use transom_vm::CacheMode;

use super::Common;

#[derive(Args)]
pub(crate) struct Library {
    #[command(flatten)]
    common: Common,
    /// Where the daemon runs.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Placement::OtherCore, Placement::SameCore])]
    placement: Vec<Placement>,
    /// Threads at once, each with one request in flight.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4, 16])]
    threads: Vec<u16>,
    /// What they do.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Operation::ALL)]
    operations: Vec<Operation>,
    /// Operations in a burst, against the usual number.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// The daemons' cache mode.
    #[arg(long, default_value = "auto")]
    cache: CacheMode,
}

impl Library {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let common = self.common.with_daemons()?;
        let plan = library::Plan {
            candidates: common.daemons.clone(),
            placements: self.placement,
            threads: self.threads,
            operations: self.operations,
            rounds: common.rounds,
            scale: self.scale,
            cache: self.cache,
        };
        let samples = library::measure(&plan, &common.shared_in)?;
        common.report("The guest library over each daemon, without a VM", "library", None, samples)
    }
}
