//! Waiting for a lock, and interrupting the wait.

use std::thread;

use transom_guest::{Errno, session::Caller};
use transom_wire::{Handle, NodeId};

use crate::{
    peer::{ROOT, in_memory, name},
    scenarios::write_lock,
};

#[test]
fn a_request_that_waits_ends_when_it_is_interrupted() {
    let (peer, session) = in_memory();
    let (entry, open) = session.create(&ROOT, NodeId::ROOT, name("file"), 0o600, 2).unwrap();
    let (node, fh) = (NodeId::from(entry.nodeid), Handle::from(open.fh));
    session.setlk(&ROOT, node, &write_lock(fh, 1)).unwrap();
    let interrupt = session.interrupt();
    let caller = Caller { interrupt: Some(&interrupt), ..ROOT };
    thread::scope(|scope| {
        let waiter = scope.spawn(|| session.setlkw(&caller, node, &write_lock(fh, 2)));
        while peer.fs().held().waiters == 0 {
            thread::yield_now();
        }
        assert_eq!(interrupt.raise(), Ok(true));
        assert_eq!(waiter.join().unwrap(), Err(Errno::INTR));
    });
    assert_eq!(interrupt.raise(), Ok(false), "nothing is in flight");

    assert_eq!(session.setlk(&caller, node, &write_lock(fh, 1)), Err(Errno::INTR), "until it is cleared");
    interrupt.clear();
    session.setlk(&caller, node, &write_lock(fh, 1)).unwrap();
    session.release(&ROOT, node, fh, 2, 0, 0).unwrap();
    session.forget(node, 1);
}

#[test]
fn closing_goes_through_though_an_interrupt_is_wanted() {
    let (peer, session) = in_memory();
    let (entry, open) = session.create(&ROOT, NodeId::ROOT, name("file"), 0o600, 2).unwrap();
    let (node, fh) = (NodeId::from(entry.nodeid), Handle::from(open.fh));
    let interrupt = session.interrupt();
    assert_eq!(interrupt.raise(), Ok(false));
    let caller = Caller { interrupt: Some(&interrupt), ..ROOT };
    assert_eq!(session.getattr(&caller, node, None).err(), Some(Errno::INTR));
    session.flush(&caller, node, fh, 1).unwrap();
    session.release(&caller, node, fh, 2, 0, 0).unwrap();
    assert_eq!(peer.fs().held().handles, 0);
    session.forget(node, 1);
}
