//! The real server behind the fake device's rings. Tests of other crates include this file too.

#![allow(dead_code, reason = "each test uses some of it")]

use std::{path::Path, sync::Arc, thread};

use transom_host::{
    passthrough::{Config, Passthrough},
    server::{BlockingMode, FileSystem, GuestSlice, Scratch, ServeOutcome, Server},
};

use crate::fake::{Chain, Fake};

/// Serves `dir` on every queue, each once the driver has started it, until the driver resets the device.
pub(crate) fn serve_directory(fake: &Arc<Fake>, dir: &Path) -> Vec<thread::JoinHandle<()>> {
    let server = Arc::new(Server::new(Passthrough::open(dir, Config::default()).unwrap()));
    (0..=fake.request_queues as usize)
        .map(|queue| {
            let (fake, server, starts) = (Arc::clone(fake), Arc::clone(&server), fake.starts(queue));
            thread::spawn(move || {
                fake.wait_for_start(queue, starts);
                fake.serve(queue, |chain| answer(&server, chain));
            })
        })
        .collect()
}

/// Returns the server's reply to a request.
pub(crate) fn answer<F: FileSystem>(server: &Server<F>, chain: &Chain) -> Vec<u8> {
    let (mut sent, mut room) = (chain.sent(), vec![0; chain.room()]);
    let (sent, writable) = ([GuestSlice::from(&mut *sent)], [GuestSlice::from(&mut *room)]);
    let writable = if chain.room() == 0 { &[][..] } else { &writable };
    let ServeOutcome::Done(done) = server.handle(&sent, writable, &mut Scratch::default(), BlockingMode::MayBlock)
    else {
        panic!("deferred though it may block")
    };
    room.truncate(done.used_len_bytes as usize);
    room
}
