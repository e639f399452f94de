//! What an operation knows of its caller.

use transom_wire::{Unique, extension::Extensions};

/// Whether an operation may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Operations that the table says to try first answer EAGAIN, with nothing done, rather than wait.
    Try,
    /// The operation may take as long as it takes.
    MayBlock,
}

/// The caller of an operation, as the request's header and extensions tell.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The request's identifier, by which INTERRUPT would name it.
    pub unique: Unique,
    /// The caller's uid in the guest.
    pub uid: u32,
    /// The caller's gid in the guest.
    pub gid: u32,
    /// The caller's pid in the guest, 0 where unknown.
    pub pid: u32,
    /// Whether the operation may wait.
    pub patience: Patience,
    /// For operations that create: supplementary group and security context.
    pub extensions: Extensions<'a>,
}
