//! What INIT has promised the kernel, which every later daemon has to keep: the kernel is not asked again.

use transom_wire::{
    Opcode,
    header::InHeader,
    ops::init::{InitFlags, InitIn, InitOut},
};
use zerocopy::{FromZeros as _, IntoBytes as _};

use super::super::init;

/// The first daemon's answer, as the kernel got it.
#[derive(Debug, Clone)]
pub(crate) struct Promise {
    max_readahead: u32,
    minor: u32,
    flags: InitFlags,
    max_write: u32,
    max_pages: u16,
    /// The number of the shared directory's inode, if the daemon tells it.
    root: Option<u64>,
}

/// Why a daemon cannot take the place of the one before.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It does not do what the kernel counts on.
    #[error("the new daemon does not offer {0:?}, which the kernel counts on since the first one did")]
    Flags(InitFlags),
    /// It takes less at once.
    #[error("the new daemon takes {what} of {has}, and the kernel was promised {promised}")]
    Less {
        /// What of INIT.
        what: &'static str,
        /// By the new daemon.
        has: u32,
        /// By the first one.
        promised: u32,
    },
    /// It shares another directory.
    #[error("the new daemon shares another directory: its inode is {has}, and was {was}")]
    Root {
        /// Of the new one.
        has: u64,
        /// Of the first one.
        was: u64,
    },
}

impl Promise {
    /// `answer` is what the kernel gets behind the header, `root` the number of the shared directory's inode.
    pub(crate) fn new(answer: &[u8], root: Option<u64>) -> Self {
        let (out, flags) = read(answer);
        Self {
            max_readahead: out.max_readahead.get(),
            minor: out.minor.get(),
            flags,
            max_write: out.max_write.get(),
            max_pages: out.max_pages.get(),
            root,
        }
    }

    /// INIT for another daemon, which is offered what was promised and no more; and what it is offered.
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

    /// Whether a daemon that answers so can take the place.
    pub(super) fn check(&self, answer: &[u8]) -> Result<(), Unfit> {
        let (out, flags) = read(answer);
        let lacks = self.flags - flags;
        if !lacks.is_empty() {
            return Err(Unfit::Flags(lacks));
        }
        let at_least = |what, has: u32, promised: u32| {
            if has < promised { Err(Unfit::Less { what, has, promised }) } else { Ok(()) }
        };
        at_least("a minor version", out.minor.get(), self.minor)?;
        at_least("writes", out.max_write.get(), self.max_write)?;
        at_least("pages", out.max_pages.get().into(), self.max_pages.into())
    }

    /// Whether it shares the same directory, whose inode's number it tells.
    pub(super) fn check_root(&self, has: Option<u64>) -> Result<(), Unfit> {
        match (self.root, has) {
            (Some(was), Some(has)) if was != has => Err(Unfit::Root { has, was }),
            _ => Ok(()),
        }
    }
}

fn read(answer: &[u8]) -> (InitOut, InitFlags) {
    let out = init::padded(answer);
    (out, init::taken(&out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(flags: InitFlags, max_write: u32) -> Vec<u8> {
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
    fn another_daemon_is_offered_what_the_first_one_took_and_no_more() {
        let promise = Promise::new(&answer(FLAGS, 1 << 20), None);
        let (message, offered) = promise.request(2);
        assert_eq!((offered, init::offered(&message[size_of::<InHeader>()..])), (FLAGS, FLAGS));
        assert_eq!(promise.check(&answer(FLAGS, 1 << 20)), Ok(()));
    }

    #[test]
    fn a_daemon_that_offers_less_is_refused_with_what_it_lacks() {
        let promise = Promise::new(&answer(FLAGS, 1 << 20), None);
        let lacks = promise.check(&answer(FLAGS - InitFlags::WRITEBACK_CACHE, 1 << 20));
        assert_eq!(lacks, Err(Unfit::Flags(InitFlags::WRITEBACK_CACHE)));
        let less = promise.check(&answer(FLAGS, 4096)).unwrap_err();
        assert_eq!(less.to_string(), "the new daemon takes writes of 4096, and the kernel was promised 1048576");
        let short = promise.check(&answer(FLAGS, 1 << 20)[..24]);
        assert_eq!(short, Err(Unfit::Flags(InitFlags::ALLOW_IDMAP)));
    }

    #[test]
    fn another_directory_is_none_that_the_kernel_knows_files_of() {
        let promise = Promise::new(&answer(FLAGS, 4096), Some(2));
        assert!(promise.check_root(Some(2)).is_ok() && promise.check_root(None).is_ok());
        assert_eq!(promise.check_root(Some(3)), Err(Unfit::Root { has: 3, was: 2 }));
    }
}
