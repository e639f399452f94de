//! One message of arbitrary bytes, sent to a file system on which every operation succeeds.

use transom_host::server::Server;
use transom_wire::{
    Opcode,
    agent::AGENT_GID,
    header::InHeader,
    ops::init::{InitFlags, InitIn},
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{answer::answer, input::Input, null::Null};

/// The bytes before the message: which features, into which pieces it is cut, what room the answer has.
pub(super) const PREFIX_LEN: usize = 4;

/// Serves one message. Panics where the answer breaks an invariant.
pub fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let (features, piece, room) = (input.byte(), input.byte(), input.u16());
    let header = InHeader::read_from_prefix(input.0).ok();
    let server = Server::new(Null { is_agents: header.is_some_and(|(header, _)| header.gid.get() == AGENT_GID) });
    if features & 1 != 0 {
        let flags = if features & 2 != 0 { InitFlags::all() } else { InitFlags::empty() };
        answer(&server, &init(flags), usize::MAX, 80);
    }
    let piece = if piece == 0 { usize::MAX } else { usize::from(piece) };
    answer(&server, input.0, piece, usize::from(room));
}

/// A whole INIT.
pub(super) fn init(flags: InitFlags) -> Vec<u8> {
    let mut arg = InitIn::new_zeroed();
    (arg.major, arg.minor) = (7.into(), 45.into());
    (arg.flags, arg.flags2) = ((flags.bits() as u32).into(), ((flags.bits() >> 32) as u32).into());
    message(Opcode::Init as u32, 0, arg.as_bytes())
}

/// A message whose header is right.
pub(super) fn message(opcode: u32, nodeid: u64, body: &[u8]) -> Vec<u8> {
    let mut header = InHeader::new_zeroed();
    header.len = ((size_of::<InHeader>() + body.len()) as u32).into();
    header.opcode = opcode.into();
    header.nodeid = nodeid.into();
    header.unique = 4711.into();
    [header.as_bytes(), body].concat()
}
