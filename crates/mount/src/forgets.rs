//! Parses FORGET and BATCH_FORGET.

use transom_wire::{
    NodeId, Opcode,
    header::InHeader,
    ops::forget::{BatchForgetIn, ForgetIn, ForgetOne},
};
use zerocopy::FromBytes as _;

/// Returns the inodes in a FORGET or BATCH_FORGET, each with the number of references that the kernel drops.
///
/// Returns nothing for other messages.
pub(super) fn parse_forgets(message: &[u8]) -> Vec<(NodeId, u64)> {
    let Ok((header, args)) = InHeader::read_from_prefix(message) else { return Vec::new() };
    if header.opcode.get() == Opcode::Forget as u32 {
        let args = ForgetIn::read_from_prefix(args);
        return args.map(|(args, _)| (header.nodeid.into(), args.nlookup.get())).into_iter().collect();
    }
    if header.opcode.get() != Opcode::BatchForget as u32 {
        return Vec::new();
    }
    let list = args.get(size_of::<BatchForgetIn>()..).unwrap_or(&[]);
    let ones = list.chunks_exact(size_of::<ForgetOne>()).filter_map(|one| ForgetOne::read_from_bytes(one).ok());
    ones.map(|one| (one.nodeid.into(), one.nlookup.get())).collect()
}
