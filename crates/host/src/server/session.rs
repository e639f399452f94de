//! The session, which begins with INIT and ends with DESTROY, another INIT or a reset.

use std::{
    os::fd::OwnedFd,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{
            AtomicBool, AtomicU8,
            Ordering::{Acquire, Release, SeqCst},
        },
    },
    time::Duration,
};

use transom_wire::ops::init::{INIT_IN_COMPAT_LEN, InitFlags, InitIn, InitOut, KERNEL_MINOR_VERSION, KERNEL_VERSION};
use zerocopy::{FromZeros, IntoBytes};

use super::{
    BlockingMode, End, FileSystem, InitOffer,
    in_progress::{Counted, InProgress},
};
use crate::{Errno, migration, sysfd::LeftDescriptors};

/// The oldest minor version that is served, which is that of Linux 4.20. The first Linux with virtio-fs is 5.4, with
/// minor version 31.
const MINOR_VERSION_MIN: u32 = 27;

/// Interval at which waiting requests are woken while the end of the session waits for them.
const WAKE_EVERY: Duration = Duration::from_millis(5);

/// No session: only INIT is served.
const NONE: u8 = 0;
/// A session is in progress.
const BEGUN: u8 = 1;
/// The session ends once none of its requests is in progress; new ones are refused.
const ENDING: u8 = 2;

/// Decides which requests are served.
///
/// The end of a session waits for its requests in progress, so that none of them leaves behind a handle, a lock or a
/// lookup. INIT and DESTROY are not counted among them.
#[derive(Default)]
pub(super) struct Session {
    /// The end of a session writes it and then reads `in_progress`; a request does the opposite. Both are sequentially
    /// consistent, so at least one of the two sees the other. Protected by `change`; read without it.
    stage: AtomicU8,
    in_progress: InProgress,
    has_setxattr_ext: AtomicBool,
    has_own_changes: AtomicBool,
    /// Held while a session begins or ends.
    change: Mutex<()>,
    /// Signalled when a request ends while the end of the session waits.
    request_ended: Condvar,
    /// Held between reading `in_progress` and waiting for `request_ended`. Taken within `change`.
    waiting: Mutex<()>,
}

/// Counts a request as in progress until it is dropped.
#[must_use = "dropping it lets the session end"]
pub(super) struct Admission<'a> {
    session: &'a Session,
    counted: Counted<'a>,
}

impl Drop for Admission<'_> {
    fn drop(&mut self) {
        self.counted.end();
        if self.session.stage.load(SeqCst) == ENDING {
            drop(lock(&self.session.waiting));
            self.session.request_ended.notify_one();
        }
    }
}

impl Session {
    /// Counts a request as in progress. Errors: ENOTCONN if there is no session.
    pub(super) fn admit(&self) -> Result<Admission<'_>, Errno> {
        let admission = Admission { session: self, counted: self.in_progress.begin() };
        if self.stage.load(SeqCst) == BEGUN { Ok(admission) } else { Err(Errno::NOTCONN) }
    }

    /// Returns whether SETXATTR has its longer arguments.
    pub(super) fn has_setxattr_ext(&self) -> bool {
        self.has_setxattr_ext.load(Acquire)
    }

    /// Returns whether replies may end with a trailer of [`own_changes`](transom_wire::own_changes).
    pub(super) fn has_own_changes(&self) -> bool {
        self.has_own_changes.load(Acquire)
    }

    fn take_flags(&self, flags: InitFlags) {
        self.has_setxattr_ext.store(flags.contains(InitFlags::SETXATTR_EXT), Release);
        self.has_own_changes.store(flags.contains(InitFlags::OWN_CHANGES), Release);
    }

    /// Ends the session once its requests in progress have ended; wakes those that wait for a lock.
    ///
    /// # Errors
    ///
    /// ENOTCONN without a session; EAGAIN under `MustNotBlock` if requests are in progress. In the latter case
    /// further requests are refused, and the caller has to repeat the call.
    pub(super) fn end(&self, fs: &impl FileSystem, end: End, blocking: BlockingMode) -> Result<(), Errno> {
        let _change = self.begin_change(blocking)?;
        if self.stage.load(SeqCst) == NONE {
            return Err(Errno::NOTCONN);
        }
        self.finish(fs, end, blocking)
    }

    /// Returns the state of the session, or that of no session.
    pub(super) fn save(
        &self,
        fs: &impl FileSystem,
        waiting: Vec<migration::WaitingRequest>,
    ) -> Result<Vec<u8>, migration::Error> {
        let _change = lock(&self.change);
        match self.stage.load(SeqCst) {
            BEGUN => fs.save(waiting),
            _ => Ok(migration::encode(&migration::State::default())),
        }
    }

    /// Ends the session and goes on with the one in `state`. Returns the requests that are to be served again.
    pub(super) fn load(
        &self,
        fs: &impl FileSystem,
        state: &[u8],
    ) -> Result<Vec<migration::WaitingRequest>, migration::Error> {
        let _change = lock(&self.change);
        // Waits for requests in progress, so it never fails.
        let _ = self.finish(fs, End::Reset, BlockingMode::MayBlock);
        let Some(loaded) = fs.load(state).inspect_err(|_| fs.destroy(End::Reset))? else { return Ok(Vec::new()) };
        let flags = loaded.flags;
        self.take_flags(flags);
        tracing::info!(flags = format_args!("{flags:?}"), "session loaded");
        self.stage.store(BEGUN, SeqCst);
        Ok(loaded.waiting)
    }

    /// Returns the session for another process of this host, or no session.
    pub(super) fn hand_over(&self, fs: &impl FileSystem) -> Result<migration::HandOver, migration::Error> {
        let _change = lock(&self.change);
        match self.stage.load(SeqCst) {
            BEGUN => fs.hand_over(),
            _ => {
                let state = migration::encode(&migration::State::default());
                Ok(migration::HandOver { state, descriptors: Vec::new() })
            }
        }
    }

    /// Goes on with a session of another process of this host. There must not be a session here. After an error, this
    /// process must end: see [`FileSystem::take_over`].
    pub(super) fn take_over(
        &self,
        fs: &impl FileSystem,
        state: &[u8],
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), migration::Error> {
        let _change = lock(&self.change);
        if self.stage.load(SeqCst) != NONE {
            return Err(migration::Error::Refused("there is a session already"));
        }
        if let Some(flags) = fs.take_over(state, descriptors)? {
            self.take_flags(flags);
            self.stage.store(BEGUN, SeqCst);
        }
        Ok(())
    }

    /// Goes on with the session of a process that has died.
    pub(super) fn recover(&self, fs: &impl FileSystem, left: &mut LeftDescriptors) -> Result<(), migration::Error> {
        let _change = lock(&self.change);
        if let Some(flags) = fs.recover(left)? {
            self.take_flags(flags);
            self.stage.store(BEGUN, SeqCst);
        }
        Ok(())
    }

    /// Locks `change`. Errors: EAGAIN if another thread holds it, under `MustNotBlock`.
    fn begin_change(&self, blocking: BlockingMode) -> Result<MutexGuard<'_, ()>, Errno> {
        match (self.change.try_lock(), blocking) {
            (Ok(guard), _) => Ok(guard),
            (Err(TryLockError::WouldBlock), BlockingMode::MustNotBlock) => Err(Errno::AGAIN),
            (Err(_), _) => Ok(lock(&self.change)),
        }
    }

    /// Ends the session, if there is one. The caller holds `change`.
    fn finish(&self, fs: &impl FileSystem, end: End, blocking: BlockingMode) -> Result<(), Errno> {
        self.stage.store(ENDING, SeqCst);
        let mut waiting = lock(&self.waiting);
        while !self.in_progress.is_zero() {
            if blocking == BlockingMode::MustNotBlock {
                return Err(Errno::AGAIN);
            }
            drop(waiting);
            fs.interrupt_all();
            waiting = lock(&self.waiting);
            if !self.in_progress.is_zero() {
                let waited = self.request_ended.wait_timeout(waiting, WAKE_EVERY);
                (waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
            }
        }
        drop(waiting);
        fs.note_session(None);
        fs.destroy(end);
        self.stage.store(NONE, SeqCst);
        Ok(())
    }

    /// Replies to INIT with the older minor version and the flags that both sides know.
    ///
    /// Replies to a newer major version with ours, after which the driver sends INIT again.
    ///
    /// # Errors
    ///
    /// EPROTO for an older major version, EAGAIN as [`Session::end`].
    pub(super) fn begin(
        &self,
        fs: &impl FileSystem,
        arguments: &[u8],
        blocking: BlockingMode,
    ) -> Result<InitOut, Errno> {
        if arguments.len() < INIT_IN_COMPAT_LEN {
            return Err(Errno::INVAL);
        }
        let mut arg = InitIn::new_zeroed();
        let known_len = arguments.len().min(size_of::<InitIn>());
        arg.as_mut_bytes()[..known_len].copy_from_slice(&arguments[..known_len]);

        let mut out =
            InitOut { major: KERNEL_VERSION.into(), minor: KERNEL_MINOR_VERSION.into(), ..InitOut::default() };
        if arg.major.get() > KERNEL_VERSION {
            return Ok(out);
        }
        if arg.major.get() < KERNEL_VERSION || arg.minor.get() < MINOR_VERSION_MIN {
            tracing::error!(
                major = arg.major.get(),
                minor = arg.minor.get(),
                "the guest's FUSE version is older than {KERNEL_VERSION}.{MINOR_VERSION_MIN}"
            );
            return Err(Errno::PROTO);
        }
        let mut offered = InitFlags::from_bits_retain(u64::from(arg.flags.get()));
        if offered.contains(InitFlags::INIT_EXT) {
            offered |= InitFlags::from_bits_retain(u64::from(arg.flags2.get()) << 32);
        }
        if !arg.has_magic() {
            // Whatever the flag means to this guest, it is something else.
            offered -= InitFlags::OWN_CHANGES;
        }
        let _change = self.begin_change(blocking)?;
        self.finish(fs, End::Init, blocking)?;
        let minor = arg.minor.get().min(KERNEL_MINOR_VERSION);
        let answer = fs.init(&InitOffer { minor, flags: offered, max_readahead: arg.max_readahead.get() })?;
        let flags = answer.flags & offered;
        out.minor = minor.into();
        out.max_readahead = answer.max_readahead.into();
        out.flags = (flags.bits() as u32).into();
        out.flags2 = ((flags.bits() >> 32) as u32).into();
        out.max_background = answer.max_background.into();
        out.congestion_threshold = answer.congestion_threshold.into();
        out.max_write = answer.max_write.into();
        out.time_gran = answer.time_gran.into();
        out.max_pages = answer.max_pages.into();
        out.map_alignment = answer.map_alignment.into();
        if flags.contains(InitFlags::OWN_CHANGES) {
            out.set_magic();
        }
        tracing::info!(minor, flags = format_args!("{flags:?}"), "session begun");
        self.take_flags(flags);
        fs.note_session(Some(flags));
        self.stage.store(BEGUN, SeqCst);
        Ok(out)
    }
}

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
