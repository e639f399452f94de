//! INIT and DESTROY: negotiates what both sides support, and ends everything of an earlier session.

use std::{os::fd::OwnedFd, sync::atomic::Ordering::Relaxed, time::Instant};

use transom_wire::{Handle, NodeId, Unique, limits::DATA_LEN_MAX, ops::init::InitFlags};

use crate::{
    Errno, migration,
    passthrough::{Dax, Negotiation, Passthrough},
    server::{AgentCall, AgentReply, Changing, Context, End, FileSystem, InitAnswer, InitOffer, Noted},
    sysfd::LeftDescriptors,
    window,
};

/// Bytes of the smallest page that a guest may use: `max_pages` counts the guest's pages.
const PAGE_LEN_MIN: u32 = 4096;

/// Features used whenever the guest supports them.
const BASIC: InitFlags = InitFlags::ASYNC_READ
    .union(InitFlags::ATOMIC_O_TRUNC)
    .union(InitFlags::BIG_WRITES)
    .union(InitFlags::ASYNC_DIO)
    .union(InitFlags::HAS_IOCTL_DIR)
    .union(InitFlags::AUTO_INVAL_DATA)
    .union(InitFlags::PARALLEL_DIROPS)
    .union(InitFlags::MAX_PAGES)
    .union(InitFlags::SETXATTR_EXT)
    .union(InitFlags::INIT_EXT)
    .union(InitFlags::CREATE_SUPP_GROUP);

impl FileSystem for Passthrough {
    /// # Errors
    ///
    /// EPROTO if the guest lacks a feature that the configuration requires.
    fn init(&self, offer: &InitOffer) -> Result<InitAnswer, Errno> {
        self.demand(offer)?;
        if let Some(dax) = &self.dax {
            dax.begin_session();
        }
        if let Some(notifications) = &self.config.notifications {
            notifications.session_changed();
        }
        let flags = self.wanted() & offer.flags;
        self.session.store(flags.bits(), Relaxed);
        Ok(InitAnswer {
            flags,
            max_readahead: offer.max_readahead,
            // The guest has no reason to throttle: requests wait in its queue.
            max_background: u16::MAX,
            congestion_threshold: u16::MAX / 4 * 3,
            max_write: DATA_LEN_MAX,
            time_gran: 1,
            max_pages: (DATA_LEN_MAX / PAGE_LEN_MIN) as u16,
            map_alignment: if flags.contains(InitFlags::MAP_ALIGNMENT) { window::MAP_ALIGNMENT_LOG2 } else { 0 },
        })
    }

    fn save(&self, waiting: Vec<migration::WaitingRequest>) -> Result<Vec<u8>, migration::Error> {
        self.saved(waiting)
    }

    fn let_go(&self) {
        if let Some(locks) = self.locks.as_ref().filter(|_| self.config.migration.carries_locks) {
            locks.let_go();
        }
    }

    fn has_let_go(&self) -> bool {
        self.locks.as_ref().is_some_and(|locks| locks.has_let_go())
    }

    fn take_back(&self, until: Instant) -> bool {
        self.locks.as_ref().is_none_or(|locks| locks.take_back(until))
    }

    fn load(&self, state: &[u8]) -> Result<Option<migration::Loaded>, migration::Error> {
        self.loaded(state)
    }

    fn hand_over(&self) -> Result<migration::HandOver, migration::Error> {
        self.handed_over()
    }

    fn take_over(&self, state: &[u8], descriptors: Vec<OwnedFd>) -> Result<Option<InitFlags>, migration::Error> {
        self.taken_over(state, descriptors)
    }

    fn is_journaled(&self) -> bool {
        self.journal.is_some()
    }

    fn note_before(&self, request: &Noted<'_>) -> Result<(), Errno> {
        self.noted_before(request)
    }

    fn note_after(&self, request: &Noted<'_>, nodeid: Option<NodeId>, handle: Option<Handle>) {
        self.noted_after(request, nodeid, handle);
    }

    fn note_session(&self, flags: Option<InitFlags>) {
        self.noted_session(flags);
    }

    fn recover(&self, left: &mut LeftDescriptors) -> Result<Option<InitFlags>, migration::Error> {
        self.recovered(left)
    }

    fn own_nodeid(&self, nodeid: NodeId) -> NodeId {
        self.aliases.own(nodeid)
    }

    fn drivers_nodeid(&self, nodeid: NodeId) -> NodeId {
        self.aliases.guests(nodeid)
    }

    fn destroy(&self, end: End) {
        if let Some(dax) = &self.dax {
            dax.end_session(end);
        }
        if let Some(locks) = &self.locks {
            locks.release_all();
        }
        if let Some(replays) = &self.replays {
            replays.end_session();
        }
        if let Some(notifications) = &self.config.notifications {
            notifications.session_changed();
        }
        self.handles.clear();
        self.note_all_released();
        self.inodes.clear();
        self.aliases.clear();
        self.attempts.clear();
        self.end_quota_session();
        self.session.store(0, Relaxed);
    }

    fn serve_agent(&self, ctx: &Context<'_>, call: AgentCall<'_>) -> Result<AgentReply, Errno> {
        self.replayed(ctx, call)
    }

    fn changing<T>(&self, request: &Changing<'_>, serve: impl FnOnce() -> Result<T, Errno>) -> Result<T, Errno> {
        self.stamped(request, || self.metered(request, serve))
    }

    fn interrupt(&self, unique: Unique) {
        if let Some(locks) = &self.locks {
            locks.interrupt(unique);
        }
    }

    fn forget_interrupt(&self, unique: Unique) {
        if let Some(locks) = &self.locks {
            locks.forget_interrupt(unique);
        }
    }

    fn interrupt_all(&self) {
        if let Some(dax) = &self.dax {
            dax.window.interrupt();
        }
        if let Some(locks) = &self.locks {
            locks.interrupt_all();
        }
        if let Some(replays) = &self.replays {
            replays.interrupt();
        }
    }
}

impl Passthrough {
    /// Returns the features that the configuration asks for.
    pub(in crate::passthrough) fn wanted(&self) -> InitFlags {
        let config = &self.config;
        let is_acl_wanted = config.posix_acl != Negotiation::Never;
        let choices = [
            (config.writeback && !config.readonly, InitFlags::WRITEBACK_CACHE),
            (config.readdirplus, InitFlags::DO_READDIRPLUS | InitFlags::READDIRPLUS_AUTO),
            (config.announce_submounts, InitFlags::SUBMOUNTS),
            (config.killpriv_v2, InitFlags::HANDLE_KILLPRIV_V2),
            (config.allow_mmap, InitFlags::DIRECT_IO_ALLOW_MMAP),
            (config.posix_lock, InitFlags::POSIX_LOCKS),
            (config.flock, InitFlags::FLOCK_LOCKS),
            // With default ACLs, the guest cannot know whether the umask applies.
            (is_acl_wanted, InitFlags::POSIX_ACL | InitFlags::DONT_MASK),
            (config.security_label != Negotiation::Never, InitFlags::SECURITY_CTX),
            (self.dax.as_ref().is_some_and(Dax::is_open), InitFlags::MAP_ALIGNMENT | InitFlags::HAS_INODE_DAX),
            (self.group.is_some(), InitFlags::OWN_CHANGES),
            // A link target never changes. Without caching, the guest is still spared the page for it.
            (!config.cache.validity().is_zero(), InitFlags::CACHE_SYMLINKS),
        ];
        choices.into_iter().filter(|(is_wanted, _)| *is_wanted).fold(BASIC, |flags, (_, flag)| flags | flag)
    }

    fn demand(&self, offer: &InitOffer) -> Result<(), Errno> {
        let acl = InitFlags::POSIX_ACL | InitFlags::DONT_MASK | InitFlags::SETXATTR_EXT;
        let demands = [
            (self.config.posix_acl, acl, "POSIX access control lists"),
            (self.config.security_label, InitFlags::SECURITY_CTX, "security labels at creation"),
        ];
        for (negotiation, flags, what) in demands {
            if negotiation == Negotiation::Always && !offer.flags.contains(flags) {
                tracing::error!(missing = ?flags - offer.flags, "the guest's kernel lacks {what}, which are required");
                return Err(Errno::PROTO);
            }
        }
        Ok(())
    }
}
