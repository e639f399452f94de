//! Filters INIT: which features kernel and daemon may agree on.
//!
//! The daemon is offered what the kernel offers, without the features that need a kernel inside a virtual machine. The
//! kernel gets what the daemon accepted, without features that were not offered, and with the limits of the slots.

use transom_wire::ops::init::{INIT_IN_COMPAT_LEN, InitFlags, InitIn, InitOut};
use zerocopy::IntoBytes as _;

use super::slots::DATA_LEN_MAX;

/// Features on which the kernel and the daemon do not agree with each other. This kernel has no DAX window
/// (MAP_ALIGNMENT, HAS_INODE_DAX), the daemon has no descriptor of `/dev/fuse` (OVER_IO_URING, PASSTHROUGH), and
/// OWN_CHANGES means nothing to a kernel, or something else.
const NOT_FORWARDED: InitFlags = InitFlags::MAP_ALIGNMENT
    .union(InitFlags::HAS_INODE_DAX)
    .union(InitFlags::OVER_IO_URING)
    .union(InitFlags::PASSTHROUGH)
    .union(InitFlags::OWN_CHANGES);
/// Features that tell a daemon that it may be asked to map files. Only the mount and the daemon use them; the kernel
/// does not learn of them.
const MAPS: InitFlags = InitFlags::MAP_ALIGNMENT.union(InitFlags::HAS_INODE_DAX);
/// log2 of the coarsest alignment of mappings that works: ranges of the window have 2 MiB.
const ALIGNMENT_LOG2_MAX: u16 = 21;
/// The backing files may not be on a stacked file system. The kernel then allows one file system on top of this mount.
const STACK_DEPTH: u32 = 1;
/// Length of [`InitOut`] before minor version 23, which kernels still accept.
const OUT_COMPAT_LEN: usize = 24;

/// What the mount wants of the daemon for itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted {
    /// That it maps files, for passthrough.
    pub(super) passthrough: bool,
    /// That its replies say how the mount's own changes have raised the version table.
    pub(super) own_changes: bool,
}

/// The daemon's reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    /// As the kernel gets it.
    pub(super) reply: Vec<u8>,
    /// Files are passed through.
    pub(super) passthrough: bool,
    /// Replies may end with a trailer of [`own_changes`](transom_wire::own_changes).
    pub(super) own_changes: bool,
}

/// Returns the features that the kernel offers in `body`, the arguments of INIT.
pub(super) fn offered(body: &[u8]) -> InitFlags {
    let InitIn { flags, flags2, .. } = args_of(body);
    let mut offered = u64::from(flags.get());
    if body.len() > INIT_IN_COMPAT_LEN && offered & InitFlags::INIT_EXT.bits() != 0 {
        offered |= u64::from(flags2.get()) << 32;
    }
    InitFlags::from_bits_retain(offered)
}

/// Removes from `body`, the arguments of INIT, the features that cannot be used. Returns those that are offered to the
/// daemon.
///
/// With passthrough, the daemon is asked to map files, and the writeback cache is not offered: the kernel does not
/// support it together with passthrough.
pub(super) fn filter_request(body: &mut [u8], wanted: Wanted) -> InitFlags {
    let mut args = args_of(body);
    let mut flags = offered(body) - NOT_FORWARDED;
    if wanted.passthrough {
        flags = (flags - InitFlags::WRITEBACK_CACHE) | MAPS;
    }
    if wanted.own_changes && body.len() >= size_of::<InitIn>() {
        flags |= InitFlags::OWN_CHANGES;
        args.set_magic();
    }
    args.flags = (flags.bits() as u32).into();
    args.flags2 = ((flags.bits() >> 32) as u32).into();
    let known = body.len().min(size_of::<InitIn>());
    body[..known].copy_from_slice(&args.as_bytes()[..known]);
    flags
}

/// Parses the arguments of INIT. Missing fields are zero.
fn args_of(body: &[u8]) -> InitIn {
    let mut padded = [0; size_of::<InitIn>()];
    let known = body.len().min(padded.len());
    padded[..known].copy_from_slice(&body[..known]);
    zerocopy::transmute!(padded)
}

/// Returns the features in a reply to INIT.
pub(super) fn accepted(out: &InitOut) -> InitFlags {
    let mut accepted = u64::from(out.flags.get());
    if accepted & InitFlags::INIT_EXT.bits() != 0 {
        accepted |= u64::from(out.flags2.get()) << 32;
    }
    InitFlags::from_bits_retain(accepted)
}

/// Returns what the daemon's reply means. `None` if the reply is too short.
pub(super) fn filter_reply(body: &[u8], offered: InitFlags, wanted: Wanted, page_len: usize) -> Option<Agreement> {
    if body.len() < OUT_COMPAT_LEN {
        return None;
    }
    let mut known = body.len().min(size_of::<InitOut>());
    let mut out = padded(body);
    let mut accepted = accepted(&out) & offered;
    let passthrough = wanted.passthrough
        && accepted.contains(InitFlags::MAP_ALIGNMENT)
        && out.map_alignment.get() <= ALIGNMENT_LOG2_MAX;
    let own_changes = accepted.contains(InitFlags::OWN_CHANGES) && out.has_magic();
    accepted -= NOT_FORWARDED;
    out.unused = [0.into(); 11];
    out.max_stack_depth = 0.into();
    if passthrough {
        accepted |= InitFlags::PASSTHROUGH | InitFlags::INIT_EXT;
        out.max_stack_depth = STACK_DEPTH.into();
        known = size_of::<InitOut>();
    }
    set_flags(&mut out, accepted);
    out.max_write = out.max_write.get().min(DATA_LEN_MAX as u32).into();
    let pages = (DATA_LEN_MAX / page_len).max(1) as u16;
    out.max_pages = out.max_pages.get().min(pages).into();
    out.map_alignment = 0.into();
    Some(Agreement { reply: out.as_bytes()[..known].to_vec(), passthrough, own_changes })
}

/// Returns the features that concern the kernel and the mount alone: an error of its own for an aborted connection.
pub(super) fn own_flags(offered: InitFlags) -> InitFlags {
    offered & InitFlags::ABORT_ERROR
}

/// Returns `reply` with `flags` added.
pub(super) fn with_flags(reply: &[u8], flags: InitFlags) -> Vec<u8> {
    let mut out = padded(reply);
    let flags = accepted(&out) | flags;
    set_flags(&mut out, flags);
    out.as_bytes().to_vec()
}

/// Parses a reply to INIT. Missing fields are zero: servers may omit the end.
pub(super) fn padded(reply: &[u8]) -> InitOut {
    let mut padded = [0; size_of::<InitOut>()];
    let known = reply.len().min(padded.len());
    padded[..known].copy_from_slice(&reply[..known]);
    zerocopy::transmute!(padded)
}

fn set_flags(out: &mut InitOut, flags: InitFlags) {
    out.flags = (flags.bits() as u32).into();
    out.flags2 = ((flags.bits() >> 32) as u32).into();
}

#[cfg(test)]
mod tests {
    use zerocopy::FromBytes as _;

    use super::*;

    const PASSTHROUGH: Wanted = Wanted { passthrough: true, own_changes: false };

    fn request(flags: InitFlags) -> Vec<u8> {
        let bits = flags.bits();
        let args = InitIn {
            major: 7.into(),
            minor: 45.into(),
            max_readahead: 0.into(),
            flags: (bits as u32).into(),
            flags2: ((bits >> 32) as u32).into(),
            unused: [0.into(); 11],
        };
        args.as_bytes().to_vec()
    }

    #[test]
    fn features_that_cannot_be_used_are_not_offered_and_the_rest_is() {
        let all = InitFlags::all();
        let mut body = request(all);
        assert_eq!(filter_request(&mut body, Wanted::default()), all - NOT_FORWARDED);
        let args = InitIn::read_from_bytes(&body).unwrap();
        assert_eq!(u64::from(args.flags.get()) | u64::from(args.flags2.get()) << 32, (all - NOT_FORWARDED).bits());
        assert_eq!((args.major.get(), args.minor.get()), (7, 45));
    }

    #[test]
    fn an_old_kernels_request_has_no_second_flags() {
        let mut body = request(InitFlags::ASYNC_READ | InitFlags::SECURITY_CTX)[..INIT_IN_COMPAT_LEN].to_vec();
        assert_eq!(filter_request(&mut body, Wanted::default()), InitFlags::ASYNC_READ);
        assert_eq!(body.len(), INIT_IN_COMPAT_LEN);
    }

    #[test]
    fn a_daemon_cannot_accept_what_was_not_offered_nor_more_than_a_slot_holds() {
        let taken = InitFlags::ASYNC_READ | InitFlags::INIT_EXT | InitFlags::PASSTHROUGH | InitFlags::MAX_PAGES;
        let out = InitOut {
            flags: (taken.bits() as u32).into(),
            flags2: ((taken.bits() >> 32) as u32).into(),
            max_write: u32::MAX.into(),
            max_pages: u16::MAX.into(),
            map_alignment: 21.into(),
            max_stack_depth: 2.into(),
            ..InitOut::default()
        };
        let offered = InitFlags::ASYNC_READ | InitFlags::INIT_EXT | InitFlags::MAX_PAGES;
        let agreed = filter_reply(out.as_bytes(), offered, Wanted::default(), 4096).unwrap();
        assert!(!agreed.passthrough && !agreed.own_changes);
        let out = InitOut::read_from_bytes(&agreed.reply).unwrap();
        assert_eq!((out.flags.get(), out.flags2.get()), (offered.bits() as u32, 0));
        assert_eq!((out.max_write.get(), out.max_pages.get()), (1 << 20, 256));
        assert_eq!((out.map_alignment.get(), out.max_stack_depth.get()), (0, 0));
    }

    #[test]
    fn a_short_reply_stays_as_short_and_a_shorter_one_is_invalid() {
        let filter = |len| filter_reply(&[0; OUT_COMPAT_LEN][..len], InitFlags::all(), PASSTHROUGH, 4096);
        let reply = vec![0; OUT_COMPAT_LEN];
        assert_eq!(filter(OUT_COMPAT_LEN), Some(Agreement { reply, passthrough: false, own_changes: false }));
        assert_eq!(filter(OUT_COMPAT_LEN - 1), None);
    }

    #[test]
    fn aborting_is_told_apart_from_unmounting_if_the_kernel_can() {
        assert_eq!(own_flags(InitFlags::all()), InitFlags::ABORT_ERROR);
        assert_eq!(own_flags(InitFlags::all() - InitFlags::ABORT_ERROR), InitFlags::empty());
        let answer = with_flags(&[0; OUT_COMPAT_LEN], InitFlags::ABORT_ERROR);
        assert_eq!(accepted(&InitOut::read_from_bytes(&answer).unwrap()), InitFlags::ABORT_ERROR);
    }

    #[test]
    fn passthrough_is_offered_to_the_daemon_as_mapping_and_to_the_kernel_if_the_daemon_maps() {
        let mut body = request(InitFlags::all());
        let offered = filter_request(&mut body, PASSTHROUGH);
        assert!(offered.contains(MAPS) && !offered.intersects(InitFlags::WRITEBACK_CACHE | InitFlags::PASSTHROUGH));
        let answer = |flags: InitFlags, map_alignment: u16| {
            let bits = flags.bits();
            let (flags, flags2) = ((bits as u32).into(), ((bits >> 32) as u32).into());
            let out = InitOut { flags, flags2, map_alignment: map_alignment.into(), ..InitOut::default() };
            let agreed = filter_reply(out.as_bytes(), offered, PASSTHROUGH, 4096).unwrap();
            let out = InitOut::read_from_bytes(&agreed.reply).unwrap();
            let flags = u64::from(out.flags.get()) | u64::from(out.flags2.get()) << 32;
            (flags, out.max_stack_depth.get(), agreed.passthrough)
        };
        let told = InitFlags::ASYNC_READ | InitFlags::INIT_EXT;
        let passing = (told | InitFlags::PASSTHROUGH).bits();
        assert_eq!(answer(told | MAPS, 21), (passing, STACK_DEPTH, true));
        assert_eq!(answer(InitFlags::ASYNC_READ | InitFlags::MAP_ALIGNMENT, 12), (passing, STACK_DEPTH, true));
        assert_eq!(answer(told | InitFlags::HAS_INODE_DAX, 0), (told.bits(), 0, false));
        assert_eq!(answer(told | MAPS, 22), (told.bits(), 0, false));
    }

    #[test]
    fn own_changes_are_agreed_on_with_the_daemon_alone_and_by_their_magic() {
        let wanted = Wanted { passthrough: false, own_changes: true };
        let (kernels, own) = (InitFlags::ASYNC_READ | InitFlags::INIT_EXT, InitFlags::OWN_CHANGES);
        // A later kernel may mean something else by that bit.
        for theirs in [kernels, kernels | own] {
            let mut body = request(theirs);
            assert_eq!(filter_request(&mut body, wanted), kernels | own);
            assert!(InitIn::read_from_bytes(&body).unwrap().has_magic());
            let mut body = request(theirs);
            assert_eq!(filter_request(&mut body, Wanted::default()), kernels);
            assert!(!InitIn::read_from_bytes(&body).unwrap().has_magic());
        }
        let mut short = request(kernels)[..INIT_IN_COMPAT_LEN].to_vec();
        assert!(!filter_request(&mut short, wanted).contains(own));

        let mut out = InitOut::default();
        set_flags(&mut out, kernels | own);
        let agreed = |out: &InitOut, offered| filter_reply(out.as_bytes(), offered, wanted, 4096).unwrap();
        assert!(!agreed(&out, kernels | own).own_changes, "whatever the bit means without the magic");
        out.set_magic();
        assert!(!agreed(&out, kernels).own_changes, "it was not offered");
        let Agreement { reply, own_changes, .. } = agreed(&out, kernels | own);
        let reply = InitOut::read_from_bytes(&reply).unwrap();
        assert!(own_changes && accepted(&reply) == kernels && !reply.has_magic(), "the kernel does not learn of it");
    }
}
