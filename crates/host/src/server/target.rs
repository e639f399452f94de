//! Where to run a request that would block a queue's worker.

use transom_wire::{Opcode, Unique, operation::Runs};

/// A place where a request may block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionTarget {
    /// The bounded pool: the duration depends on the host's disk.
    Pool,
    /// A thread of its own: the duration depends on another lock owner and has no limit. With the request's number, by
    /// which it is interrupted.
    OwnThread(Unique),
}

impl ExecutionTarget {
    /// Returns the target of an operation that always waits, for the disk or for the front end, and so is not tried
    /// first.
    pub(super) fn without_trying(opcode: Opcode) -> Option<Self> {
        match opcode.row().runs {
            Runs::Pool => Some(Self::Pool),
            Runs::Inline | Runs::TryThenPool | Runs::TryThenThread => None,
        }
    }

    /// Returns the target of an operation that the file system (or, for INIT and DESTROY, the session) may refuse with
    /// EAGAIN under [`BlockingMode::MustNotBlock`](super::BlockingMode::MustNotBlock).
    pub(super) fn after_trying(opcode: Opcode, unique: Unique) -> Option<Self> {
        match opcode.row().runs {
            Runs::TryThenPool => Some(Self::Pool),
            Runs::TryThenThread => Some(Self::OwnThread(unique)),
            Runs::Inline | Runs::Pool => None,
        }
    }
}
