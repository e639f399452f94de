//! Clients of the socket through which upgrades are requested: what each gets, and that none delays another.

use std::{
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    path::PathBuf,
};

use crate::{
    Guest, ask_meanwhile,
    launch::{Bench, Daemon},
    start, upgrade,
};

fn connect(bench: &Bench) -> UnixStream {
    let mut path = bench.socket().into_os_string();
    path.push(".upgrade");
    UnixStream::connect(PathBuf::from(path)).unwrap()
}

/// Sends `request` and returns the answer.
fn say(bench: &Bench, request: &[u8]) -> String {
    let mut stream = connect(bench);
    stream.write_all(request).unwrap();
    let mut answer = String::new();
    // Reset if not all of the request was read.
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn begin() -> (Bench, Daemon, Guest) {
    let bench = Bench::with_executable();
    let mut daemon = start(&bench, "");
    let guest = Guest::begin(&mut daemon);
    (bench, daemon, guest)
}

#[test]
fn only_the_request_upgrades() {
    let (bench, daemon, mut guest) = begin();
    let before = daemon.serving_pid();
    drop(connect(&bench));
    for request in ["x", "status\n", "upgradX\n", "UPGRADE\n"] {
        let answer = say(&bench, request.as_bytes());
        assert!(answer.contains("unknown request"), "{request:?}: {answer:?}");
    }
    let long = vec![b'a'; 1 << 20];
    let mut stream = connect(&bench);
    // It is not read to its end.
    let _ = stream.write_all(&long);
    // Half of the request, and then nobody.
    connect(&bench).write_all(b"upgr").unwrap();
    guest.session.getattr(1, None).unwrap();
    assert_eq!(daemon.serving_pid(), before, "nothing was upgraded");
    assert!(say(&bench, b"upgrade\n").starts_with("upgraded: "));
    while daemon.serving_pid() == before {
        guest.session.getattr(1, None).unwrap();
    }
}

#[test]
fn clients_that_say_nothing_delay_nobody() {
    let (bench, _daemon, mut guest) = begin();
    let mut silent: Vec<_> = (0..10).map(|_| connect(&bench)).collect();
    silent.iter_mut().for_each(|client| client.write_all(b"upgra").unwrap());
    upgrade(&bench);
    // One of them goes on.
    silent[3].write_all(b"de\n").unwrap();
    let mut answer = String::new();
    silent[3].read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("upgraded: "), "{answer}");
    // More than are served at once: the others wait until the first are sent away.
    silent.extend((0..20).map(|_| connect(&bench)));
    upgrade(&bench);
    let mut answer = String::new();
    silent[0].read_to_string(&mut answer).unwrap();
    assert!(answer.contains("no request has come"), "{answer}");
    guest.session.getattr(1, None).unwrap();
}

#[test]
fn many_clients_at_once_all_get_an_answer() {
    let (bench, _daemon, mut guest) = begin();
    let clients: Vec<_> = (0..8).map(|_| ask_meanwhile(&bench)).collect();
    for client in clients {
        let output = client.join().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    guest.session.getattr(1, None).unwrap();
}

#[test]
fn a_client_that_leaves_after_its_request_has_made_it() {
    let (bench, daemon, mut guest) = begin();
    let before = daemon.serving_pid();
    connect(&bench).write_all(b"upgrade\n").unwrap();
    while daemon.serving_pid() == before {
        guest.session.getattr(1, None).unwrap();
    }
    upgrade(&bench);
    guest.session.getattr(1, None).unwrap();
}
