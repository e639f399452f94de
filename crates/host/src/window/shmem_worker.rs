//! The thread that talks to the front end, for one connection.
//!
//! It is the only one that does, so requests have an order: the front end answers one before it is sent the next. Jobs
//! that wait together share a barrier, which is sent once the front end has answered all of them. Until the barrier is
//! answered, none of their mappings counts, and nobody is told of one. Locks: the window's, never across a request.

use std::{iter, os::fd::AsFd, sync::PoisonError, time::Instant};

use super::{
    Channel, Mapping, RANGE_LEN,
    channel::ChannelError,
    ranges::{Job, JobVerdict, MapTime, Shared},
};

/// The most jobs between two barriers. The first mapping waits until the others are mapped too, with QEMU one to six
/// milliseconds each: more jobs make it wait longer and save little of a barrier's share.
const BATCH_JOBS_MAX: usize = 16;

/// Performs jobs in their order until the connection changes.
pub(super) fn run(shared: &Shared, channel: &dyn Channel, connection: u64) {
    while let Some(job) = wait_for_job(shared, connection) {
        let others = iter::from_fn(|| waiting_job(shared, connection));
        let batch = iter::once(job).chain(others).take(BATCH_JOBS_MAX);
        perform_batch(shared, channel, connection, batch);
    }
}

fn wait_for_job(shared: &Shared, connection: u64) -> Option<Job> {
    let mut state = shared.lock();
    loop {
        if state.connection != connection {
            return None;
        }
        if let Some(job) = state.next_job() {
            return Some(job);
        }
        state = shared.has_job.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
}

fn waiting_job(shared: &Shared, connection: u64) -> Option<Job> {
    let mut state = shared.lock();
    if state.connection == connection { state.next_job() } else { None }
}

/// Performs the jobs that `batch` takes from the queue, and settles each of them. What it has not taken yet can still
/// be withdrawn by whoever waits for it.
fn perform_batch(shared: &Shared, channel: &dyn Channel, connection: u64, batch: impl Iterator<Item = Job>) {
    let mut unconfirmed = Vec::new();
    for mut job in batch {
        match perform(shared, channel, &mut job) {
            JobVerdict::Done(Some(time)) if shared.front_end.needs_barrier => unconfirmed.push((job, time)),
            JobVerdict::Lost => {
                let jobs = unconfirmed.into_iter().map(|(job, _)| job).chain([job]);
                return settle_lost(shared, connection, jobs);
            }
            verdict @ (JobVerdict::Done(_) | JobVerdict::Refused) => shared.settle(job, connection, &verdict),
        }
    }
    if !unconfirmed.is_empty() {
        confirm(shared, channel, connection, unconfirmed);
    }
}

/// Unmaps and maps what the job asks for, without a barrier.
fn perform(shared: &Shared, channel: &dyn Channel, job: &mut Job) -> JobVerdict {
    let window_offset = job.window_offset();
    if let Some(offset) = job.to_unmap() {
        if let Err(error) = channel.unmap(offset, RANGE_LEN) {
            tracing::error!(%error, window_offset, "cannot unmap a range of the window");
            if matches!(error, ChannelError::Lost(_)) {
                return JobVerdict::Lost;
            }
        }
        job.forget_old();
    }
    let Some((file, file_offset)) = job.to_map() else { return JobVerdict::Done(None) };
    let begin = Instant::now();
    let mapping =
        Mapping { file: file.as_fd(), file_offset, window_offset, len: RANGE_LEN, is_writable: file.is_writable };
    match channel.map(&mapping) {
        Ok(()) => {
            let (stops, resets) = shared.stops_and_resets();
            JobVerdict::Done(Some(MapTime { took: begin.elapsed(), stops, resets }))
        }
        Err(error) => {
            let name = file.name();
            tracing::error!(%error, name, file_offset, window_offset, len = RANGE_LEN, "cannot map a range of a file");
            match error {
                ChannelError::Refused(_) => JobVerdict::Refused,
                ChannelError::Lost(_) => JobVerdict::Lost,
            }
        }
    }
}

/// Sends one barrier for all of `mapped`, which the front end has answered, and settles them. Without its answer,
/// nobody knows whether the guest sees them: then the channel is of no more use.
fn confirm(shared: &Shared, channel: &dyn Channel, connection: u64, mapped: Vec<(Job, MapTime)>) {
    let begin = Instant::now();
    let answer = channel.barrier();
    let share = begin.elapsed() / mapped.len() as u32;
    if let Err(error) = answer {
        tracing::error!(%error, count = mapped.len(), "it is unknown whether the guest sees what was mapped");
        return settle_lost(shared, connection, mapped.into_iter().map(|(job, _)| job));
    }
    for (job, time) in mapped {
        let took = time.took + share;
        shared.settle(job, connection, &JobVerdict::Done(Some(MapTime { took, ..time })));
    }
}

/// Ends the window until the next connection: `jobs` fail, and so does every job that waits.
fn settle_lost(shared: &Shared, connection: u64, jobs: impl Iterator<Item = Job>) {
    tracing::error!("the front end closed the channel for mappings: the share continues without its window");
    jobs.for_each(|job| shared.settle(job, connection, &JobVerdict::Lost));
}
