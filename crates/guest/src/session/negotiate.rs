//! INIT: what the driver offers, and how it validates the reply.
//!
//! A number out of range is clamped, as in Linux; a reply with which no session is possible is a [`SessionError`].
//! Source: FUSE 7.45; for the limits, `process_init_reply` of Linux.

use thiserror::Error;
use transom_wire::{
    NodeId, Unique,
    operation::{Init, Operation},
    ops::init::{InitFlags, InitIn, InitOut, KERNEL_MINOR_VERSION, KERNEL_VERSION},
};
use zerocopy::{FromZeros, IntoBytes};

use super::{
    head::{Plain, complete_header},
    reply::{self, Failure, HEADER_LEN, Room},
    request::Caller,
};
use crate::{
    Errno,
    channel::{Channel, ChannelError, Message, Sink, Source},
};

/// The oldest minor version supported: older messages have other lengths, and no virtio-fs device is older.
pub const MINOR_VERSION_MIN: u32 = 27;

/// The unit of [`Negotiated::max_pages`], and the minimum length that a request has to carry, in bytes. It does not
/// depend on the guest's pages.
pub const PAGE_LEN: usize = 4096;

/// Pages per request if the server does not know MAX_PAGES.
const PAGES_DEFAULT: usize = 32;

/// log2 of the largest alignment of mappings: the window is used in ranges of 2 MiB.
const MAP_ALIGNMENT_MAX: u16 = 21;

/// Length of the part of the reply that every server since minor version 23 sends.
const INIT_OUT_LEN_MIN: usize = 24;

/// The number of INIT, the first request of a session.
pub(super) const INIT_UNIQUE: Unique = Unique(2);

/// What a session asks the server for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionConfig {
    offered: InitFlags,
    /// What [`Self::without`] has ruled out.
    refused: InitFlags,
    /// In bytes.
    pub max_readahead: u32,
}

impl SessionConfig {
    /// Flags that the library can use for every caller.
    const ALWAYS: InitFlags = InitFlags::ASYNC_READ
        .union(InitFlags::POSIX_LOCKS)
        .union(InitFlags::ATOMIC_O_TRUNC)
        .union(InitFlags::BIG_WRITES)
        .union(InitFlags::DONT_MASK)
        .union(InitFlags::FLOCK_LOCKS)
        .union(InitFlags::HAS_IOCTL_DIR)
        .union(InitFlags::AUTO_INVAL_DATA)
        .union(InitFlags::DO_READDIRPLUS)
        .union(InitFlags::READDIRPLUS_AUTO)
        .union(InitFlags::ASYNC_DIO)
        .union(InitFlags::NO_OPEN_SUPPORT)
        .union(InitFlags::PARALLEL_DIROPS)
        .union(InitFlags::POSIX_ACL)
        .union(InitFlags::MAX_PAGES)
        .union(InitFlags::CACHE_SYMLINKS)
        .union(InitFlags::NO_OPENDIR_SUPPORT)
        .union(InitFlags::EXPLICIT_INVAL_DATA)
        .union(InitFlags::SUBMOUNTS)
        .union(InitFlags::SETXATTR_EXT)
        .union(InitFlags::INIT_EXT)
        .union(InitFlags::CREATE_SUPP_GROUP);

    /// Flags that change which side does what, so they are only requested explicitly.
    const ON_REQUEST: InitFlags = InitFlags::WRITEBACK_CACHE
        .union(InitFlags::HANDLE_KILLPRIV)
        .union(InitFlags::HANDLE_KILLPRIV_V2)
        .union(InitFlags::MAP_ALIGNMENT)
        .union(InitFlags::HAS_INODE_DAX)
        .union(InitFlags::OWN_CHANGES);

    /// Also asks for `flags`: WRITEBACK_CACHE, HANDLE_KILLPRIV, HANDLE_KILLPRIV_V2, MAP_ALIGNMENT, HAS_INODE_DAX or
    /// OWN_CHANGES.
    /// Flags that the library does not know are left out.
    #[must_use]
    pub fn with(self, flags: InitFlags) -> Self {
        let known = Self::ALWAYS.union(Self::ON_REQUEST);
        let offered = self.offered.union(flags.intersection(known));
        Self { offered, refused: self.refused.difference(flags), ..self }
    }

    /// Does not ask for `flags`.
    #[must_use]
    pub fn without(self, flags: InitFlags) -> Self {
        Self { offered: self.offered.difference(flags), refused: self.refused.union(flags), ..self }
    }

    /// Does the same as [`Self::with`], for those of `flags` that [`Self::without`] has not ruled out.
    #[must_use]
    pub fn unless_refused(self, flags: InitFlags) -> Self {
        self.with(flags.difference(self.refused))
    }
}

impl Default for SessionConfig {
    /// Asks for what the library can use, except flags that are only requested explicitly.
    fn default() -> Self {
        Self { offered: Self::ALWAYS, refused: InitFlags::empty(), max_readahead: 1 << 20 }
    }
}

/// The result of INIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    /// The minor version that both sides know, at least [`MINOR_VERSION_MIN`].
    pub minor: u32,
    /// The features that both sides know.
    pub flags: InitFlags,
    /// Maximum length of one read, in bytes: what `max_pages` and the channel allow, at least [`PAGE_LEN`].
    pub data_len_max: usize,
    /// Maximum length of one WRITE, in bytes: at most `data_len_max`, at least [`PAGE_LEN`].
    pub max_write: usize,
    /// Pages per request, as the server says.
    pub max_pages: usize,
    /// Maximum read-ahead, in bytes.
    pub max_readahead: u32,
    /// Maximum number of requests in flight that nobody waits for, at least 1.
    pub max_background: u16,
    /// log2 of the alignment of mappings, if MAP_ALIGNMENT is on.
    pub map_alignment: Option<u8>,
    /// Granularity of times, 1 to 1,000,000,000 nanoseconds.
    pub time_gran: u32,
}

/// Why a session could not begin.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SessionError {
    /// INIT did not reach the server, or its reply did not come back.
    #[error("INIT: {0}")]
    Channel(#[from] ChannelError),
    /// The server refused INIT.
    #[error("the server refuses INIT: {0}")]
    Refused(Errno),
    /// The reply is not a possible reply to INIT.
    #[error("the reply to INIT is impossible: {written_bytes} bytes written")]
    Impossible {
        /// Number of bytes that the device reports as written.
        written_bytes: usize,
    },
    /// The server speaks another major version.
    #[error("the server speaks FUSE {major}, not {KERNEL_VERSION}")]
    Major {
        /// The server's major version.
        major: u32,
    },
    /// The server is older than virtio-fs.
    #[error(
        "the server speaks FUSE {KERNEL_VERSION}.{minor}, which is older than {KERNEL_VERSION}.{MINOR_VERSION_MIN}"
    )]
    Minor {
        /// The server's minor version.
        minor: u32,
    },
    /// Mappings would need an alignment larger than the ranges of the window.
    #[error("the server aligns mappings to 2^{log2} bytes, the limit is 2^{MAP_ALIGNMENT_MAX}")]
    MapAlignment {
        /// log2 of the server's alignment.
        log2: u16,
    },
    /// The channel cannot carry a page of data.
    #[error("the channel carries {data_len_max} bytes of data, a session needs {PAGE_LEN}")]
    Narrow {
        /// Maximum length of the channel's data, in bytes.
        data_len_max: usize,
    },
}

/// Sends INIT and validates the reply.
pub(super) fn negotiate(channel: &dyn Channel, config: &SessionConfig) -> Result<Negotiated, SessionError> {
    let channel_len_max = channel.data_len_max();
    if channel_len_max < PAGE_LEN {
        return Err(SessionError::Narrow { data_len_max: channel_len_max });
    }
    settle(&send(channel, config)?, config, channel_len_max)
}

fn send(channel: &dyn Channel, config: &SessionConfig) -> Result<InitOut, SessionError> {
    let mut arg = InitIn::new_zeroed();
    arg.major = KERNEL_VERSION.into();
    arg.minor = KERNEL_MINOR_VERSION.into();
    arg.max_readahead = config.max_readahead.into();
    arg.flags = (config.offered.bits() as u32).into();
    arg.flags2 = ((config.offered.bits() >> 32) as u32).into();
    if config.offered.contains(InitFlags::OWN_CHANGES) {
        arg.set_magic();
    }
    let mut head = Plain::<Init>::new(NodeId(0), &Caller::default(), &arg);
    complete_header(head.as_mut_bytes(), 0, INIT_UNIQUE);

    let mut room = Room::<<Init as Operation>::Reply>::new();
    let room_len = HEADER_LEN + size_of::<InitOut>();
    let message = Message {
        head: head.as_mut_bytes(),
        data: Source::Empty,
        reply_head: room.as_mut_bytes(),
        reply_data: Sink::Empty,
    };
    let written_bytes = channel.call(0, message)?;
    match reply::check(room.as_bytes(), written_bytes, room_len, INIT_UNIQUE) {
        // Fields that an older server does not send are zero.
        Ok(INIT_OUT_LEN_MIN..) => Ok(room.body),
        Ok(_) | Err(Failure::Impossible) => Err(SessionError::Impossible { written_bytes }),
        Err(Failure::Errno(errno)) => Err(SessionError::Refused(errno)),
    }
}

fn settle(out: &InitOut, config: &SessionConfig, channel_len_max: usize) -> Result<Negotiated, SessionError> {
    if out.major.get() != KERNEL_VERSION {
        return Err(SessionError::Major { major: out.major.get() });
    }
    let minor = out.minor.get().min(KERNEL_MINOR_VERSION);
    if minor < MINOR_VERSION_MIN {
        return Err(SessionError::Minor { minor });
    }
    let flags = taken_flags(out, config.offered);
    let map_alignment = match flags.contains(InitFlags::MAP_ALIGNMENT).then(|| out.map_alignment.get()) {
        Some(log2) if log2 > MAP_ALIGNMENT_MAX => return Err(SessionError::MapAlignment { log2 }),
        Some(log2) => Some(log2 as u8),
        None => None,
    };
    let max_pages = match flags.contains(InitFlags::MAX_PAGES) {
        true => usize::from(out.max_pages.get()).max(1),
        false => PAGES_DEFAULT,
    };
    let data_len_max = (max_pages * PAGE_LEN).min(channel_len_max);
    let max_write = match flags.contains(InitFlags::BIG_WRITES) {
        true => (out.max_write.get() as usize).clamp(PAGE_LEN, data_len_max),
        false => PAGE_LEN,
    };
    let time_gran = match out.time_gran.get() {
        known @ 1..=1_000_000_000 => known,
        _ => 1,
    };
    Ok(Negotiated {
        minor,
        flags,
        data_len_max,
        max_write,
        max_pages,
        max_readahead: out.max_readahead.get().min(config.max_readahead),
        max_background: out.max_background.get().max(1),
        map_alignment,
        time_gran,
    })
}

/// Returns the flags that both sides know, without those that another flag overrides.
fn taken_flags(out: &InitOut, offered: InitFlags) -> InitFlags {
    let mut answered = u64::from(out.flags.get());
    if answered & InitFlags::INIT_EXT.bits() != 0 {
        answered |= u64::from(out.flags2.get()) << 32;
    }
    let mut flags = InitFlags::from_bits_truncate(answered) & offered;
    if !out.has_magic() {
        // Whatever the flag means to this server, it is something else.
        flags.remove(InitFlags::OWN_CHANGES);
    }
    if flags.contains(InitFlags::AUTO_INVAL_DATA) {
        flags.remove(InitFlags::EXPLICIT_INVAL_DATA);
    }
    if !flags.contains(InitFlags::DO_READDIRPLUS) {
        flags.remove(InitFlags::READDIRPLUS_AUTO);
    }
    flags
}
