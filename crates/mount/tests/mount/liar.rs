//! A daemon that sends replies of the wrong length: each fails its own request, and no other.

use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

use transom_mount::{Mount, Options};
use transom_user::share::Share;
use transom_wire::{
    Opcode,
    attr::{Attr, AttrOut, EntryOut},
    header::{InHeader, OutHeader},
    ops::init::InitOut,
};
use vhost::vhost_user::{
    Listener,
    message::{VhostUserProtocolFeatures, VhostUserVirtioFeatures},
};
use vhost_user_backend::{VhostUserBackendMut, VhostUserDaemon, VringRwLock, VringT as _};
use virtio_queue::QueueT as _;
use vm_memory::{GuestAddressSpace as _, GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;
use zerocopy::{FromBytes as _, FromZeros as _, IntoBytes as _};

use crate::{needs_mounts, unmount};

const VERSION_1: u64 = 1 << 32;
const GOOD: u64 = 2;

struct Liar {
    memory: GuestMemoryAtomic<GuestMemoryMmap>,
}

impl VhostUserBackendMut for Liar {
    type Bitmap = ();
    type Vring = VringRwLock;

    fn num_queues(&self) -> usize {
        2
    }

    fn max_queue_size(&self) -> usize {
        1024
    }

    fn features(&self) -> u64 {
        VERSION_1 | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::empty()
    }

    fn set_event_idx(&mut self, _: bool) {}

    fn update_memory(&mut self, memory: GuestMemoryAtomic<GuestMemoryMmap>) -> std::io::Result<()> {
        self.memory = memory;
        Ok(())
    }

    fn handle_event(&mut self, event: u16, _: EventSet, vrings: &[VringRwLock], _: usize) -> std::io::Result<()> {
        let vring = &vrings[usize::from(event)];
        let memory = self.memory.memory();
        loop {
            let chain = vring.get_mut().get_queue_mut().pop_descriptor_chain(memory.clone());
            let Some(chain) = chain else { break };
            let (head, mut request) = (chain.head_index(), Vec::new());
            chain.clone().reader(&memory).unwrap().read_to_end(&mut request).unwrap();
            let mut writer = chain.writer(&memory).unwrap();
            let reply = reply(&request).unwrap_or_default();
            let len = reply.len().min(writer.available_bytes());
            writer.write_all(&reply[..len]).unwrap();
            vring.add_used(head, len as u32).unwrap();
        }
        vring.signal_used_queue()
    }
}

/// A directory with a file `good` and others, the answers about which have this many bytes beside those they should
/// have.
fn reply(request: &[u8]) -> Option<Vec<u8>> {
    let (header, args) = InHeader::read_from_prefix(request).unwrap();
    let attr = |ino: u64, mode: u32| Attr { ino: ino.into(), mode: mode.into(), nlink: 2.into(), ..Attr::new_zeroed() };
    let (mut error, mut body) = (0, Vec::new());
    match Opcode::from_u32(header.opcode.get()) {
        Some(Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt) => return None,
        Some(Opcode::Init) => {
            let out = InitOut { major: 7.into(), minor: 38.into(), max_write: (1 << 20).into(), ..InitOut::default() };
            body = out.as_bytes().to_vec();
        }
        Some(Opcode::Getattr) => {
            let (ino, mode) = (header.nodeid.get(), if header.nodeid.get() == GOOD { 0o100_644 } else { 0o40_755 });
            body = AttrOut { attr: attr(ino, mode), ..AttrOut::new_zeroed() }.as_bytes().to_vec();
        }
        Some(Opcode::Lookup) => {
            let entry = EntryOut { nodeid: GOOD.into(), attr: attr(GOOD, 0o100_644), ..EntryOut::new_zeroed() };
            body = entry.as_bytes().to_vec();
            match args.strip_suffix(b"\0").unwrap() {
                b"good" => {}
                b"short" => body.truncate(body.len() - 1),
                b"long" => body.push(0),
                b"longest" => body.resize(4096, 0),
                b"empty" => body.clear(),
                b"error" => (error, body) = (-libc::ENOENT, vec![0]),
                _ => (error, body) = (-libc::ENOENT, Vec::new()),
            }
        }
        Some(Opcode::Open | Opcode::Statfs) => body = vec![0; 24],
        _ => error = -libc::ENOSYS,
    }
    let len = (size_of::<OutHeader>() + body.len()) as u32;
    Some([OutHeader { len: len.into(), error: error.into(), unique: header.unique }.as_bytes(), &body].concat())
}

/// Serves one front end, on a thread that nobody waits for: that of the crate's ends with the process.
fn serve(socket: &Path) {
    let mut listener = Listener::new(socket, true).unwrap();
    thread::spawn(move || {
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
        let liar = Arc::new(Mutex::new(Liar { memory: memory.clone() }));
        let mut daemon = VhostUserDaemon::new("liar".into(), liar, memory).unwrap();
        daemon.start(&mut listener).unwrap();
        // That the front end has gone is an error.
        let _ = daemon.wait();
    });
}

#[test]
fn a_reply_of_another_length_fails_its_request_with_eio_and_no_other() {
    needs_mounts!();
    let (at, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    serve(&dir.path().join("socket"));
    let share = Share::builder().socket(dir.path().join("socket"));
    let mut mounted = Mount::start(share, at.path(), Options::default()).unwrap();
    let errno = |name: &str| fs::metadata(at.path().join(name)).err().and_then(|error| error.raw_os_error());
    for _ in 0..3 {
        for name in ["short", "long", "longest", "empty", "error"] {
            assert_eq!(errno(name), Some(libc::EIO), "{name}");
        }
        assert_eq!((errno("good"), errno("absent")), (None, Some(libc::ENOENT)));
        let opened = File::open(at.path().join("good")).map(drop);
        assert_eq!(opened.unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(rustix::fs::statvfs(at.path()).err(), Some(rustix::io::Errno::IO));
    }
    unmount(&mut mounted);
}
