//! The window of a virtio-mmio device: found through the registers of shared memory, mapped, and stored to.
//!
//! No virtual machine monitor has such a device, so this process is one: a mapping request maps the file into the
//! memory that the registers name.

#![expect(unsafe_code, reason = "maps memory, as the device would")]

use std::{
    ffi::c_void,
    fs::{self, File},
    ptr::NonNull,
    sync::Arc,
};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use tempfile::TempDir;
use transom_guest::{
    cache::CacheOptions,
    channel::{Channel, ChannelError, Message, OwnedMessage, OwnedReply, Ticket},
    dax::{Dax, DaxOptions, MappedWindow, RANGE_LEN, WINDOW_ID},
    dma::{DmaBuffer, DmaError},
    fs::{Fs, OpenOptions},
    session::{Session, SessionConfig},
    transport::{Interrupts, ShmRegion, Transport as _, mmio::Mmio},
    volume::Volume,
};
use transom_host::passthrough::{CachePolicy, Config, Passthrough};
use transom_wire::{
    Opcode,
    header::{InHeader, OutHeader},
    ops::{
        init::{InitFlags, InitOut},
        removemapping::RemovemappingIn,
        setupmapping::{SETUPMAPPING_WRITE, SetupmappingIn},
    },
};
use zerocopy::{FromBytes as _, IntoBytes as _};

use crate::{fake::Ticking, peer::Peer, registers::Fake};

const RANGES: usize = 4;
const LEN: usize = RANGES * RANGE_LEN as usize;

/// Reserved addresses, at a multiple of [`RANGE_LEN`].
struct Region {
    reserved: *mut c_void,
    start: *mut u8,
}

// SAFETY: only addresses.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    fn new() -> Self {
        let len = LEN + RANGE_LEN as usize;
        // SAFETY: new addresses, which nobody else uses.
        let reserved =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE) }.unwrap();
        let start = reserved.cast::<u8>();
        Self { reserved, start: start.wrapping_add(start.align_offset(RANGE_LEN as usize)) }
    }

    fn map(&self, arg: &SetupmappingIn, file: &File) {
        assert!(arg.moffset.get() + arg.len.get() <= LEN as u64);
        let is_writable = arg.flags.get() & SETUPMAPPING_WRITE != 0;
        let rights = if is_writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let at = self.start.wrapping_add(arg.moffset.get() as usize).cast();
        // SAFETY: the addresses lie within the reserved ones, and no Rust reference points there.
        unsafe {
            mmap(at, arg.len.get() as usize, rights, MapFlags::SHARED | MapFlags::FIXED, file, arg.foffset.get())
        }
        .unwrap();
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the addresses are this value's, and what used them is gone.
        unsafe { munmap(self.reserved, LEN + RANGE_LEN as usize) }.unwrap();
    }
}

/// The server, and the device's registers.
struct Device {
    peer: Arc<Peer<Passthrough>>,
    registers: Mmio<Fake, parking_lot::RawMutex>,
    file: File,
    region: Arc<Region>,
}

impl Channel for Device {
    fn request_queues(&self) -> u16 {
        self.peer.request_queues()
    }

    fn data_len_max(&self) -> usize {
        self.peer.data_len_max()
    }

    fn call(&self, queue: u16, message: Message<'_>) -> Result<usize, ChannelError> {
        let (header, body) = InHeader::ref_from_prefix(message.head).unwrap();
        let (opcode, unique) = (header.opcode.get(), header.unique);
        if opcode == Opcode::Setupmapping as u32 {
            self.region.map(SetupmappingIn::ref_from_bytes(body).unwrap(), &self.file);
        } else if opcode == Opcode::Removemapping as u32 {
            // The pages stay until others replace them: only the guest's own accesses are tested here.
            RemovemappingIn::ref_from_prefix(body).unwrap();
        } else {
            let Message { head, data, reply_head, reply_data } = message;
            let written = self.peer.call(queue, Message { head, data, reply_head: &mut *reply_head, reply_data })?;
            if opcode == Opcode::Init as u32 {
                let out = InitOut::mut_from_bytes(&mut reply_head[16..]).unwrap();
                out.flags = (out.flags.get() | InitFlags::MAP_ALIGNMENT.bits() as u32).into();
                out.map_alignment = 21.into();
            }
            return Ok(written);
        }
        message.reply_head[..16].copy_from_slice(OutHeader { len: 16.into(), error: 0.into(), unique }.as_bytes());
        Ok(16)
    }

    fn start(&self, queue: u16, message: OwnedMessage) -> Result<Ticket, ChannelError> {
        self.peer.start(queue, message)
    }

    fn finish(&self, ticket: Ticket) -> Result<OwnedReply, ChannelError> {
        self.peer.finish(ticket)
    }

    fn is_finished(&self, ticket: &Ticket) -> bool {
        self.peer.is_finished(ticket)
    }

    fn send_priority(&self, message: &[u8]) -> Result<(), ChannelError> {
        self.peer.send_priority(message)
    }

    fn buffer(&self, len_bytes: usize) -> Result<DmaBuffer, DmaError> {
        self.peer.buffer(len_bytes)
    }

    fn shm_region(&self, id: u8) -> Option<ShmRegion> {
        self.registers.shm_region(id).unwrap()
    }
}

/// Mounts a share with one file, as a kernel does: the window's address comes from the registers.
fn mount(dir: &TempDir, region: &Arc<Region>) -> Fs<Ticking> {
    let fake = Fake::default();
    fake.0.lock().regions = vec![(WINDOW_ID.into(), ShmRegion { address: region.start as u64, len_bytes: LEN as u64 })];
    let config = Config { cache: CachePolicy::Auto, ..Config::default() };
    let device = Arc::new(Device {
        peer: Peer::new(Passthrough::open(dir.path(), config).unwrap()),
        registers: Mmio::new(fake, Interrupts::Polling).unwrap(),
        file: File::options().read(true).write(true).open(dir.path().join("file")).unwrap(),
        region: Arc::clone(region),
    });
    let window = device.shm_region(WINDOW_ID).unwrap();
    let start = NonNull::new(window.address as *mut u8).unwrap();
    // SAFETY: the region lives longer than the volume, which only accesses what it has asked to map.
    let memory = unsafe { MappedWindow::new(start, window.len_bytes as usize) };
    let session_config = SessionConfig::default().with(InitFlags::MAP_ALIGNMENT);
    let session = Session::begin(device, Arc::new(Ticking::default()), session_config).unwrap();
    let dax = DaxOptions { dax: Dax::Always, size_min_bytes: 0 };
    Fs::new(Arc::new(Volume::with_window(session, CacheOptions::default(), Arc::new(memory), dax)))
}

#[test]
fn a_file_is_read_and_written_through_the_window_that_the_registers_name() {
    let dir = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..3 * RANGE_LEN as usize).map(|at| (at / 777) as u8).collect();
    fs::write(dir.path().join("file"), &bytes).unwrap();
    let region = Arc::new(Region::new());
    let share = mount(&dir, &region);

    let file = share.open("file", &OpenOptions::new().read(true).write(true)).unwrap();
    let mut read = vec![0; bytes.len()];
    assert_eq!(file.read_at(0, &mut read).unwrap(), bytes.len());
    assert!(read == bytes);
    let across = RANGE_LEN - 3;
    // The first write is a request, by which the server sets the time.
    file.write_at(0, b"x").unwrap();
    file.write_at(across, b"stored").unwrap();
    assert!(share.volume().window().unwrap().counts().mapped >= 3);
    let host = fs::read(dir.path().join("file")).unwrap();
    assert_eq!((&host[..1], &host[across as usize..][..6]), (&b"x"[..], &b"stored"[..]));
    drop((file, share));
}
