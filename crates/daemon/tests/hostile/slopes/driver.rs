//! Sends requests by the ring-full, and looks at their answers only where a test asks.

use transom_frontend::{
    fuse::{Session, check_reply},
    queue::{Queue, Token},
};
use transom_wire::Opcode;
use zerocopy::IntoBytes;

/// A request to repeat.
pub(super) struct Request {
    pub(super) opcode: Opcode,
    pub(super) nodeid: u64,
    pub(super) body: Vec<u8>,
    /// Bytes for the reply's payload; `None` for a request that has no reply.
    pub(super) room: Option<usize>,
}

impl Request {
    /// A request with one structure and a reply of up to 512 bytes.
    pub(super) fn new(opcode: Opcode, nodeid: u64, body: &[u8]) -> Self {
        let room = (!opcode.has_no_reply()).then_some(512);
        Self { opcode, nodeid, body: body.to_vec(), room }
    }
}

/// Sends all of `requests`, as many at once as the ring takes; returns how many were answered without an error.
pub(super) fn send_all(session: &mut Session<Queue>, requests: impl Iterator<Item = Request>) -> u64 {
    let mut tokens = Vec::new();
    let mut successes = 0;
    for request in requests {
        let token = loop {
            match submit(session, &request) {
                Some(token) => break token,
                None => successes += collect(session, &mut tokens),
            }
        };
        tokens.push(token);
    }
    successes + collect(session, &mut tokens)
}

/// Puts one request on the ring without waking the device; `None` where the ring is full.
pub(super) fn submit(session: &mut Session<Queue>, request: &Request) -> Option<(Token, u64)> {
    let header = session.header(request.opcode as u32, request.nodeid, request.body.len());
    let message = [header.as_bytes(), &request.body].concat();
    let rooms = request.room.map(|room| 16 + room);
    Some((session.exchange.submit(&[&message], rooms.as_slice())?, header.unique.get()))
}

fn collect(session: &mut Session<Queue>, tokens: &mut Vec<(Token, u64)>) -> u64 {
    session.exchange.wait_for_all().unwrap();
    let completions = tokens.drain(..).map(|(token, unique)| (session.exchange.wait(token).unwrap(), unique));
    completions.filter(|(completion, unique)| check_reply(completion, *unique).is_ok()).count() as u64
}
