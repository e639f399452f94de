//! The thread that talks to the front end, for one connection.

use std::{sync::PoisonError, time::Instant};

use super::{
    Channel, Mapping, RANGE_LEN,
    channel::ChannelError,
    ranges::{Job, JobVerdict, MapTime, Shared},
};

/// Performs jobs one by one until the connection changes.
pub(super) fn run(shared: &Shared, channel: &dyn Channel, connection: u64) {
    while let Some(job) = next(shared, connection) {
        let verdict = perform(shared, channel, &job);
        shared.settle(job, connection, &verdict);
    }
}

fn next(shared: &Shared, connection: u64) -> Option<Job> {
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

fn perform(shared: &Shared, channel: &dyn Channel, job: &Job) -> JobVerdict {
    let window_offset = job.window_offset();
    if let Some(offset) = job.to_unmap()
        && let Err(error) = channel.unmap(offset, RANGE_LEN)
    {
        tracing::error!(%error, window_offset, "cannot unmap a range of the window");
        if matches!(error, ChannelError::Lost(_)) {
            return lost();
        }
    }
    let Some((file, file_offset)) = job.to_map() else { return JobVerdict::Done(None) };
    let begin = Instant::now();
    let mapping = Mapping {
        file: std::os::fd::AsFd::as_fd(file),
        file_offset,
        window_offset,
        len: RANGE_LEN,
        is_writable: file.is_writable,
    };
    let mapped = channel.map(&mapping).and_then(|()| {
        let (stops, resets) = shared.stops_and_resets();
        if shared.front_end.needs_barrier {
            channel.barrier()?;
        }
        Ok(MapTime { took: begin.elapsed(), stops, resets })
    });
    match mapped {
        Ok(time) => JobVerdict::Done(Some(time)),
        Err(error) => {
            let name = file.name();
            tracing::error!(%error, name, file_offset, window_offset, len = RANGE_LEN, "cannot map a range of a file");
            match error {
                ChannelError::Refused(_) => JobVerdict::Refused,
                ChannelError::Lost(_) => lost(),
            }
        }
    }
}

fn lost() -> JobVerdict {
    tracing::error!("the front end closed the channel for mappings: the share continues without its window");
    JobVerdict::Lost
}
