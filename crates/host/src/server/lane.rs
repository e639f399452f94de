//! Where a request runs that a queue's worker should not wait for.

use transom_wire::{Opcode, Unique, operation::Runs};

/// A place to wait in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// The bounded pool: the host's disk decides how long it takes.
    Pool,
    /// A thread of its own: another lock owner decides, and may take for ever. With the request's number, by which it
    /// is interrupted.
    Waiter(Unique),
}

impl Lane {
    /// The lane of operations that always wait, for the disk or for the front end, and so are not tried first.
    pub(super) fn without_trying(opcode: Opcode) -> Option<Self> {
        match opcode.row().runs {
            Runs::Pool => Some(Self::Pool),
            Runs::Inline | Runs::TryThenPool | Runs::TryThenThread => None,
        }
    }

    /// The lane of operations that a file system, or for INIT and DESTROY the session, may refuse with EAGAIN under
    /// [`Patience::Try`](super::Patience::Try).
    pub(super) fn after_trying(opcode: Opcode, unique: Unique) -> Option<Self> {
        match opcode.row().runs {
            Runs::TryThenPool => Some(Self::Pool),
            Runs::TryThenThread => Some(Self::Waiter(unique)),
            Runs::Inline | Runs::Pool => None,
        }
    }
}
