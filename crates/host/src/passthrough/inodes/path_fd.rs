//! `O_PATH` descriptors that know when they were opened.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        atomic::{
            AtomicU64,
            Ordering::{AcqRel, Acquire},
        },
    },
};

/// A descriptor that stays open while in use, even if it is no longer kept.
pub(crate) type Fd = Arc<PathFd>;

/// Counts the descriptors that are opened.
#[derive(Debug, Default)]
pub(super) struct OpenClock(AtomicU64);

/// A moment of an [`OpenClock`]. Descriptors from before it were open at that moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct OpenMoment(u64);

impl OpenClock {
    pub(super) fn now(&self) -> OpenMoment {
        OpenMoment(self.0.load(Acquire))
    }

    pub(super) fn advance(&self) -> OpenMoment {
        OpenMoment(self.0.fetch_add(1, AcqRel) + 1)
    }

    /// Returns `fd`, which was opened just now, for keeping.
    pub(super) fn path_fd(&self, fd: OwnedFd) -> Fd {
        Arc::new(PathFd { fd, opened_at: self.advance() })
    }
}

/// An `O_PATH` descriptor of an inode, and when it was opened.
#[derive(Debug)]
pub(crate) struct PathFd {
    fd: OwnedFd,
    pub(super) opened_at: OpenMoment,
}

impl AsFd for PathFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_was_open_at_the_moments_after_it() {
        let clock = OpenClock::default();
        let before = clock.now();
        let opened_at = clock.advance();
        assert!(opened_at > before && opened_at <= clock.now());
    }
}
