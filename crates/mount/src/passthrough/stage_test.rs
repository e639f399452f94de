//! [`PassthroughStage`] without a daemon, and with sockets in place of `/dev/fuse`.

use transom_wire::{attr::Attr, ops::setupmapping::SetupmappingIn};
use zerocopy::FromZeros as _;

use super::{super::backing_requests::BackingFileRequests, *};
use crate::{
    request_queue::RequestQueue,
    testing::{FakeKernel, answer, fuse_device, header_of, queue, request, submit},
};

const NODE: NodeId = NodeId(5);
const FMODE_EXEC: u32 = 0x20;

/// Two workers of one mount, each with its kernel's side.
struct Workers {
    stages: [PassthroughStage; 2],
    kernels: [FakeKernel; 2],
}

fn workers(is_on: bool) -> Workers {
    let mut passthrough = Passthrough::new(true, None, 2);
    passthrough.requests = BackingFileRequests::new(1);
    passthrough.begin(is_on);
    let (shared, devices) = (Arc::new(passthrough), Arc::<FuseDevices>::default());
    let [(first, first_kernel), (second, second_kernel)] = [fuse_device(), fuse_device()];
    devices.set(vec![Arc::clone(&first), Arc::clone(&second)]);
    let stage = |worker, device| PassthroughStage::new(worker, device, Arc::clone(&devices), Arc::clone(&shared));
    Workers { stages: [stage(0, first), stage(1, second)], kernels: [first_kernel, second_kernel] }
}

fn open_args(flags: u32) -> [u8; ARGS_LEN] {
    let mut args = [0; ARGS_LEN];
    args[..4].copy_from_slice(&flags.to_le_bytes());
    args
}

/// The refusal of an OPEN of [`NODE`] with `flags`, by `stage`.
fn refusal(stage: &PassthroughStage, flags: u32) -> Option<Errno> {
    let header = InHeader { pid: 7.into(), ..header_of(&request(Opcode::Open, 2, NODE.0, &[])) };
    stage.refusal(stage.kind(&header, &open_args(flags)), &header)
}

/// Has `stage` take over a reply of the daemon with `body`.
fn take_open(stage: &PassthroughStage, queue: &mut RequestQueue, kind: RequestKind, body: &[u8]) -> bool {
    let slot = submit(queue, &request(Opcode::Open, 2, NODE.0, &[0; 8]), kind);
    let used = answer(queue, slot, 2, 0, body);
    let reply = crate::reply_out::Reply::read(queue, used);
    let is_taken = stage.take_open(kind, 2, reply.message.unwrap().1).unwrap();
    queue.complete(slot);
    is_taken
}

fn open_out(flags: OpenFlags) -> OpenOut {
    OpenOut { fh: 3.into(), open_flags: flags.bits().into(), backing_id: 0.into() }
}

#[test]
fn with_passthrough_off_nothing_is_held_back_or_refused() {
    let Workers { stages: [stage, _], kernels } = workers(false);
    let header = header_of(&request(Opcode::Open, 2, NODE.0, &[]));
    let kind = stage.kind(&header, &open_args(libc::O_RDWR as u32));
    assert!(matches!(kind, RequestKind::Forwarded));
    assert_eq!(stage.refusal(kind, &header), None);
    assert!(!take_open(&stage, &mut queue(), kind, open_out(OpenFlags::empty()).as_bytes()));
    assert!(!stage.has_commands() && kernels[0].reply().is_none());
}

#[test]
fn an_open_waits_for_the_daemons_file_and_is_answered_through_the_worker_that_read_it() {
    let Workers { stages: [first, second], kernels } = workers(true);
    let kind = RequestKind::Open(NODE, OpenMode(libc::O_RDONLY as u32));
    assert!(take_open(&first, &mut queue(), kind, open_out(OpenFlags::KEEP_CACHE).as_bytes()));
    assert!(kernels[0].reply().is_none(), "it waits");

    // Another worker sends the request and gets the reply. There is no file with it.
    let (command, message) = second.next_command().unwrap();
    let (header, args) = InHeader::read_from_prefix(&message).unwrap();
    assert_eq!((header.opcode.get(), header.nodeid.get()), (Opcode::Setupmapping as u32, NODE.0));
    assert_eq!(SetupmappingIn::read_from_bytes(args).unwrap().moffset.get(), 0);
    second.command_done(command, Err(Errno::IO)).unwrap();
    let (header, body) = kernels[0].reply().expect("through the first worker's descriptor");
    let out = OpenOut::read_from_bytes(&body[..]).unwrap();
    assert_eq!((header.unique.get(), header.error.get()), (2, 0));
    assert_eq!((out.fh.get(), out.backing_id.get(), out.open_flags.get()), (3, 0, OpenFlags::KEEP_CACHE.bits()));
    assert!(kernels[1].reply().is_none());
    assert!(!second.has_commands() && second.next_command().is_none());
}

#[test]
fn a_mapping_that_succeeded_is_removed_again() {
    let Workers { stages: [stage, _], .. } = workers(true);
    let kind = RequestKind::Open(NODE, OpenMode(libc::O_RDONLY as u32));
    take_open(&stage, &mut queue(), kind, open_out(OpenFlags::empty()).as_bytes());
    let (map, _) = stage.next_command().unwrap();
    stage.command_done(map, Ok(())).unwrap();
    let (unmap, message) = stage.next_command().unwrap();
    assert_eq!(unmap, MappingCommand::Unmap { range: 0, nodeid: NODE });
    assert_eq!(header_of(&message).opcode.get(), Opcode::Removemapping as u32);
    stage.command_done(unmap, Ok(())).unwrap();
    assert!(!stage.has_commands());
}

#[test]
fn a_file_that_cannot_be_cached_is_answered_at_once() {
    let Workers { stages: [stage, _], kernels } = workers(true);
    let kind = RequestKind::Open(NODE, OpenMode(libc::O_RDONLY as u32));
    assert!(take_open(&stage, &mut queue(), kind, open_out(OpenFlags::STREAM).as_bytes()));
    let (_, body) = kernels[0].reply().unwrap();
    assert_eq!(OpenOut::read_from_bytes(&body[..]).unwrap().open_flags.get(), OpenFlags::STREAM.bits());
    assert!(!stage.has_commands());
}

#[test]
fn a_reply_that_is_not_one_to_an_open_is_forwarded() {
    let Workers { stages: [stage, _], .. } = workers(true);
    let open = RequestKind::Open(NODE, OpenMode(0));
    assert!(!take_open(&stage, &mut queue(), open, &[0; 3]));
    // An entry of the root, or of something other than a regular file, which the kernel rejects.
    let create = RequestKind::Create(OpenMode(0));
    let directory = EntryOut { nodeid: 9.into(), attr: attr(libc::S_IFDIR), ..EntryOut::new_zeroed() };
    let root = EntryOut { nodeid: 1.into(), attr: attr(libc::S_IFREG), ..EntryOut::new_zeroed() };
    for entry in [directory, root] {
        let body = [entry.as_bytes(), open_out(OpenFlags::empty()).as_bytes()].concat();
        assert!(!take_open(&stage, &mut queue(), create, &body));
    }
}

#[test]
fn a_set_id_program_that_is_open_for_writing_cannot_be_executed_until_it_is_released() {
    let Workers { stages: [stage, other], .. } = workers(true);
    let mut queue = queue();
    assert_eq!(refusal(&stage, libc::O_WRONLY as u32), None);
    let attr = attr(libc::S_IFREG | libc::S_ISUID);
    let out = EntryOut { nodeid: NODE.into(), attr_valid: 9.into(), attr, ..EntryOut::new_zeroed() };
    let kind = RequestKind::Entry;
    let slot = submit(&mut queue, &request(Opcode::Lookup, 2, 1, b"program\0"), kind);
    let used = answer(&queue, slot, 2, 0, out.as_bytes());
    let (_, body) = crate::reply_out::Reply::read(&queue, used).message.unwrap();
    stage.adjust_attributes(kind, &body);
    let mut bytes = [0; size_of::<EntryOut>()];
    body.memory.read(body.offset, &mut bytes);
    assert_eq!(EntryOut::read_from_bytes(&bytes[..]).unwrap().attr_valid.get(), 0, "it expires at once");

    assert_eq!(refusal(&other, FMODE_EXEC), Some(Errno::TXTBSY));
    let release = ReleaseIn { flags: (libc::O_WRONLY as u32).into(), ..ReleaseIn::new_zeroed() };
    let mut args = [0; ARGS_LEN];
    args[..size_of::<ReleaseIn>()].copy_from_slice(release.as_bytes());
    stage.note_release(NODE, &args);
    assert_eq!(refusal(&other, FMODE_EXEC), Some(Errno::STALE), "it may have been written since");
    assert_eq!(refusal(&other, FMODE_EXEC), None);
}

fn attr(mode: u32) -> Attr {
    Attr { mode: mode.into(), ..Attr::new_zeroed() }
}
