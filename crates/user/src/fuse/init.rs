//! INIT: what kernel and daemon may agree on through a pump.
//!
//! What the kernel offers goes on but for what needs a kernel that is the guest itself; of what the daemon takes, nothing
//! remains that was not offered, and the limits are those of the slots. All other messages pass unchanged.

use transom_wire::ops::init::{INIT_IN_COMPAT_LEN, InitFlags, InitIn, InitOut};
use zerocopy::{FromBytes as _, IntoBytes as _};

use super::slots::DATA_LEN_MAX;

/// Not for a pump: the kernel has no window (MAP_ALIGNMENT, HAS_INODE_DAX), reads from `/dev/fuse` (OVER_IO_URING), and
/// a daemon cannot register files with a kernel that it does not talk to (PASSTHROUGH).
const NOT_CARRIED: InitFlags = InitFlags::MAP_ALIGNMENT
    .union(InitFlags::HAS_INODE_DAX)
    .union(InitFlags::OVER_IO_URING)
    .union(InitFlags::PASSTHROUGH);
/// Bytes of [`InitOut`] before minor 23, which kernels still take.
const OUT_COMPAT_LEN: usize = 24;

/// Clears in `body`, the arguments of INIT, what cannot be carried; gives the flags that are offered.
pub(super) fn filter_request(body: &mut [u8]) -> InitFlags {
    let len = body.len();
    let mut padded = [0; size_of::<InitIn>()];
    let known = len.min(padded.len());
    padded[..known].copy_from_slice(&body[..known]);
    let mut args = zerocopy::transmute!(padded);
    let InitIn { flags, flags2, .. } = &mut args;
    let mut offered = u64::from(flags.get());
    if len > INIT_IN_COMPAT_LEN && offered & InitFlags::INIT_EXT.bits() != 0 {
        offered |= u64::from(flags2.get()) << 32;
    }
    let offered = InitFlags::from_bits_retain(offered) - NOT_CARRIED;
    *flags = (offered.bits() as u32).into();
    *flags2 = ((offered.bits() >> 32) as u32).into();
    body[..known].copy_from_slice(&args.as_bytes()[..known]);
    offered
}

/// The daemon's answer as the kernel gets it; nothing where it is too short to be one.
pub(super) fn filter_reply(body: &[u8], offered: InitFlags, page_len: usize) -> Option<Vec<u8>> {
    if body.len() < OUT_COMPAT_LEN {
        return None;
    }
    let mut padded = [0; size_of::<InitOut>()];
    let known = body.len().min(padded.len());
    padded[..known].copy_from_slice(&body[..known]);
    let mut out = InitOut::read_from_bytes(&padded).ok()?;
    let mut taken = u64::from(out.flags.get());
    if taken & InitFlags::INIT_EXT.bits() != 0 {
        taken |= u64::from(out.flags2.get()) << 32;
    }
    let taken = InitFlags::from_bits_retain(taken & offered.bits());
    out.flags = (taken.bits() as u32).into();
    out.flags2 = ((taken.bits() >> 32) as u32).into();
    out.max_write = out.max_write.get().min(DATA_LEN_MAX as u32).into();
    let pages = (DATA_LEN_MAX / page_len).max(1) as u16;
    out.max_pages = out.max_pages.get().min(pages).into();
    out.map_alignment = 0.into();
    out.max_stack_depth = 0.into();
    Some(out.as_bytes()[..known].to_vec())
}

#[cfg(test)]
mod tests {
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
        assert_eq!(filter_request(&mut body), all - NOT_CARRIED);
        let args = InitIn::read_from_bytes(&body).unwrap();
        assert_eq!(u64::from(args.flags.get()) | u64::from(args.flags2.get()) << 32, (all - NOT_CARRIED).bits());
        assert_eq!((args.major.get(), args.minor.get()), (7, 45));
    }

    #[test]
    fn an_old_kernels_request_has_no_second_flags() {
        let mut body = request(InitFlags::ASYNC_READ | InitFlags::SECURITY_CTX)[..INIT_IN_COMPAT_LEN].to_vec();
        assert_eq!(filter_request(&mut body), InitFlags::ASYNC_READ);
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
        let out = InitOut::read_from_bytes(&filter_reply(out.as_bytes(), offered, 4096).unwrap()).unwrap();
        assert_eq!((out.flags.get(), out.flags2.get()), (offered.bits() as u32, 0));
        assert_eq!((out.max_write.get(), out.max_pages.get()), (1 << 20, 256));
        assert_eq!((out.map_alignment.get(), out.max_stack_depth.get()), (0, 0));
    }

    #[test]
    fn a_short_answer_stays_as_short_and_a_shorter_one_is_none() {
        assert_eq!(filter_reply(&[0; OUT_COMPAT_LEN], InitFlags::all(), 4096).unwrap().len(), OUT_COMPAT_LEN);
        assert_eq!(filter_reply(&[0; OUT_COMPAT_LEN - 1], InitFlags::all(), 4096), None);
    }
}
