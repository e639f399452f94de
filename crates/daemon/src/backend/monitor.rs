//! Counters of the back end, and measurements of its present state.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use transom_host::{metrics::Metrics, server::Done};
use transom_metrics::{Counter, Gauges, Snapshot};
use transom_wire::{
    Opcode,
    operation::{Changed, Effect, RestKind},
};

use super::{chain::Chain, in_flight::InFlight, pool::Busy};

/// Counters that outlive front ends, and a view of the current front end's device.
#[derive(Default)]
pub struct Monitor {
    metrics: Metrics,
    /// Taken when a front end connects and when metrics are read.
    device: Mutex<DeviceView>,
}

/// What is measured of a device; empty once the device is gone.
#[derive(Default)]
pub(super) struct DeviceView {
    pub(super) queues: Vec<Weak<InFlight>>,
    pub(super) pool: Option<Weak<dyn Busy>>,
}

impl Monitor {
    /// Returns all metrics; `gauges` are those that the file system provides.
    pub fn snapshot(&self, gauges: Gauges) -> Snapshot {
        let device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = device.pool.as_ref().and_then(Weak::upgrade).map(|pool| pool.usage()).unwrap_or_default();
        let queue_depths = device.queues.iter().filter_map(Weak::upgrade).map(|queue| queue.count().into()).collect();
        drop(device);
        self.metrics.snapshot(Gauges {
            queue_depths,
            pool_threads: pool.threads,
            pool_busy: pool.busy,
            pool_queued: pool.queued,
            ..gauges
        })
    }

    /// Returns the number of requests that have no answer, also of those that are set aside.
    pub(crate) fn held(&self) -> u32 {
        let device = self.device.lock().unwrap_or_else(PoisonError::into_inner);
        device.queues.iter().filter_map(Weak::upgrade).map(|queue| queue.held()).sum()
    }

    /// Measures another device from now on.
    pub(super) fn watch(&self, queues: impl Iterator<Item = Arc<InFlight>>, pool: Weak<dyn Busy>) {
        let view = DeviceView { queues: queues.map(|queue| Arc::downgrade(&queue)).collect(), pool: Some(pool) };
        *self.device.lock().unwrap_or_else(PoisonError::into_inner) = view;
    }

    /// Counts something that happened in the share.
    pub(crate) fn count(&self, counter: Counter) {
        self.metrics.add(counter, 1);
    }

    pub(super) fn deferred(&self) {
        self.metrics.add(Counter::Deferred, 1);
    }

    pub(super) fn undecided(&self, count: u64) {
        if count > 0 {
            self.metrics.add(Counter::UndecidedRequests, count);
        }
    }

    pub(super) fn broken_queue(&self) {
        self.metrics.add(Counter::BrokenQueues, 1);
    }

    pub(super) fn finished(&self, chain: &Chain, done: &Done) {
        // A request too short for a header counts as an unknown operation.
        let number = done.opcode.unwrap_or(u32::MAX);
        self.metrics.operation(number, chain.taken_at.elapsed(), done.result);
        let Some(opcode) = Opcode::from_u32(number) else { return };
        let row = opcode.row();
        if done.data_len_bytes > 0 {
            let is_copy = row.changes.iter().any(|change| change.what == Changed::ArgumentData);
            let counter = match row.rest {
                RestKind::FileData => Counter::WrittenBytes,
                RestKind::None if is_copy => Counter::CopiedBytes,
                RestKind::None | RestKind::Extensions | RestKind::Bytes | RestKind::List { .. } => Counter::ReadBytes,
            };
            self.metrics.add(counter, done.data_len_bytes);
        }
        if row.effect == Effect::Interrupts {
            self.metrics.add(Counter::Interrupts, 1);
        }
        if opcode == Opcode::Init {
            self.metrics.add(Counter::Sessions, u64::from(done.result.is_ok()));
        }
    }
}
