//! Front ends that do not keep to the protocol, or do so in other ways: the supervisor neither hangs nor ends.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::{fd::AsFd as _, unix::net::UnixStream},
};

use transom_frontend::{
    FrontEnd, Options,
    fuse::Session,
    message::{Region, VERSION, header, protocol_feature, request, u32s, u64s},
    wake::WakeKind,
};

use crate::{
    Guest, HIPRIO, REQUEST,
    launch::{Bench, Daemon, has_user_namespaces, is_root, skipped},
    refused, start, upgrade,
};

/// Starts a daemon that goes on after each front end, and checks that it serves.
fn serving(bench: &Bench) -> Daemon {
    let mut daemon = start(bench, "--keep-serving");
    drop(Guest::begin(&mut daemon));
    daemon
}

#[test]
fn messages_without_sense_end_the_connection_and_not_the_daemon() {
    let bench = Bench::with_executable();
    let mut daemon = serving(&bench);
    let pid = daemon.serving_pid();
    let message = |number, flags, payload: &[u8]| [header(number, flags, payload.len()), payload.to_vec()].concat();
    let all = [
        b"nonsense that is longer than a header".to_vec(),
        header(request::SET_MEM_TABLE, VERSION, 4097),
        header(request::SET_MEM_TABLE, VERSION, usize::MAX),
        message(999, VERSION, &[]),
        message(request::SET_MEM_TABLE, VERSION, &[0xff; 4096]),
        message(request::SET_VRING_NUM, VERSION, &[0xff; 8]),
        message(request::SET_VRING_KICK, VERSION, &[0xff; 8]),
        message(request::SET_VRING_ADDR, VERSION, &[0xff; 3]),
        message(request::GET_VRING_BASE, VERSION, &u32s(&[u32::MAX, 0])),
        message(request::GET_FEATURES, 0xffff_ffff, &[]),
        message(request::GET_VRING_BASE, VERSION | 4, &u32s(&[0, 0])),
    ];
    for bytes in all {
        let mut stream = daemon.connect();
        stream.write_all(&bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        // Reset where the daemon has not read everything.
        let _ = stream.read_to_end(&mut rest);
    }
    assert_eq!(daemon.serving_pid(), pid, "the daemon has survived");
    let mut guest = Guest::begin(&mut daemon);
    upgrade(&bench);
    guest.session.getattr(1, None).unwrap();
    drop(guest);
}

#[test]
fn too_many_descriptors_end_the_connection() {
    let bench = Bench::with_executable();
    let mut daemon = serving(&bench);
    let front_end = FrontEnd::over(daemon.connect(), Options::default()).unwrap();
    let file = fs::File::open("/dev/null").unwrap();
    let fds = vec![file.as_fd(); 33];
    let bytes = [header(request::SET_MEM_TABLE, VERSION, 8), u32s(&[0, 0])].concat();
    front_end.channel.send_raw(&bytes, &fds).unwrap();
    front_end.channel.wait_for_close().unwrap();
    drop(front_end);
    let mut guest = Guest::begin(&mut daemon);
    guest.session.getattr(1, None).unwrap();
    drop(guest);
}

#[test]
fn a_front_end_that_reads_no_replies_delays_nobody_but_itself() {
    let bench = Bench::with_executable();
    let mut daemon = serving(&bench);
    let mut stream: UnixStream = daemon.connect();
    stream.set_nonblocking(true).unwrap();
    let ask = header(request::GET_FEATURES, VERSION, 0);
    // Until neither the daemon nor the supervisor takes more.
    let mut refusals = 0;
    while refusals < 100 {
        match stream.write(&ask) {
            Ok(len) => assert_eq!(len, ask.len()),
            Err(_) => {
                refusals += 1;
                std::thread::yield_now();
            }
        }
    }
    drop(stream);
    let mut guest = Guest::begin(&mut daemon);
    upgrade(&bench);
    guest.session.getattr(1, None).unwrap();
    drop(guest);
}

#[test]
fn a_front_end_in_the_middle_of_its_setup_goes_on() {
    let bench = Bench::with_executable();
    let mut daemon = serving(&bench);
    // Half a header: the rest comes after the upgrade.
    let mut stream = daemon.connect();
    let ask = header(request::GET_FEATURES, VERSION, 0);
    stream.write_all(&ask[..5]).unwrap();
    upgrade(&bench);
    stream.write_all(&ask[5..]).unwrap();
    let mut reply = [0; 20];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..4], ask[..4]);
    drop(stream);

    // Everything but the rings, and without acknowledgements.
    let options = Options { acknowledged: false, ..Options::default() };
    let front_end = FrontEnd::over(daemon.connect(), options).unwrap();
    upgrade(&bench);
    let hiprio = front_end.start_queue(HIPRIO).unwrap();
    let queue = front_end.start_queue(REQUEST).unwrap();
    upgrade(&bench);
    let mut session = Session::begin(queue).unwrap();
    upgrade(&bench);
    session.getattr(1, None).unwrap();
    // Stopped rings, as of a paused guest.
    let base = front_end.stop_queue(REQUEST).unwrap();
    upgrade(&bench);
    front_end.restart_queue(REQUEST, &session.exchange, base).unwrap();
    session.getattr(1, None).unwrap();
    drop((session, hiprio, front_end));
}

#[test]
fn memory_that_came_in_pieces_is_there_afterwards() {
    let bench = Bench::with_executable();
    let mut daemon = serving(&bench);
    let front_end = FrontEnd::over(daemon.connect(), Options::default()).unwrap();
    assert_ne!(front_end.protocol_features & protocol_feature::CONFIGURE_MEM_SLOTS, 0);
    let whole = front_end.ram.region();
    let part = whole.size / 16;
    let regions = (0..16).map(|number| Region {
        guest_addr: whole.guest_addr + number * part,
        size: part,
        user_addr: whole.user_addr + number * part,
        mmap_offset: whole.mmap_offset + number * part,
    });
    let payload = |region: Region| [u64s(&[0]), region.to_bytes()].concat();
    front_end.channel.tell(request::REM_MEM_REG, &payload(whole), &[]).unwrap();
    for region in regions {
        front_end.channel.tell(request::ADD_MEM_REG, &payload(region), &[front_end.ram.file()]).unwrap();
        // It is taken away again, and comes back.
        front_end.channel.tell(request::REM_MEM_REG, &payload(region), &[]).unwrap();
        front_end.channel.tell(request::ADD_MEM_REG, &payload(region), &[front_end.ram.file()]).unwrap();
    }
    let hiprio = front_end.start_queue(HIPRIO).unwrap();
    let mut session = Session::begin(front_end.start_queue(REQUEST).unwrap()).unwrap();
    for _ in 0..2 {
        upgrade(&bench);
        session.getattr(1, None).unwrap();
    }
    drop((session, hiprio, front_end));
}

#[test]
fn a_guest_that_is_being_migrated_is_not_upgraded() {
    let bench = Bench::with_executable();
    let mut daemon = start(&bench, "");
    let mut guest = Guest::begin(&mut daemon);
    let log = transom_frontend::dirty::DirtyLog::new(guest.front_end.ram.size()).unwrap();
    guest.front_end.send_log(&log).unwrap();
    guest.front_end.switch_log(true, &[(REQUEST, &guest.session.exchange.ring)]).unwrap();
    assert!(refused(&bench).contains("migrated"));
    guest.session.getattr(1, None).unwrap();
    guest.front_end.switch_log(false, &[(REQUEST, &guest.session.exchange.ring)]).unwrap();
    upgrade(&bench);
    guest.session.getattr(1, None).unwrap();
    drop(guest);
}

#[test]
fn kicks_that_cannot_be_repeated_are_refused() {
    let bench = Bench::with_executable();
    let mut daemon = start(&bench, "");
    let options = Options { wake: WakeKind::Pipe, ..Options::default() };
    let front_end = FrontEnd::over(daemon.connect(), options).unwrap();
    let mut session = Session::begin(front_end.start_queue(REQUEST).unwrap()).unwrap();
    assert!(refused(&bench).contains("eventfd"));
    session.getattr(1, None).unwrap();
    drop((session, front_end));
}

#[test]
fn a_guest_that_waits_for_a_lock_is_not_upgraded_and_gets_it() {
    let bench = Bench::with_executable();
    fs::write(bench.share().join("file"), "").unwrap();
    let mut daemon = start(&bench, "--flock");
    let mut guest = Guest::begin(&mut daemon);
    let another = guest.front_end.start_queue(REQUEST + 1).unwrap();
    let session = &mut guest.session;
    let file = session.lookup(1, b"file").unwrap().nodeid.get();
    let fh = session.open(file, libc::O_RDWR as u32).unwrap();
    let held = fs::File::options().write(true).open(bench.share().join("file")).unwrap();
    held.lock().unwrap();
    let waiter = std::thread::spawn(move || {
        let mut session = Session::new(another);
        session.flock_waiting(file, fh, 7, libc::F_WRLCK as u32).unwrap();
    });
    // Until the request waits; an upgrade before that just happens.
    while crate::ask(&bench).status.success() {}
    assert!(refused(&bench).contains("lock"));
    guest.session.getattr(1, None).unwrap();
    held.unlock().unwrap();
    waiter.join().unwrap();
    upgrade(&bench);
    drop(guest);
}

#[test]
fn daemons_of_ordinary_users_are_upgraded() {
    if is_root() && !has_user_namespaces() {
        return skipped("user namespaces are not allowed here");
    }
    let bench = Bench::of_ordinary_user();
    let mut daemon = start(&bench, "");
    let mut guest = Guest::begin(&mut daemon);
    let created = guest.session.create(1, b"file", libc::O_RDWR as u32, 0o600).unwrap();
    for _ in 0..2 {
        upgrade(&bench);
        let (nodeid, fh) = (created.entry.nodeid.get(), created.open.fh.get());
        guest.session.write(nodeid, fh, 0, b"content").unwrap();
    }
    drop(guest);
    assert!(daemon.wait().0.success());
    assert_eq!(bench.left_behind(), Vec::<String>::new());
}
