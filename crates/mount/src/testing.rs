//! What tests of the stages use in place of a mount and a daemon: a socket in place of `/dev/fuse`, and slots in memory
//! of their own.

use std::{os::fd::OwnedFd, sync::Arc};

use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt::set_socket_send_buffer_size},
};
use transom_guest::{
    dma::{DmaOps, WhenFull},
    ring::{Barriers, Ring, RingSettings, Used},
};
use transom_user::arena::Arena;
use transom_wire::{
    Opcode,
    header::{InHeader, OutHeader},
};
use zerocopy::{FromBytes as _, FromZeros as _, IntoBytes as _};

use super::{
    fuse_device::FuseDevice,
    passthrough::RequestKind,
    request_queue::{RequestQueue, SlotMemory},
    slots::Slots,
};

/// Slots of a test's queue.
pub(super) const SLOTS: u16 = 2;

/// The kernel's side of a [`FuseDevice`].
pub(super) struct FakeKernel(OwnedFd);

/// Returns a device and its kernel, which keep the bounds of messages as `/dev/fuse` does.
pub(super) fn fuse_device() -> (Arc<FuseDevice>, FakeKernel) {
    let (device, kernel) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
            .unwrap();
    (Arc::new(FuseDevice::mounted(device).unwrap()), FakeKernel(kernel))
}

/// Returns a device whose kernel rejects messages of more than a few KiB (EMSGSIZE).
pub(super) fn fuse_device_with_short_replies() -> (Arc<FuseDevice>, FakeKernel) {
    let (device, kernel) = fuse_device();
    set_socket_send_buffer_size(&*device, 4096).unwrap();
    (device, kernel)
}

impl FakeKernel {
    /// Sends a request.
    pub(super) fn send(&self, message: &[u8]) {
        assert_eq!(rustix::io::write(&self.0, message), Ok(message.len()));
    }

    /// Returns the next reply, if there is one.
    pub(super) fn reply(&self) -> Option<(OutHeader, Vec<u8>)> {
        let mut bytes = vec![0; 1 << 16];
        match rustix::io::read(&self.0, &mut bytes) {
            Ok(len) => {
                let (header, body) = OutHeader::read_from_prefix(&bytes[..len]).unwrap();
                assert_eq!(header.len.get() as usize, len);
                Some((header, body.to_vec()))
            }
            Err(Errno::AGAIN) => None,
            Err(errno) => panic!("{errno}"),
        }
    }

    /// Asserts that the next reply fails `unique` with `errno`.
    pub(super) fn expect_error(&self, unique: u64, errno: Errno) {
        let (header, body) = self.reply().expect("a reply");
        assert_eq!((header.unique.get(), header.error.get()), (unique, -errno.raw_os_error()));
        assert!(body.is_empty());
    }
}

/// Returns a queue whose device never looks at it.
pub(super) fn queue() -> RequestQueue {
    let pool_len = 256 << 10;
    let arena = Arc::new(Arena::new(pool_len + Slots::len_bytes(SLOTS)).unwrap());
    let (pool, memory) = arena.pool_and_rest(pool_len, WhenFull::Fail);
    let ops: Arc<dyn DmaOps> = Arc::new(pool);
    let settings = RingSettings {
        len: 8,
        chains_max: SLOTS,
        segments_max: 2,
        is_indirect: false,
        has_event_index: false,
        barriers: Barriers::Processors,
    };
    let ring = Ring::new(&ops, settings).unwrap();
    RequestQueue::new(1, ring, Slots::new(0, SLOTS), Arc::new(SlotMemory { memory, _arena: arena }))
}

/// Returns a request of the kernel.
pub(super) fn request(opcode: Opcode, unique: u64, nodeid: u64, args: &[u8]) -> Vec<u8> {
    let header = InHeader {
        len: ((size_of::<InHeader>() + args.len()) as u32).into(),
        opcode: (opcode as u32).into(),
        unique: unique.into(),
        nodeid: nodeid.into(),
        ..InHeader::new_zeroed()
    };
    [header.as_bytes(), args].concat()
}

/// Returns the header of a request.
pub(super) fn header_of(message: &[u8]) -> InHeader {
    InHeader::read_from_prefix(message).unwrap().0
}

/// Writes `message` into a free slot and puts it into the ring. Returns the slot.
pub(super) fn submit(queue: &mut RequestQueue, message: &[u8], kind: RequestKind) -> u16 {
    let slot = queue.take_slot().unwrap();
    queue.write_request(slot, message);
    let args = queue.args(slot, message.len());
    queue.submit(slot, &header_of(message), message.len(), &args, kind);
    slot
}

/// Writes a reply into `slot` as a daemon does, and returns the chain as used with `written_bytes`.
pub(super) fn answer(queue: &RequestQueue, slot: u16, unique: u64, error: i32, body: &[u8]) -> Used {
    let len = (size_of::<OutHeader>() + body.len()) as u32;
    let header = OutHeader { len: len.into(), error: error.into(), unique: unique.into() };
    let buffer = queue.reply_buffer(slot, queue.in_flight(slot).len_bytes);
    buffer.memory.write(buffer.offset, &[header.as_bytes(), body].concat());
    Used { cookie: slot, written_bytes: len }
}
