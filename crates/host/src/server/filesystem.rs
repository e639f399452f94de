//! What the server asks of a file system: [`Serve`] for each operation, and the beginning and end of sessions.

use transom_wire::{Unique, all_operations, operation, ops::init::InitFlags};

use super::Serve;
use crate::Errno;

/// What the guest offers with INIT.
#[derive(Debug, Clone, Copy)]
pub struct InitOffer {
    /// The minor version of the session.
    pub minor: u32,
    /// The features that the guest knows.
    pub flags: InitFlags,
    /// In bytes.
    pub max_readahead: u32,
}

/// What the file system answers to INIT.
#[derive(Debug, Clone, Copy)]
pub struct InitAnswer {
    /// The features wanted; those that the guest did not offer are dropped.
    pub flags: InitFlags,
    /// In bytes.
    pub max_readahead: u32,
    /// Requests in flight that nobody waits for.
    pub max_background: u16,
    /// From how many of these on the guest holds back.
    pub congestion_threshold: u16,
    /// Bytes of data in one WRITE.
    pub max_write: u32,
    /// Granularity of times, in nanoseconds.
    pub time_gran: u32,
    /// Pages of data in one request.
    pub max_pages: u16,
    /// log2 of the alignment of mappings; 0 without a window.
    pub map_alignment: u16,
}

/// What ends a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// DESTROY: the driver is done.
    Destroy,
    /// INIT: another driver begins, and nothing is known of the one before.
    Init,
    /// The transport: the device was reset, or is gone.
    Reset,
}

macro_rules! file_system {
    ([] session $($session:ident)*; requests $($request:ident)*) => {
        /// A file system that a [`Server`](super::Server) serves.
        ///
        /// It implements [`Serve`] for every operation of the table; [`unserved`](crate::unserved) does that for those
        /// that it answers with ENOSYS. Methods are called from many threads at once.
        pub trait FileSystem: Send + Sync $(+ Serve<operation::$request>)* {
            /// Begins a session; nothing of an earlier one is left.
            ///
            /// # Errors
            /// The errno that answers INIT.
            fn init(&self, offer: &InitOffer) -> Result<InitAnswer, Errno>;

            /// Ends the session: all inodes, handles, locks and mappings are released. No request is in progress.
            fn destroy(&self, end: End);

            /// Wakes the request `unique` if it waits for a lock; a request that is not there is ignored.
            fn interrupt(&self, unique: Unique) {
                let _ = unique;
            }

            /// Wakes every request that waits for a lock or for the front end: the session or the transport is about to
            /// end. Called again while these are waited for.
            fn interrupt_all(&self) {}
        }
    };
}
all_operations!(file_system []);

/// Implements [`Serve`](crate::server::Serve) for a type and each operation of the table that is not listed, which then
/// answers ENOSYS: `unserved!(Type, except Lookup Getattr)`.
///
/// For file systems of tests. One that people use names what it does not serve, so that a new operation is not
/// forgotten.
#[macro_export]
macro_rules! unserved {
    ($type:ty, except $($served:ident)*) => {
        const _: () = {
            macro_rules! one {
                $(($served) => {};)*
                ($request:ident) => {
                    impl $crate::server::Serve<$crate::operation::$request> for $type {}
                };
            }
            $crate::each_request!(one);
        };
    };
}
