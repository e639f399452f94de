//! DESTROY on one queue while requests that leave something open are under way on another.

use transom_frontend::{Options, fuse::Session};
use transom_wire::{
    Opcode,
    ops::{create::CreateIn, lk::LkIn, open::OpenIn},
};
use zerocopy::{FromZeros, IntoBytes};

use crate::host::{Daemon, REQUEST};

/// Rounds; without an order between the two, a few of a hundred leave something.
const ROUNDS: usize = 300;

#[test]
fn what_destroy_overtakes_leaves_nothing_behind() {
    let daemon = Daemon::executable_with(&["--posix-lock", "--flock"]);
    let (front_end, mut session) = daemon.session_with(Options { queue_size: 256, ..Options::default() });
    let mut second = Session::new(front_end.start_queue(REQUEST + 1).unwrap());
    let mut traces = Vec::new();
    for round in 0..ROUNDS {
        let file = session.create(1, b"file", libc::O_RDWR as u32, 0o644).unwrap();
        let nodeid = file.entry.nodeid.get();
        // 1. A ring full of requests that open, lock and look up.
        let mut create = CreateIn::new_zeroed();
        (create.flags, create.mode) = ((libc::O_RDWR as u32).into(), 0o644.into());
        let mut lock = LkIn::new_zeroed();
        lock.fh = file.open.fh;
        lock.lk.type_ = (libc::F_RDLCK as u32).into();
        let mut owner = 0;
        loop {
            owner += 1;
            lock.owner = owner.into();
            let (opcode, node, body) = match (owner as usize + round) % 4 {
                0 => (Opcode::Opendir, 1, OpenIn::new_zeroed().as_bytes().to_vec()),
                1 => (Opcode::Create, 1, [create.as_bytes(), b"file\0"].concat()),
                2 => (Opcode::Lookup, 1, b"file\0".to_vec()),
                _ => (Opcode::Setlk, nodeid, lock.as_bytes().to_vec()),
            };
            let header = second.header(opcode as u32, node, body.len());
            if second.exchange.submit(&[header.as_bytes(), &body], &[16, 240]).is_none() {
                break;
            }
        }
        second.exchange.kick.wake().unwrap();
        // 2. Some of them are served when DESTROY comes; more in each round.
        while usize::from(second.exchange.ring.used_idx().wrapping_sub((round * 256) as u16)) < round % 200 {
            std::thread::yield_now();
        }
        session.destroy().unwrap();
        second.exchange.wait_for_all().unwrap();
        // 3. Nobody is left to release what is held now.
        let held = ["transom_open_files", "transom_lock_owners", "transom_inodes"].map(|gauge| daemon.metric(gauge));
        if held != [0; 3] {
            traces.push((round, held));
        }
        session.init(transom_wire::ops::init::InitFlags::all()).unwrap();
    }
    assert_eq!(traces, [], "in {} of {ROUNDS} rounds files, lock owners or inodes were left", traces.len());
}
