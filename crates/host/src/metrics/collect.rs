//! Adds the shards of [`Metrics`] up to a [`Snapshot`].

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use transom_metrics::{Gauges, Operation, Snapshot};
use transom_wire::Opcode;

use super::{ERRNO_COUNT, Metrics, OPERATION_COUNT, Shard};

/// Returns the values of `metrics`, together with `gauges`.
pub(super) fn snapshot(metrics: &Metrics, gauges: Gauges) -> Snapshot {
    let sum = |cell: &dyn Fn(&Shard) -> &AtomicU64| -> u64 {
        metrics.shards.iter().map(|shard| cell(shard).load(Relaxed)).fold(0, u64::wrapping_add)
    };
    let operations = (0..OPERATION_COUNT).map(|number| Operation {
        name: Opcode::from_u32(number as u32).map_or(OTHER, Opcode::name),
        errors: sum(&|shard| &shard.operations[number].errors),
        duration_sum_ns: sum(&|shard| &shard.operations[number].duration_sum_ns),
        durations: std::array::from_fn(|bucket| sum(&|shard| &shard.operations[number].durations[bucket])),
    });
    let errors = (0..ERRNO_COUNT).map(|number| (errno_name(number), sum(&|shard| &shard.errnos[number])));
    Snapshot {
        uptime_seconds: metrics.started.elapsed().as_secs_f64(),
        operations: merge_others(operations.filter(|operation| operation.count() > 0)),
        errors: errors.filter(|(_, count)| *count > 0).collect(),
        gauges,
        counters: std::array::from_fn(|index| sum(&|shard| &shard.counters[index])),
    }
}

/// The name of opcodes that are not operations.
const OTHER: &str = "other";

/// Merges the opcodes that are not operations into one row, the last.
fn merge_others(operations: impl Iterator<Item = Operation>) -> Vec<Operation> {
    let (mut rows, others): (Vec<Operation>, Vec<Operation>) = operations.partition(|it| it.name != OTHER);
    rows.extend(others.into_iter().reduce(|mut sum, other| {
        sum.add(&other);
        sum
    }));
    rows
}

/// Returns a name such as `ENOENT`, or `E` and the number if it has no name.
fn errno_name(number: usize) -> String {
    macro_rules! names {
        ($($name:ident)*) => {
            match number as i32 {
                0 => OTHER.into(),
                $(libc::$name => stringify!($name).into(),)*
                unnamed => format!("E{unnamed}"),
            }
        };
    }
    names! {
        EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST EXDEV ENODEV ENOTDIR
        EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE ERANGE EDEADLK ENAMETOOLONG
        ENOLCK ENOSYS ENOTEMPTY ELOOP ENODATA EPROTO EOVERFLOW EOPNOTSUPP ETIMEDOUT ESTALE EDQUOT ECANCELED
    }
}
