//! Requests whose buffers lie in the window, as an `O_DIRECT` read into a mapped file makes them.

use std::{fs, os::fd::AsFd};

use rustix::io::Errno;
use transom_frontend::{
    FrontEnd,
    fuse::{Session, check_reply},
    message::{Region, mem_table, request},
    queue::{Completion, Queue},
    ring::{Descriptor, NEXT, WRITE},
};
use transom_wire::{Opcode, ops::read::ReadIn};
use zerocopy::{FromZeros, IntoBytes};

use crate::host::{RANGE, Share, contents, lookup};

/// Where the guest sees the window.
const WINDOW_ADDR: u64 = 1 << 40;

/// Announces what is mapped at `offset` as memory of the guest, as a front end without a notion of windows would.
fn announce(front_end: &FrontEnd, offset: u64) {
    let fd = front_end.expect_window().descriptor(offset).unwrap();
    let region = Region { guest_addr: WINDOW_ADDR, size: RANGE, user_addr: WINDOW_ADDR, mmap_offset: 0 };
    let table = mem_table(&[front_end.ram.region(), region]);
    front_end.channel.tell(request::SET_MEM_TABLE, &table, &[front_end.ram.file(), fd.as_fd()]).unwrap();
}

/// READ of `len` bytes, the data to arrive at a guest address of the caller's.
fn read_to(session: &mut Session<Queue>, nodeid: u64, fh: u64, addr: u64, len: u32) -> Result<usize, Errno> {
    let arg = ReadIn { fh: fh.into(), size: len.into(), ..ReadIn::new_zeroed() };
    let header = session.header(Opcode::Read as u32, nodeid, size_of::<ReadIn>());
    let queue = &mut session.exchange;
    let message = [header.as_bytes(), arg.as_bytes()].concat();
    let (sent, reply) = (queue.ram().alloc(message.len() as u64, 8), queue.ram().alloc(16, 8));
    queue.ram().write(sent.addr(), &message);
    let parts = [(sent.addr(), message.len() as u32, 0), (reply.addr(), 16, WRITE), (addr, len, WRITE)];
    let indices = parts.map(|_| queue.ring.take().unwrap());
    for (position, (addr, len, flags)) in parts.into_iter().enumerate() {
        let next = indices.get(position + 1).copied();
        let flags = flags | if next.is_some() { NEXT } else { 0 };
        queue.ring.set_descriptor(indices[position], Descriptor { addr, len, flags, next: next.unwrap_or(0) });
    }
    queue.ring.publish(indices[0]);
    let (head, used_len) = queue.wait_for_used().unwrap();
    assert_eq!(head, u32::from(indices[0]));
    queue.ring.give_back(&indices);
    let mut writable = queue.ram().read(reply.addr(), 16);
    writable.resize(16 + len as usize, 0);
    let payload = check_reply(&Completion { used_len, writable }, header.unique.get());
    payload.map(|payload| payload.len()).map_err(|error| error.errno().unwrap())
}

#[test]
fn buffers_in_the_window_are_an_error_or_hold_the_data() {
    for share in Share::each() {
        let (target, source) = (share.file("target", RANGE, 1), share.file("source", RANGE, 2));
        let (front_end, mut session) = share.session();
        let (target_id, source_id) = (lookup(&mut session, &target), lookup(&mut session, &source));
        session.setupmapping(target_id, 0, RANGE, 0, true).unwrap();
        announce(&front_end, 0);
        let fh = session.open(source_id, libc::O_RDONLY as u32).unwrap();
        for (at, len) in [(0, 4096), (RANGE - 4096, 4096), (12345, 60000)] {
            let expected = match read_to(&mut session, source_id, fh, WINDOW_ADDR + at, len) {
                Ok(count) => {
                    assert_eq!(count, len as usize);
                    contents(len.into(), 2)
                }
                Err(errno) => {
                    assert_eq!(errno, Errno::FAULT);
                    contents(RANGE, 1)[at as usize..][..len as usize].to_vec()
                }
            };
            assert!(fs::read(&target).unwrap()[at as usize..][..len as usize] == expected);
        }
        // The queue lives, also with buffers of its own.
        assert_eq!(session.read(source_id, fh, 0, 100).unwrap(), contents(100, 2));
        share.agrees(&front_end);
        drop((session, front_end));
        share.is_healthy();
    }
}

/// The pages are gone, and whoever touches them dies: not the daemon.
#[test]
fn buffers_in_a_file_that_was_truncated_are_an_error() {
    for share in Share::each() {
        let (target, source) = (share.file("target", RANGE, 1), share.file("source", RANGE, 2));
        let (front_end, mut session) = share.session();
        let (target_id, source_id) = (lookup(&mut session, &target), lookup(&mut session, &source));
        session.setupmapping(target_id, 0, RANGE, 0, true).unwrap();
        announce(&front_end, 0);
        session.truncate(target_id, 0).unwrap();
        let fh = session.open(source_id, libc::O_RDONLY as u32).unwrap();
        for at in [0, 4096, RANGE - 4096] {
            assert_eq!(read_to(&mut session, source_id, fh, WINDOW_ADDR + at, 4096), Err(Errno::FAULT));
        }
        assert_eq!(fs::metadata(&target).unwrap().len(), 0);
        assert_eq!(session.read(source_id, fh, 0, 100).unwrap(), contents(100, 2));
        drop((session, front_end));
        share.is_healthy();
    }
}

/// The front end says nothing of the window: addresses there are no memory that the daemon knows.
#[test]
fn buffers_in_a_window_that_was_not_announced_are_an_error() {
    for share in Share::each() {
        let source = share.file("source", RANGE, 2);
        let (front_end, mut session) = share.session();
        let source_id = lookup(&mut session, &source);
        session.setupmapping(source_id, 0, RANGE, 0, true).unwrap();
        let fh = session.open(source_id, libc::O_RDONLY as u32).unwrap();
        assert_eq!(read_to(&mut session, source_id, fh, WINDOW_ADDR, 4096), Err(Errno::FAULT));
        assert_eq!(session.read(source_id, fh, 0, 100).unwrap(), contents(100, 2));
        share.agrees(&front_end);
        drop((session, front_end));
        share.is_healthy();
    }
}
