//! The limit of open descriptors, and the part of it that a guest may use up.

use std::{fs, os::fd::AsFd};

use rustix::{
    io::fcntl_dupfd_cloexec,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use thiserror::Error;
use tracing::warn;

/// What is asked for where `--rlimit-nofile` says nothing.
const DEFAULT_LIMIT: u64 = 1_000_000;

/// Descriptors kept from the guest: the front end's memory (up to 509 regions, vhost-user's limit), queues' events
/// (3 each), and some for each worker that opens a file before it is counted.
const RESERVED: u64 = 509 + 128;

/// Descriptors that the process has room for from the beginning; the kernel takes half a MiB for them.
const ROOM: u64 = 1 << 16;

/// Without this many descriptors for the guest a share is of no use.
const LEAST_FOR_GUEST: u64 = 64;

/// Why the limit is not what was asked for.
#[derive(Debug, Error)]
pub enum LimitError {
    /// More than the kernel allows.
    #[error("--rlimit-nofile {wanted} exceeds {most}, the most that /proc/sys/fs/nr_open allows")]
    AboveKernel {
        /// What was asked for.
        wanted: u64,
        /// What is possible.
        most: u64,
    },
    /// More than this user may have.
    #[error("--rlimit-nofile {wanted} exceeds the hard limit {hard}, which only root may raise")]
    AboveHard {
        /// What was asked for.
        wanted: u64,
        /// What is possible.
        hard: u64,
    },
    /// Too few to serve.
    #[error("a limit of {limit} open descriptors is too low, at least {} are needed", RESERVED + LEAST_FOR_GUEST)]
    TooLow {
        /// The limit.
        limit: u64,
    },
}

/// Sets the limit of this process. Returns the limit in force.
///
/// `asked`: `None` for the default, lowered to what is allowed; 0 to leave the limit unchanged.
pub fn set_limit(asked: Option<u64>) -> Result<u64, LimitError> {
    let now = getrlimit(Resource::Nofile);
    let current = now.current.unwrap_or(u64::MAX);
    let hard = now.maximum.unwrap_or(u64::MAX);
    let wanted = match asked {
        Some(0) => return Ok(current),
        Some(wanted) => wanted,
        None if current >= DEFAULT_LIMIT => return Ok(current),
        None => DEFAULT_LIMIT,
    };
    let most = kernel_limit();
    if wanted > most && asked.is_some() {
        return Err(LimitError::AboveKernel { wanted, most });
    }
    let wanted = wanted.min(most);
    if set(wanted, wanted) {
        return Ok(wanted);
    }
    if asked.is_some() {
        return Err(LimitError::AboveHard { wanted, hard });
    }
    warn!("the limit of open descriptors stays at {hard}, the hard limit, rather than {wanted}");
    Ok(if set(hard, hard) { hard } else { current })
}

/// The descriptors that may be held for a guest under `limit`, `asked` being `--max-fds`.
pub fn for_guest(limit: u64, asked: Option<u64>) -> Result<u64, LimitError> {
    let left = limit.saturating_sub(RESERVED);
    if left < LEAST_FOR_GUEST {
        return Err(LimitError::TooLow { limit });
    }
    Ok(asked.map_or(left, |asked| asked.min(left)))
}

/// Lets the kernel make the table of descriptors now, with `any` of them, for all that a share of usual size takes
/// under `limit`. To be called while there is one thread: where there are several, the one whose open(2) makes the
/// table grow waits until every processor has switched tasks, ten milliseconds or more.
pub fn make_room(limit: u64, any: impl AsFd) {
    let highest = limit.min(ROOM).saturating_sub(1);
    // Without it, opens wait now and then.
    let _ = fcntl_dupfd_cloexec(any, highest as i32);
}

fn set(soft: u64, hard: u64) -> bool {
    setrlimit(Resource::Nofile, Rlimit { current: Some(soft), maximum: Some(hard) }).is_ok()
}

fn kernel_limit() -> u64 {
    let text = fs::read_to_string("/proc/sys/fs/nr_open").unwrap_or_default();
    text.trim().parse().unwrap_or(DEFAULT_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_gets_what_the_daemon_does_not_need() {
        assert_eq!(for_guest(1024, None).unwrap(), 1024 - RESERVED);
        assert_eq!(for_guest(1024, Some(100)).unwrap(), 100);
        assert_eq!(for_guest(1024, Some(100_000)).unwrap(), 1024 - RESERVED);
        assert!(matches!(for_guest(256, None), Err(LimitError::TooLow { limit: 256 })));
    }

    #[test]
    fn a_limit_beyond_the_kernels_is_refused_with_both_numbers() {
        let most = kernel_limit();

        let error = set_limit(Some(most + 1)).unwrap_err();

        assert!(matches!(error, LimitError::AboveKernel { wanted, most: m } if wanted == most + 1 && m == most));
    }

    #[test]
    fn zero_leaves_the_limit() {
        let before = getrlimit(Resource::Nofile);

        assert_eq!(Some(set_limit(Some(0)).unwrap()), before.current);
        assert_eq!(getrlimit(Resource::Nofile), before);
    }
}
