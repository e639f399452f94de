//! The session that INIT begins and DESTROY, a new INIT or a reset ends.

use std::sync::atomic::{AtomicBool, Ordering};

use transom_wire::{
    Opcode,
    ops::init::{INIT_IN_COMPAT_LEN, InitFlags, InitIn, InitOut, KERNEL_MINOR_VERSION, KERNEL_VERSION},
};
use zerocopy::{FromZeros, IntoBytes};

use super::{End, FileSystem, InitOffer};
use crate::Errno;

/// The oldest minor version whose messages are served: Linux 4.20, the first with virtio-fs is 5.4 (31).
const MINOR_VERSION_MIN: u32 = 27;

/// Whether a session is under way.
#[derive(Default)]
pub(super) struct Session {
    is_begun: AtomicBool,
    has_setxattr_ext: AtomicBool,
}

impl Session {
    /// Only INIT begins; before it, what the driver sends is refused.
    pub(super) fn admit(&self, opcode: Opcode) -> Result<(), Errno> {
        if opcode == Opcode::Init || self.is_begun.load(Ordering::Acquire) { Ok(()) } else { Err(Errno::NOTCONN) }
    }

    /// Whether SETXATTR has its longer arguments.
    pub(super) fn has_setxattr_ext(&self) -> bool {
        self.has_setxattr_ext.load(Ordering::Acquire)
    }

    /// Ends the session; true if there was one.
    pub(super) fn end(&self) -> bool {
        self.is_begun.swap(false, Ordering::AcqRel)
    }

    /// Answers INIT: the older minor version, and of the flags those that both sides know.
    ///
    /// A newer major version is answered with ours, and the driver asks again. Errors: EPROTO for an older one.
    pub(super) fn begin(&self, fs: &impl FileSystem, arguments: &[u8]) -> Result<InitOut, Errno> {
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
        // Also where no session is on: a request that DESTROY overtook on another queue may have left something behind.
        self.end();
        fs.destroy(End::Init);
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
        self.has_setxattr_ext.store(flags.contains(InitFlags::SETXATTR_EXT), Ordering::Release);
        self.is_begun.store(true, Ordering::Release);
        Ok(out)
    }
}
