//! The limit on open descriptors, and the share of it that a guest may use.

use std::{fs, os::fd::AsFd};

use rustix::{
    io::fcntl_dupfd_cloexec,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use thiserror::Error;
use tracing::warn;

/// The limit without `--rlimit-nofile`.
const DEFAULT_LIMIT: u64 = 1_000_000;

/// Descriptors reserved for the daemon: the front end's memory (up to 509 regions, vhost-user's limit), the queues'
/// events (3 each), and a few for each worker that opens a file before it is counted.
const RESERVED: u64 = 509 + 128;

/// Descriptors for which the kernel allocates its table at the start; it takes half a MiB.
const ROOM: u64 = 1 << 16;

/// With fewer descriptors for the guest, a share is useless.
const LEAST_FOR_GUEST: u64 = 64;

/// Why the limit cannot be set.
#[derive(Debug, Error)]
pub enum LimitError {
    /// More than the kernel allows.
    #[error("--rlimit-nofile {wanted} exceeds {most}, the most that /proc/sys/fs/nr_open allows")]
    AboveKernel {
        /// The requested limit.
        wanted: u64,
        /// The largest possible limit.
        most: u64,
    },
    /// Too few to serve.
    #[error("a limit of {limit} open descriptors is too low, at least {} are needed", RESERVED + LEAST_FOR_GUEST)]
    TooLow {
        /// The limit.
        limit: u64,
    },
}

/// Sets the limit of this process and returns the limit in force.
///
/// `asked` is `None` for the default, lowered to what the kernel allows, or 0 to leave the limit unchanged. If this
/// process may not raise the hard limit, the limit becomes the hard limit, with a warning.
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
    // Root in a container often lacks the capability, and root of a user namespace always does.
    warn!(
        "the limit on open descriptors is the hard limit, {hard}, instead of {wanted}: raising the hard limit needs \
         the capability SYS_RESOURCE, which this process does not have on this machine"
    );
    Ok(if set(hard, hard) { hard } else { current })
}

/// Returns the number of descriptors that may be held for a guest under `limit`. `asked` is `--max-fds`.
pub fn for_guest(limit: u64, asked: Option<u64>) -> Result<u64, LimitError> {
    let left = limit.saturating_sub(RESERVED);
    if left < LEAST_FOR_GUEST {
        return Err(LimitError::TooLow { limit });
    }
    Ok(asked.map_or(left, |asked| asked.min(left)))
}

/// Makes the kernel allocate the table of descriptors now, using `any` of them, large enough for a share of usual size
/// under `limit`. Must be called while there is one thread: with several, the thread whose open(2) makes the table grow
/// waits until every processor has switched tasks, ten milliseconds or more.
pub fn make_room(limit: u64, any: impl AsFd) {
    let highest = limit.min(ROOM).saturating_sub(1);
    // On failure, opens are occasionally slow.
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
