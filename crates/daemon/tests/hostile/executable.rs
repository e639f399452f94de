//! The same harm to transomd itself, with a directory that it shares.

use transom_wire::Opcode;

use crate::{host::Daemon, messages, requests, rings};

#[test]
fn transomd_survives_random_rings() {
    rings::random_rings(&Daemon::executable());
}

#[test]
fn transomd_survives_any_message() {
    messages::any_messages(&Daemon::executable());
}

#[test]
fn transomd_survives_any_request() {
    // FALLOCATE of any length would fill the disk of whoever runs this.
    let served = requests::any_requests(&Daemon::executable(), &[Opcode::Setlkw, Opcode::Fallocate]);
    assert_eq!(served, 70);
}

#[test]
fn transomd_serves_a_session() {
    Daemon::executable().is_healthy();
}
