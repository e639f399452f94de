//! The bare directory of the host, without a daemon: what the share is measured against.

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

/// Runs the workloads by this process, on `core` if there is one.
///
/// Emptying the host's caches would need root and disturb everybody; on a file system in memory it would change
/// nothing.
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
