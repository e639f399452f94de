//! What an operation knows about its caller.

use transom_wire::{Unique, extension::Extensions};

/// Whether an operation may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockingMode {
    /// Operations marked in the table as `TryThen…` return EAGAIN rather than wait. Whatever they did until then, the
    /// repeated request does again without harm.
    MustNotBlock,
    /// The operation may block for as long as necessary.
    MayBlock,
}

/// The caller of an operation, from the request's header and extensions.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The request's identifier, which INTERRUPT refers to.
    pub unique: Unique,
    /// The caller's uid in the guest.
    pub uid: u32,
    /// The caller's gid in the guest.
    pub gid: u32,
    /// The caller's pid in the guest, 0 if unknown.
    pub pid: u32,
    /// Whether the operation may wait.
    pub blocking: BlockingMode,
    /// For operations that create: supplementary group and security context.
    pub extensions: Extensions<'a>,
}
