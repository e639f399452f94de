//! The session that INIT begins and DESTROY, a new INIT or a reset ends.

use std::{
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
    End, FileSystem, InitOffer, Patience,
    in_progress::{Counted, InProgress},
};
use crate::Errno;

/// The oldest minor version whose messages are served: Linux 4.20, the first with virtio-fs is 5.4 (31).
const MINOR_VERSION_MIN: u32 = 27;

/// How often requests that wait are woken while the end of the session waits for them.
const WAKE_EVERY: Duration = Duration::from_millis(5);

/// No session: nothing but INIT is served.
const NONE: u8 = 0;
/// A session is under way.
const BEGUN: u8 = 1;
/// The session ends once no request of it is in progress; no further one begins.
const ENDING: u8 = 2;

/// Which requests are served now.
///
/// The end of a session waits for its requests that are in progress, so that none of them leaves a handle, a lock or a
/// lookup to nobody. INIT and DESTROY are not among them.
#[derive(Default)]
pub(super) struct Session {
    /// The end writes it and then reads `in_progress`, a request does the opposite. Both orders are sequentially
    /// consistent, so that one of the two sees the other. Protected by `change`; read without it.
    stage: AtomicU8,
    in_progress: InProgress,
    has_setxattr_ext: AtomicBool,
    /// Held while a session begins or ends.
    change: Mutex<()>,
    /// A request ended while the end of the session waited for it.
    request_ended: Condvar,
    /// Held between a look at `in_progress` and the wait for `request_ended`. Taken within `change`.
    waiting: Mutex<()>,
}

/// A request in progress, until it is dropped.
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
    /// Counts a request as in progress. Errors: ENOTCONN if no session is under way.
    pub(super) fn admit(&self) -> Result<Admission<'_>, Errno> {
        let admission = Admission { session: self, counted: self.in_progress.begin() };
        if self.stage.load(SeqCst) == BEGUN { Ok(admission) } else { Err(Errno::NOTCONN) }
    }

    /// Returns whether SETXATTR has its longer arguments.
    pub(super) fn has_setxattr_ext(&self) -> bool {
        self.has_setxattr_ext.load(Acquire)
    }

    /// Ends the session once its requests in progress have ended; wakes those that wait for a lock.
    ///
    /// # Errors
    ///
    /// ENOTCONN without a session; EAGAIN under `Try` where that has to be waited for. No further request is served
    /// then, and the call is to be repeated.
    pub(super) fn end(&self, fs: &impl FileSystem, end: End, patience: Patience) -> Result<(), Errno> {
        let _change = self.begin_change(patience)?;
        if self.stage.load(SeqCst) == NONE {
            return Err(Errno::NOTCONN);
        }
        self.finish(fs, end, patience)
    }

    /// Errors: EAGAIN if another thread is at it, under `Try`.
    fn begin_change(&self, patience: Patience) -> Result<MutexGuard<'_, ()>, Errno> {
        match (self.change.try_lock(), patience) {
            (Ok(guard), _) => Ok(guard),
            (Err(TryLockError::WouldBlock), Patience::Try) => Err(Errno::AGAIN),
            (Err(_), _) => Ok(lock(&self.change)),
        }
    }

    /// Ends what there is of a session. `change` is held.
    fn finish(&self, fs: &impl FileSystem, end: End, patience: Patience) -> Result<(), Errno> {
        self.stage.store(ENDING, SeqCst);
        let mut waiting = lock(&self.waiting);
        while !self.in_progress.is_zero() {
            if patience == Patience::Try {
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
        fs.destroy(end);
        self.stage.store(NONE, SeqCst);
        Ok(())
    }

    /// Answers INIT: the older minor version, and of the flags those that both sides know.
    ///
    /// A newer major version is answered with ours, and the driver asks again. Errors: EPROTO for an older one, EAGAIN
    /// as [`Session::end`].
    pub(super) fn begin(&self, fs: &impl FileSystem, arguments: &[u8], patience: Patience) -> Result<InitOut, Errno> {
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
        let _change = self.begin_change(patience)?;
        self.finish(fs, End::Init, patience)?;
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
        tracing::info!(minor, flags = format_args!("{flags:?}"), "session begun");
        self.has_setxattr_ext.store(flags.contains(InitFlags::SETXATTR_EXT), Release);
        self.stage.store(BEGUN, SeqCst);
        Ok(out)
    }
}

fn lock(mutex: &Mutex<()>) -> MutexGuard<'_, ()> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
