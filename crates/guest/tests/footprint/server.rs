//! A server with a window, of which nothing is counted.

use std::{ptr::NonNull, sync::Arc};

use tempfile::TempDir;
use transom_allocations::with_exempt;
use transom_guest::{
    Errno,
    channel::{Channel, ChannelError, Message, OwnedMessage, OwnedReply, Ticket},
    dax::{RANGE_LEN, WindowMemory},
    dma::{DmaBuffer, DmaError},
    transport::ShmRegion,
};
use transom_host::passthrough::{CachePolicy, Config, Passthrough};
use transom_wire::{
    Opcode,
    header::{InHeader, OutHeader},
    ops::init::{InitFlags, InitOut},
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::peer::Peer;

/// A window of this many bytes, in which everything is zero.
pub(crate) struct Memory(pub(crate) u64);

impl WindowMemory for Memory {
    fn len_bytes(&self) -> u64 {
        self.0
    }

    fn start(&self) -> NonNull<u8> {
        NonNull::new(std::ptr::without_provenance_mut(RANGE_LEN as usize)).unwrap()
    }

    fn load(&self, _: u64, bytes: &mut [u8]) -> Result<(), Errno> {
        bytes.fill(0);
        Ok(())
    }

    fn store(&self, _: u64, _: &[u8]) -> Result<(), Errno> {
        Ok(())
    }

    fn touch(&self, _: u64) -> Result<(), Errno> {
        Ok(())
    }
}

/// A share of this host, and a front end that maps whatever it is asked to.
pub(crate) struct Windowed(Arc<Peer<Passthrough>>);

impl Windowed {
    pub(crate) fn new() -> (TempDir, Arc<Self>) {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { cache: CachePolicy::Auto, ..Config::default() };
        let peer = Peer::new(Passthrough::open(dir.path(), config).unwrap());
        (dir, Arc::new(Self(peer)))
    }
}

impl Channel for Windowed {
    fn request_queues(&self) -> u16 {
        self.0.request_queues()
    }

    fn data_len_max(&self) -> usize {
        self.0.data_len_max()
    }

    fn call(&self, queue: u16, message: Message<'_>) -> Result<usize, ChannelError> {
        let (header, _) = InHeader::ref_from_prefix(message.head).unwrap();
        let (opcode, unique) = (header.opcode.get(), header.unique);
        if [Opcode::Setupmapping as u32, Opcode::Removemapping as u32].contains(&opcode) {
            let reply = OutHeader { len: 16.into(), error: 0.into(), unique };
            message.reply_head[..16].copy_from_slice(reply.as_bytes());
            return Ok(16);
        }
        let Message { head, data, reply_head, reply_data } = message;
        let message = Message { head, data, reply_head: &mut *reply_head, reply_data };
        let written = with_exempt(true, || self.0.call(queue, message))?;
        if opcode == Opcode::Init as u32 {
            let out = InitOut::mut_from_bytes(&mut reply_head[16..]).unwrap();
            out.flags = (out.flags.get() | InitFlags::MAP_ALIGNMENT.bits() as u32).into();
            out.map_alignment = 21.into();
        }
        Ok(written)
    }

    fn start(&self, queue: u16, message: OwnedMessage) -> Result<Ticket, ChannelError> {
        with_exempt(true, || self.0.start(queue, message))
    }

    fn finish(&self, ticket: Ticket) -> Result<OwnedReply, ChannelError> {
        with_exempt(true, || self.0.finish(ticket))
    }

    fn is_finished(&self, ticket: &Ticket) -> bool {
        self.0.is_finished(ticket)
    }

    fn send_priority(&self, message: &[u8]) -> Result<(), ChannelError> {
        with_exempt(true, || self.0.send_priority(message))
    }

    fn buffer(&self, len_bytes: usize) -> Result<DmaBuffer, DmaError> {
        self.0.buffer(len_bytes)
    }

    fn shm_region(&self, _: u8) -> Option<ShmRegion> {
        None
    }
}
