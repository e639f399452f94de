//! [`InitAgreement`]: what INIT has agreed on with the kernel. There is only one INIT, so every later daemon has to
//! offer the same.

use transom_wire::{
    Opcode,
    header::InHeader,
    ops::init::{InitFlags, InitIn, InitOut},
};
use zerocopy::{FromZeros as _, IntoBytes as _};

use crate::init;

/// The first daemon's reply to INIT, as the kernel got it.
#[derive(Debug, Clone)]
pub(super) struct InitAgreement {
    max_readahead: u32,
    minor: u32,
    flags: InitFlags,
    max_write: u32,
    max_pages: u16,
    /// The inode number of the shared directory, if the daemon reported it.
    root: Option<u64>,
}

/// Why a daemon cannot replace the previous one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IncompatibleDaemon {
    /// It lacks features that the kernel uses.
    #[error("the new daemon does not support {0:?}, which the kernel uses because the first one did")]
    Flags(InitFlags),
    /// It has a lower limit.
    #[error("the new daemon has {what} {has}, but the kernel was told {agreed}")]
    Lower {
        /// The field of INIT.
        what: &'static str,
        /// The new daemon's value.
        has: u32,
        /// The first daemon's value.
        agreed: u32,
    },
    /// It shares another directory.
    #[error("the new daemon shares a different directory: its inode number is {has}, but was {was}")]
    Root {
        /// The inode number of the new daemon's directory.
        has: u64,
        /// The inode number of the first daemon's directory.
        was: u64,
    },
}

impl InitAgreement {
    /// Creates an agreement from the body of the reply that the kernel gets, and the inode number of the shared
    /// directory.
    pub(super) fn new(reply: &[u8], root: Option<u64>) -> Self {
        let (out, flags) = read(reply);
        Self {
            max_readahead: out.max_readahead.get(),
            minor: out.minor.get(),
            flags,
            max_write: out.max_write.get(),
            max_pages: out.max_pages.get(),
            root,
        }
    }

    /// Returns an INIT for another daemon, which offers exactly what was agreed on, and those features.
    pub(super) fn request(&self, unique: u64) -> (Vec<u8>, InitFlags) {
        let args = InitIn {
            major: 7.into(),
            minor: self.minor.into(),
            max_readahead: self.max_readahead.into(),
            flags: (self.flags.bits() as u32).into(),
            flags2: ((self.flags.bits() >> 32) as u32).into(),
            unused: [0.into(); 11],
        };
        let len = size_of::<InHeader>() + size_of::<InitIn>();
        let header = InHeader {
            len: (len as u32).into(),
            opcode: (Opcode::Init as u32).into(),
            unique: unique.into(),
            ..InHeader::new_zeroed()
        };
        ([header.as_bytes(), args.as_bytes()].concat(), self.flags)
    }

    /// Checks that a daemon with this reply to INIT can replace the first one.
    pub(super) fn check(&self, reply: &[u8]) -> Result<(), IncompatibleDaemon> {
        let (out, flags) = read(reply);
        let lacks = self.flags - flags;
        if !lacks.is_empty() {
            return Err(IncompatibleDaemon::Flags(lacks));
        }
        let at_least = |what, has: u32, agreed: u32| {
            if has < agreed { Err(IncompatibleDaemon::Lower { what, has, agreed }) } else { Ok(()) }
        };
        at_least("the minor version", out.minor.get(), self.minor)?;
        at_least("max_write", out.max_write.get(), self.max_write)?;
        at_least("max_pages", out.max_pages.get().into(), self.max_pages.into())
    }

    /// Checks that the daemon shares the same directory, from its inode number if that is known.
    pub(super) fn check_root(&self, has: Option<u64>) -> Result<(), IncompatibleDaemon> {
        match (self.root, has) {
            (Some(was), Some(has)) if was != has => Err(IncompatibleDaemon::Root { has, was }),
            _ => Ok(()),
        }
    }
}

fn read(reply: &[u8]) -> (InitOut, InitFlags) {
    let out = init::padded(reply);
    (out, init::accepted(&out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(flags: InitFlags, max_write: u32) -> Vec<u8> {
        let bits = flags.bits();
        let out = InitOut {
            major: 7.into(),
            minor: 40.into(),
            flags: (bits as u32).into(),
            flags2: ((bits >> 32) as u32).into(),
            max_write: max_write.into(),
            max_pages: 256.into(),
            ..InitOut::default()
        };
        out.as_bytes().to_vec()
    }

    const FLAGS: InitFlags = InitFlags::WRITEBACK_CACHE.union(InitFlags::INIT_EXT).union(InitFlags::ALLOW_IDMAP);

    #[test]
    fn another_daemon_is_offered_exactly_what_the_first_one_accepted() {
        let agreement = InitAgreement::new(&reply(FLAGS, 1 << 20), None);
        let (message, offered) = agreement.request(2);
        assert_eq!((offered, init::offered(&message[size_of::<InHeader>()..])), (FLAGS, FLAGS));
        assert_eq!(agreement.check(&reply(FLAGS, 1 << 20)), Ok(()));
    }

    #[test]
    fn a_daemon_that_offers_less_is_refused_with_what_it_lacks() {
        let agreement = InitAgreement::new(&reply(FLAGS, 1 << 20), None);
        let lacks = agreement.check(&reply(FLAGS - InitFlags::WRITEBACK_CACHE, 1 << 20));
        assert_eq!(lacks, Err(IncompatibleDaemon::Flags(InitFlags::WRITEBACK_CACHE)));
        let less = agreement.check(&reply(FLAGS, 4096)).unwrap_err();
        assert_eq!(less.to_string(), "the new daemon has max_write 4096, but the kernel was told 1048576");
        let short = agreement.check(&reply(FLAGS, 1 << 20)[..24]);
        assert_eq!(short, Err(IncompatibleDaemon::Flags(InitFlags::ALLOW_IDMAP)));
    }

    #[test]
    fn a_daemon_that_shares_another_directory_is_refused() {
        let agreement = InitAgreement::new(&reply(FLAGS, 4096), Some(2));
        assert!(agreement.check_root(Some(2)).is_ok() && agreement.check_root(None).is_ok());
        assert_eq!(agreement.check_root(Some(3)), Err(IncompatibleDaemon::Root { has: 3, was: 2 }));
    }
}
