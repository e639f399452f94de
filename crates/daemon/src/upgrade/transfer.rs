//! Carries a session from one daemon to another: its state in pieces, then its descriptors, then an end.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use transom_host::migration::HandOver;

use super::{DESCRIPTORS_MAX, receive_packet, send_packet};

/// Bytes of the state in one packet. Well below the size of a socket's buffer.
const PIECE_LEN: usize = 32 << 10;
/// The longest state, as of a migration.
const STATE_LEN_MAX: usize = 256 << 20;

const STATE: u8 = 1;
const DESCRIPTORS: u8 = 2;
const END: u8 = 3;

/// Sends a session. Waits while the other daemon does not read.
pub(super) fn send(socket: BorrowedFd<'_>, session: &HandOver) -> io::Result<()> {
    let mut packet = Vec::with_capacity(1 + PIECE_LEN);
    for piece in session.state.chunks(PIECE_LEN) {
        packet.clear();
        packet.push(STATE);
        packet.extend_from_slice(piece);
        send_packet(socket, &packet, &[])?;
    }
    for descriptors in session.descriptors.chunks(DESCRIPTORS_MAX) {
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        send_packet(socket, &[DESCRIPTORS], &descriptors)?;
    }
    send_packet(socket, &[END], &[])
}

/// Receives a session: its state and its descriptors.
pub(super) fn receive(socket: BorrowedFd<'_>) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let (mut state, mut descriptors) = (Vec::new(), Vec::new());
    let mut buffer = vec![0; 1 + PIECE_LEN];
    loop {
        let (len, received) = receive_packet(socket, &mut buffer)?;
        descriptors.extend(received);
        match &buffer[..len] {
            [STATE, piece @ ..] if state.len() + piece.len() <= STATE_LEN_MAX => state.extend_from_slice(piece),
            [STATE, ..] => return Err(io::Error::other("the state has more than 256 MiB")),
            [DESCRIPTORS] => {}
            [END] => return Ok((state, descriptors)),
            [] => return Err(io::Error::other("the other daemon has stopped in the middle")),
            _ => return Err(io::Error::other("the other daemon sent an unknown packet")),
        }
    }
}
