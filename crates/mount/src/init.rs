//! INIT: what kernel and daemon may agree on through a pump.
//!
//! What the kernel offers goes on but for what needs a kernel that is the guest itself; of what the daemon takes, nothing
//! remains that was not offered, and the limits are those of the slots. All other messages pass unchanged.

use transom_wire::ops::init::{INIT_IN_COMPAT_LEN, InitFlags, InitIn, InitOut};
use zerocopy::IntoBytes as _;

use super::slots::DATA_LEN_MAX;

/// Not for a pump: the kernel has no window (MAP_ALIGNMENT, HAS_INODE_DAX), and a daemon does not talk to it, neither by rings
/// (OVER_IO_URING) nor to register files (PASSTHROUGH). The last two are between the kernel and the mount.
const NOT_CARRIED: InitFlags = InitFlags::MAP_ALIGNMENT
    .union(InitFlags::HAS_INODE_DAX)
    .union(InitFlags::OVER_IO_URING)
    .union(InitFlags::PASSTHROUGH);
/// What a daemon needs to know that it may be asked to map files. The second lets it choose what the flag of a file says; the
/// kernel hears of neither.
const MAPS: InitFlags = InitFlags::MAP_ALIGNMENT.union(InitFlags::HAS_INODE_DAX);
/// log2 of the alignment of what is mapped then: ranges of 2 MiB.
const ALIGNMENT_LOG2_MAX: u16 = 21;
/// File systems below the one that is passed through to: none. Then the kernel lets this mount be stacked upon.
const STACK_DEPTH: u32 = 1;
/// Bytes of [`InitOut`] before minor 23, which kernels still take.
const OUT_COMPAT_LEN: usize = 24;

/// What the kernel offers in `body`, the arguments of INIT.
pub(super) fn offered(body: &[u8]) -> InitFlags {
    let InitIn { flags, flags2, .. } = args_of(body);
    let mut offered = u64::from(flags.get());
    if body.len() > INIT_IN_COMPAT_LEN && offered & InitFlags::INIT_EXT.bits() != 0 {
        offered |= u64::from(flags2.get()) << 32;
    }
    InitFlags::from_bits_retain(offered)
}

/// Clears in `body`, the arguments of INIT, what cannot be carried; gives the flags that are offered.
///
/// For a mount that passes files through the daemon is offered to map them; the kernel does not pass through and keep what was
/// written for later.
pub(super) fn filter_request(body: &mut [u8], passes: bool) -> InitFlags {
    let mut args = args_of(body);
    let mut flags = offered(body) - NOT_CARRIED;
    if passes {
        flags = (flags - InitFlags::WRITEBACK_CACHE) | MAPS;
    }
    args.flags = (flags.bits() as u32).into();
    args.flags2 = ((flags.bits() >> 32) as u32).into();
    let known = body.len().min(size_of::<InitIn>());
    body[..known].copy_from_slice(&args.as_bytes()[..known]);
    flags
}

/// Zeros behind the end of `body`.
fn args_of(body: &[u8]) -> InitIn {
    let mut padded = [0; size_of::<InitIn>()];
    let known = body.len().min(padded.len());
    padded[..known].copy_from_slice(&body[..known]);
    zerocopy::transmute!(padded)
}

/// What a daemon takes of what it was offered, or of what it was not.
pub(super) fn taken(out: &InitOut) -> InitFlags {
    let mut taken = u64::from(out.flags.get());
    if taken & InitFlags::INIT_EXT.bits() != 0 {
        taken |= u64::from(out.flags2.get()) << 32;
    }
    InitFlags::from_bits_retain(taken)
}

/// The daemon's answer as the kernel gets it, and whether files are passed through, where that was asked for; nothing where
/// the answer is too short to be one.
pub(super) fn filter_reply(body: &[u8], offered: InitFlags, passes: bool, page_len: usize) -> Option<(Vec<u8>, bool)> {
    if body.len() < OUT_COMPAT_LEN {
        return None;
    }
    let mut known = body.len().min(size_of::<InitOut>());
    let mut out = padded(body);
    let mut taken = taken(&out) & offered;
    let is_agreed = passes && taken.contains(InitFlags::MAP_ALIGNMENT) && out.map_alignment.get() <= ALIGNMENT_LOG2_MAX;
    taken -= NOT_CARRIED;
    out.max_stack_depth = 0.into();
    if is_agreed {
        taken |= InitFlags::PASSTHROUGH | InitFlags::INIT_EXT;
        out.max_stack_depth = STACK_DEPTH.into();
        known = size_of::<InitOut>();
    }
    tell(&mut out, taken);
    out.max_write = out.max_write.get().min(DATA_LEN_MAX as u32).into();
    let pages = (DATA_LEN_MAX / page_len).max(1) as u16;
    out.max_pages = out.max_pages.get().min(pages).into();
    out.map_alignment = 0.into();
    Some((out.as_bytes()[..known].to_vec(), is_agreed))
}

/// What the kernel and the mount agree on without the daemon, of what the kernel has `offered`: that an aborted connection can be
/// told from an unmounted one.
pub(super) fn own_flags(offered: InitFlags) -> InitFlags {
    offered & InitFlags::ABORT_ERROR
}

/// `answer`, of [`filter_reply`], with `flags` added.
pub(super) fn with_flags(answer: &[u8], flags: InitFlags) -> Vec<u8> {
    let mut out = padded(answer);
    let flags = taken(&out) | flags;
    tell(&mut out, flags);
    out.as_bytes().to_vec()
}

/// An answer to INIT, of which a server may leave out the end: that is zeros.
pub(super) fn padded(answer: &[u8]) -> InitOut {
    let mut padded = [0; size_of::<InitOut>()];
    let known = answer.len().min(padded.len());
    padded[..known].copy_from_slice(&answer[..known]);
    zerocopy::transmute!(padded)
}

fn tell(out: &mut InitOut, flags: InitFlags) {
    out.flags = (flags.bits() as u32).into();
    out.flags2 = ((flags.bits() >> 32) as u32).into();
}

#[cfg(test)]
mod tests {
    use zerocopy::FromBytes as _;

    use super::*;

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
    fn what_a_pump_cannot_carry_is_not_offered_and_the_rest_is() {
        let all = InitFlags::all();
        let mut body = request(all);
        assert_eq!(filter_request(&mut body, false), all - NOT_CARRIED);
        let args = InitIn::read_from_bytes(&body).unwrap();
        assert_eq!(u64::from(args.flags.get()) | u64::from(args.flags2.get()) << 32, (all - NOT_CARRIED).bits());
        assert_eq!((args.major.get(), args.minor.get()), (7, 45));
    }

    #[test]
    fn an_old_kernels_request_has_no_second_flags() {
        let mut body = request(InitFlags::ASYNC_READ | InitFlags::SECURITY_CTX)[..INIT_IN_COMPAT_LEN].to_vec();
        assert_eq!(filter_request(&mut body, false), InitFlags::ASYNC_READ);
        assert_eq!(body.len(), INIT_IN_COMPAT_LEN);
    }

    #[test]
    fn a_daemon_cannot_take_what_was_not_offered_nor_more_than_a_slot_holds() {
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
        let (out, is_agreed) = filter_reply(out.as_bytes(), offered, false, 4096).unwrap();
        assert!(!is_agreed);
        let out = InitOut::read_from_bytes(&out).unwrap();
        assert_eq!((out.flags.get(), out.flags2.get()), (offered.bits() as u32, 0));
        assert_eq!((out.max_write.get(), out.max_pages.get()), (1 << 20, 256));
        assert_eq!((out.map_alignment.get(), out.max_stack_depth.get()), (0, 0));
    }

    #[test]
    fn a_short_answer_stays_as_short_and_a_shorter_one_is_none() {
        let filter = |len| filter_reply(&[0; OUT_COMPAT_LEN][..len], InitFlags::all(), true, 4096);
        assert_eq!(filter(OUT_COMPAT_LEN), Some((vec![0; OUT_COMPAT_LEN], false)));
        assert_eq!(filter(OUT_COMPAT_LEN - 1), None);
    }

    #[test]
    fn aborts_are_told_from_unmounting_where_the_kernel_can() {
        assert_eq!(own_flags(InitFlags::all()), InitFlags::ABORT_ERROR);
        assert_eq!(own_flags(InitFlags::all() - InitFlags::ABORT_ERROR), InitFlags::empty());
        let answer = with_flags(&[0; OUT_COMPAT_LEN], InitFlags::ABORT_ERROR);
        assert_eq!(taken(&InitOut::read_from_bytes(&answer).unwrap()), InitFlags::ABORT_ERROR);
    }

    #[test]
    fn passing_through_is_offered_to_the_daemon_as_mapping_and_told_to_the_kernel_where_the_daemon_maps() {
        let mut body = request(InitFlags::all());
        let offered = filter_request(&mut body, true);
        assert!(offered.contains(MAPS) && !offered.intersects(InitFlags::WRITEBACK_CACHE | InitFlags::PASSTHROUGH));
        let answer = |flags: InitFlags, map_alignment: u16| {
            let bits = flags.bits();
            let (flags, flags2) = ((bits as u32).into(), ((bits >> 32) as u32).into());
            let out = InitOut { flags, flags2, map_alignment: map_alignment.into(), ..InitOut::default() };
            let (out, is_agreed) = filter_reply(out.as_bytes(), offered, true, 4096).unwrap();
            let out = InitOut::read_from_bytes(&out).unwrap();
            (u64::from(out.flags.get()) | u64::from(out.flags2.get()) << 32, out.max_stack_depth.get(), is_agreed)
        };
        let told = InitFlags::ASYNC_READ | InitFlags::INIT_EXT;
        let passing = (told | InitFlags::PASSTHROUGH).bits();
        assert_eq!(answer(told | MAPS, 21), (passing, STACK_DEPTH, true));
        assert_eq!(answer(InitFlags::ASYNC_READ | InitFlags::MAP_ALIGNMENT, 12), (passing, STACK_DEPTH, true));
        assert_eq!(answer(told | InitFlags::HAS_INODE_DAX, 0), (told.bits(), 0, false));
        assert_eq!(answer(told | MAPS, 22), (told.bits(), 0, false));
    }
}
