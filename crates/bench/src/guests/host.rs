//! The bare directory of the host, without a daemon, with which shares are compared.

use super::{
    Run,
    observed::{Observations, Observer},
};
use crate::{
    process::on_core,
    workload::{
        self,
        place::{Directory, Forget},
    },
};

/// Runs the workloads in this process, on `core` if given.
///
/// The host's caches are not dropped: that would need root and disturb other processes, and changes nothing on a file
/// system in memory.
pub fn run(run: &Run<'_>, core: Option<usize>) -> anyhow::Result<Observations> {
    let place = Directory::new(run.shared, Forget::Nothing);
    let mut observer = Observer::new(Vec::new(), run.params.settle_ms, run.bar);
    on_core(core, || {
        workload::run(&place, run.params, run.is_stopped, &mut |line| {
            observer.hear(line);
            Ok(())
        })
    })??;
    observer.complete()
}
