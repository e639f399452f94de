//! What kernel and mount tell each other about an entry of a queue: the head of its request, then that of the reply.
//!
//! Source: include/uapi/linux/fuse.h (`fuse_uring_req_header`, `fuse_uring_cmd_req`), protocol 7.42.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, little_endian::*};

/// Bytes for the header of either direction, and for the first arguments.
pub(super) const PART_LEN: usize = 128;

/// Of [`CommandReq`]: makes an entry's memory known, and waits for a request.
pub(super) const REGISTER: u32 = 1;
/// Answers the entry's request, and waits for the next.
pub(super) const COMMIT_AND_FETCH: u32 = 2;

/// `fuse_uring_req_header`.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Head {
    /// `fuse_in_header` of the request, `fuse_out_header` of the reply.
    pub(super) in_out: [u8; PART_LEN],
    /// The first arguments of the request; nothing in a reply.
    pub(super) op_in: [u8; PART_LEN],
    pub(super) entry: EntryInOut,
}
const _: () = assert!(size_of::<Head>() == 288);

/// `fuse_uring_ent_in_out`.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct EntryInOut {
    pub(super) flags: U64,
    /// The request, as [`CommandReq`] has to name it.
    pub(super) commit_id: U64,
    /// Bytes of the message that lie in the payload's memory: what is neither header nor first arguments.
    pub(super) payload_sz: U32,
    pub(super) padding: U32,
    pub(super) reserved: U64,
}
const _: () = assert!(size_of::<EntryInOut>() == 32);

/// `fuse_uring_cmd_req`, in the command area of an SQE.
#[derive(Debug, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct CommandReq {
    pub(super) flags: U64,
    pub(super) commit_id: U64,
    /// The queue, which is a processor's number.
    pub(super) qid: U16,
    pub(super) padding: [u8; 6],
}
const _: () = assert!(size_of::<CommandReq>() == 24);
