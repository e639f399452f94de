//! Options common to measurements in bursts: operations, requests in flight, placement, length.

use clap::{Args, ValueEnum};
use transom_vm::CacheMode;

use super::Common;
use crate::process::Placement;

#[derive(Debug, Args)]
pub(super) struct Burst<O: ValueEnum + Send + Sync + 'static> {
    #[command(flatten)]
    pub(super) common: Common,
    /// Where the daemon runs.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Placement::SameCore, Placement::OtherCore])]
    pub(super) placement: Vec<Placement>,
    /// Requests in flight.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16])]
    pub(super) depth: Vec<u16>,
    /// Operations to measure [default: all]
    #[arg(long, value_enum, value_delimiter = ',')]
    operations: Vec<O>,
    /// Factor for the number of operations in a burst.
    #[arg(long, default_value_t = 1.0)]
    pub(super) scale: f64,
    /// The daemons' cache mode.
    #[arg(long, default_value = "auto")]
    pub(super) cache: CacheMode,
}

impl<O: ValueEnum + Send + Sync> Burst<O> {
    /// Returns the selected operations, or all.
    pub(super) fn operations(&self) -> Vec<O> {
        if self.operations.is_empty() { O::value_variants().to_vec() } else { self.operations.clone() }
    }
}
