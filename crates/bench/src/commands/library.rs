//! `transom bench library`.

use clap::Args;

use super::burst::Burst;
use crate::library::{self, Operation};

#[derive(Debug, Args)]
pub(super) struct Library {
    #[command(flatten)]
    burst: Burst<Operation>,
}

impl Library {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let operations = self.burst.operations();
        let Burst { common, placement, depth, scale, cache, .. } = self.burst;
        let candidates = common.candidates()?;
        let plan = library::Plan {
            candidates: candidates.clone(),
            placements: placement,
            threads: depth,
            operations,
            rounds: common.rounds(),
            scale,
            cache,
        };
        let samples = library::measure(&plan, &common.shared_in)?;
        common.tell("The guest library over each daemon, without a VM", "library", &candidates, samples)
    }
}
