//! `transom-bench round-trip`.

use clap::Args;
use transom_bench::{
    process::Placement,
    round_trip::{self, Operation},
};
use transom_vm::CacheMode;

use super::Common;

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

impl RoundTrip {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let common = self.common.with_daemons()?;
        let plan = round_trip::Plan {
            candidates: common.daemons.clone(),
            placements: self.placement,
            depths: self.depth,
            operations: self.operations,
            rounds: common.rounds,
            scale: self.scale,
            cache: self.cache,
        };
        let samples = round_trip::measure(&plan, &common.shared_in)?;
        common.report("Round trips without a guest", "round-trip", None, samples)
    }
}
