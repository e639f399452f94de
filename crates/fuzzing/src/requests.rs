//! A sequence of whole requests to a file system in memory.

use transom_host::server::Server;
use transom_wire::{Opcode, ops::init::InitFlags};

use super::{
    answer::answer,
    decode::{init, message},
    input::Input,
};
use transom_conformance::memfs::{Limits, MemFs};

/// So little that an input reaches every limit.
const LIMITS: Limits = Limits { inodes: 24, bytes: 64 << 10, file_bytes: 16 << 10, handles: 6 };
/// Rooms for an answer, which an input chooses from.
pub(super) const ROOMS: [usize; 8] = [0, 15, 16, 96, 144, 160, 528, 5000];

/// Serves requests, each as: operation, nodeid, room (a byte each), length of the body (two bytes), body.
///
/// Panics where an answer or the file system's accounts break an invariant.
pub fn run(bytes: &[u8]) {
    let server = Server::new(MemFs::new(LIMITS).deferring(3));
    answer(&server, &init(InitFlags::all()), usize::MAX, 80);
    let mut input = Input(bytes);
    while !input.is_empty() {
        let (opcode, nodeid, room, len) = (input.byte(), input.byte(), input.byte(), input.u16());
        let body = input.bytes(usize::from(len));
        answer(&server, &message(u32::from(opcode), u64::from(nodeid), body), 61, ROOMS[usize::from(room) % 8]);
        server.file_system().check_accounts();
    }
    answer(&server, &message(Opcode::Destroy as u32, 0, &[]), usize::MAX, 16);
    let held = server.file_system().held();
    assert_eq!((held.handles, held.lookups, held.waiters), (0, 0, 0), "the session has ended");
    server.file_system().check_accounts();
}
