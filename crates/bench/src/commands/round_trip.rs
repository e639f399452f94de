//! `transom bench round-trip`.

use clap::Args;

use super::burst::Burst;
use crate::round_trip::{self, Operation};

#[derive(Debug, Args)]
pub(super) struct RoundTrip {
    #[command(flatten)]
    burst: Burst<Operation>,
}

impl RoundTrip {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let operations = self.burst.operations();
        let Burst { common, placement, depth, scale, cache, .. } = self.burst;
        let candidates = common.candidates()?;
        let plan = round_trip::Plan {
            candidates: candidates.clone(),
            placements: placement,
            depths: depth,
            operations,
            rounds: common.rounds(),
            scale,
            cache,
        };
        let samples = round_trip::measure(&plan, &common.shared_in)?;
        common.tell("Round trips without a guest", "round-trip", &candidates, samples)
    }
}
