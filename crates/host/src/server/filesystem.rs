//! The interface of a file system: [`Serve`] for each operation, and the beginning and end of sessions.

use std::{os::fd::OwnedFd, time::Instant};

use transom_wire::{Handle, NodeId, Unique, all_operations, operation, ops::init::InitFlags};

use super::{AgentCall, AgentReply, Changing, Context, Noted, Serve};
use crate::{Errno, migration, sysfd::LeftDescriptors};

/// The guest's offer in INIT.
#[derive(Debug, Clone, Copy)]
pub struct InitOffer {
    /// The minor version of the session.
    pub minor: u32,
    /// The features that the guest supports.
    pub flags: InitFlags,
    /// In bytes.
    pub max_readahead: u32,
}

/// The file system's reply to INIT.
#[derive(Debug, Clone, Copy)]
pub struct InitAnswer {
    /// The requested features; those that the guest did not offer are dropped.
    pub flags: InitFlags,
    /// In bytes.
    pub max_readahead: u32,
    /// Maximum number of background requests in flight.
    pub max_background: u16,
    /// Number of background requests above which the guest throttles.
    pub congestion_threshold: u16,
    /// Maximum bytes of data in one WRITE.
    pub max_write: u32,
    /// Granularity of times, in nanoseconds.
    pub time_gran: u32,
    /// Maximum pages of data in one request.
    pub max_pages: u16,
    /// log2 of the alignment of mappings; 0 without a window.
    pub map_alignment: u16,
}

/// The cause of a session's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// DESTROY: the driver has finished.
    Destroy,
    /// INIT: another driver begins, and the fate of the one before is unknown.
    Init,
    /// The transport: the device was reset, or is gone.
    Reset,
}

macro_rules! file_system {
    ([] session $($session:ident)*; requests $($request:ident)*) => {
        /// A file system that a [`Server`](super::Server) serves.
        ///
        /// It implements [`Serve`] for every operation of the table; [`unserved`](crate::unserved) does so for
        /// operations that return ENOSYS. Methods are called from many threads at once.
        pub trait FileSystem: Send + Sync $(+ Serve<operation::$request>)* {
            /// Begins a session. Nothing of an earlier one is left.
            ///
            /// # Errors
            ///
            /// The errno of the reply to INIT.
            fn init(&self, offer: &InitOffer) -> Result<InitAnswer, Errno>;

            /// Returns the state of the session, with which [`FileSystem::load`] of another file system goes on. No
            /// request is in progress but those of `waiting`, which wait for a lock. The session goes on here if it
            /// does not there.
            ///
            /// # Errors
            ///
            /// If something of the session cannot be carried over.
            fn save(&self, waiting: Vec<migration::WaitingRequest>) -> Result<Vec<u8>, migration::Error> {
                let _ = waiting;
                Err(migration::Error::Refused("this file system cannot be migrated"))
            }

            /// Lets go of what the destination is about to take. Called once it has the whole state but its end.
            fn let_go(&self) {}

            /// Returns whether something was let go that [`FileSystem::take_back`], which is called only then, has not
            /// taken back. It is asked at each wake-up and for each request, and must be cheap.
            fn has_let_go(&self) -> bool {
                false
            }

            /// Tries to take back what [`FileSystem::let_go`] has let go of, without waiting. Returns whether that is
            /// done; requests are served again only then. What others have is tried until `until`, and is lost then.
            fn take_back(&self, until: Instant) -> bool {
                let _ = until;
                true
            }

            /// Goes on with the session that `state` describes, or returns `None` if there is no session in
            /// it. Nothing of an earlier session is left. After an error, [`FileSystem::destroy`] is called.
            ///
            /// # Errors
            ///
            /// If the session cannot go on here.
            fn load(&self, state: &[u8]) -> Result<Option<migration::Loaded>, migration::Error> {
                let _ = state;
                Err(migration::Error::Refused("this file system cannot be migrated"))
            }

            /// Returns the session for another process of this host: as [`FileSystem::save`], with descriptors.
            ///
            /// # Errors
            ///
            /// If something of the session cannot be handed over.
            fn hand_over(&self) -> Result<migration::HandOver, migration::Error> {
                Err(migration::Error::Refused("this file system cannot be handed over"))
            }

            /// Goes on with a session that another process of this host has handed over: as [`FileSystem::load`]. After
            /// an error, this process must end without another call: it shares locks with the other one, which goes
            /// on.
            ///
            /// # Errors
            ///
            /// If the session cannot go on here.
            fn take_over(
                &self,
                state: &[u8],
                descriptors: Vec<OwnedFd>,
            ) -> Result<Option<InitFlags>, migration::Error> {
                let _ = (state, descriptors);
                Err(migration::Error::Refused("this file system cannot be handed over"))
            }

            /// Returns whether the session is journaled, so that another process can go on with it after this one has
            /// died. The next two methods are called only then.
            fn is_journaled(&self) -> bool {
                false
            }

            /// Records what a request is about to end.
            ///
            /// # Errors
            ///
            /// EIO for a request of which nobody knows whether the process before has done it.
            fn note_before(&self, request: &Noted<'_>) -> Result<(), Errno> {
                let _ = request;
                Ok(())
            }

            /// Records what a request has done, before it is answered: the reply's inode, by the driver's number, and
            /// its open file.
            fn note_after(&self, request: &Noted<'_>, nodeid: Option<NodeId>, handle: Option<Handle>) {
                let _ = (request, nodeid, handle);
            }

            /// Records that a session begins with these flags, or that it ends.
            fn note_session(&self, flags: Option<InitFlags>) {
                let _ = flags;
            }

            /// Goes on with the session of a process that has died, and whose descriptors are `left`, and takes
            /// those that it needs. Returns the session's flags, or `None` without a session.
            ///
            /// # Errors
            ///
            /// If that session cannot go on here.
            fn recover(&self, left: &mut LeftDescriptors) -> Result<Option<InitFlags>, migration::Error> {
                let _ = left;
                Err(migration::Error::Refused("this file system keeps no journal"))
            }

            /// Returns the file system's own number of an inode that the driver names. They differ if the driver has
            /// the number from another daemon.
            fn own_nodeid(&self, nodeid: NodeId) -> NodeId {
                nodeid
            }

            /// Returns the driver's number of an inode: the inverse of [`FileSystem::own_nodeid`].
            fn drivers_nodeid(&self, nodeid: NodeId) -> NodeId {
                nodeid
            }

            /// Ends the session: all inodes, handles, locks and mappings are released. No request is in progress.
            fn destroy(&self, end: End);

            /// Serves a request of the agent that replays changes of the host in the guest.
            ///
            /// # Errors
            ///
            /// EPERM for a change that is not announced.
            fn serve_agent(&self, ctx: &Context<'_>, call: AgentCall<'_>) -> Result<AgentReply, Errno> {
                let _ = (ctx, call);
                Ok(AgentReply::Usual)
            }

            /// Calls `serve`, which serves a request that may change something, and returns its result. For file
            /// systems that have to know what changes, and to tell somebody before the guest gets the reply.
            fn changing<T>(
                &self,
                request: &Changing<'_>,
                serve: impl FnOnce() -> Result<T, Errno>,
            ) -> Result<T, Errno> {
                let _ = request;
                serve()
            }

            /// Wakes the request `unique` if it waits for a lock; ignores an unknown request.
            fn interrupt(&self, unique: Unique) {
                let _ = unique;
            }

            /// Discards an interrupt of `unique` that found no request waiting. That request is about to be served
            /// again.
            fn forget_interrupt(&self, unique: Unique) {
                let _ = unique;
            }

            /// Wakes every request that waits for a lock or for the front end, because the session or the transport is
            /// about to end. Called repeatedly until these have ended.
            fn interrupt_all(&self) {}
        }
    };
}
all_operations!(file_system []);

/// Implements [`Serve`](crate::server::Serve) for a type and each operation of the table that is not listed, which
/// then returns ENOSYS: `unserved!(Type, except Lookup Getattr)`.
///
/// For file systems in tests. A production file system lists the operations that it does not serve, so that a new
/// operation is not forgotten.
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
