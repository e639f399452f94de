//! Interrupt handlers that complete requests.

use std::{
    sync::{Arc, atomic::Ordering, mpsc},
    thread,
    time::Duration,
};

use transom_guest::channel::ChannelError;

use crate::{
    calls::call,
    fake::{ALL, Fake},
    platform::{SLEEPING, device},
};

/// Longer than anything here takes, unless it waits forever.
const FOREVER: Duration = Duration::from_secs(60);

#[test]
fn a_handler_waits_neither_for_a_reset_nor_for_the_thread_that_resets() {
    let fake = Arc::new(Fake::new(ALL, 1, 16));
    let device = Arc::new(device(&fake, SLEEPING));
    // The device cannot be reset yet because it is accessing memory.
    let reaching = fake.reaching.lock().unwrap();
    let interrupt = |told: &mpsc::Sender<()>| {
        let (device, told) = (Arc::clone(&device), told.clone());
        // On a thread of its own, which is abandoned if it does not return.
        thread::spawn(move || {
            device.interrupt(1);
            told.send(()).unwrap();
        })
    };
    let (sender, returned) = mpsc::channel();

    // 1. The handler is the first to see that the device lies: nobody waits for a reply.
    fake.push_with_index(1, 7, 0, 5);
    let handler = interrupt(&sender);
    returned.recv_timeout(FOREVER).expect("the handler waits for a reset");
    handler.join().unwrap();
    assert!(!fake.is_resetting.load(Ordering::SeqCst));

    // 2. A thread has seen it, and waits for the reset: it may be the one that is interrupted.
    let caller = {
        let device = Arc::clone(&device);
        thread::spawn(move || call(&device, 0, &[1; 40], &[]))
    };
    while !fake.is_resetting.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    let handler = interrupt(&sender);
    returned.recv_timeout(FOREVER).expect("the handler waits for the thread that it interrupted");
    handler.join().unwrap();

    // 3. Once the device releases the memory, the caller gets the cause.
    drop(reaching);
    let error = caller.join().unwrap().unwrap_err();
    assert_eq!(error, ChannelError::Broken("its used index is ahead of what it was given"));
}
