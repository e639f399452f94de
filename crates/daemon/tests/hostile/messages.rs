//! vhost-user messages that no front end would send.

use std::{
    fs::File,
    io::Read,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
};

use transom_frontend::{
    FrontEnd,
    fuse::Session,
    message::{Channel, NEED_REPLY, VERSION, header, mem_table, protocol_feature, request, u32s, u64s},
    ram::Ram,
    wake::{Wake, WakeKind},
};

use crate::host::{Daemon, REQUEST, use_it};

fn raw(daemon: &Daemon) -> Channel {
    Channel::new(UnixStream::connect(daemon.socket()).unwrap()).unwrap()
}

/// A front end's messages up to a queue that runs: bytes and descriptors of each.
fn set_up<'a>(ram: &'a Ram, kick: &'a Wake, call: &'a Wake) -> Vec<(Vec<u8>, Vec<BorrowedFd<'a>>)> {
    let message = |number, payload: &[u8]| [&header(number, VERSION, payload.len()), payload].concat();
    let user = |addr| ram.user_addr(addr);
    let index = u64s(&[u64::from(REQUEST)]);
    let addresses = [u32s(&[REQUEST, 0]), u64s(&[user(0x1000), user(0x3000), user(0x2000), 0])].concat();
    vec![
        (message(request::GET_FEATURES, &[]), vec![]),
        (message(request::GET_PROTOCOL_FEATURES, &[]), vec![]),
        (message(request::SET_PROTOCOL_FEATURES, &u64s(&[protocol_feature::MQ])), vec![]),
        (message(request::GET_QUEUE_NUM, &[]), vec![]),
        (message(request::SET_OWNER, &[]), vec![]),
        (message(request::SET_FEATURES, &u64s(&[1 << 32 | 1 << 30])), vec![]),
        (message(request::SET_MEM_TABLE, &mem_table(&[ram.region()])), vec![ram.file()]),
        (message(request::SET_VRING_NUM, &u32s(&[REQUEST, 64])), vec![]),
        (message(request::SET_VRING_BASE, &u32s(&[REQUEST, 0])), vec![]),
        (message(request::SET_VRING_ADDR, &addresses), vec![]),
        (message(request::SET_VRING_CALL, &index), vec![call.waking_end()]),
        (message(request::SET_VRING_KICK, &index), vec![kick.waiting_end()]),
        (message(request::SET_VRING_ENABLE, &u32s(&[REQUEST, 1])), vec![]),
        (message(request::GET_VRING_BASE, &u32s(&[REQUEST, 0])), vec![]),
    ]
}

#[test]
fn a_front_end_may_leave_after_any_byte_of_its_set_up() {
    let daemon = Daemon::start();
    let ram = Ram::new(1 << 20).unwrap();
    let (kick, call) = (Wake::new(WakeKind::EventFd).unwrap(), Wake::new(WakeKind::EventFd).unwrap());
    let messages = set_up(&ram, &kick, &call);
    kick.wake().unwrap();
    let mut departures = 0;
    for last in 0..messages.len() {
        for cut in 1..=messages[last].0.len() {
            // Each byte of the header, then some of the payload.
            if cut > 16 && cut % 7 != 0 && cut != messages[last].0.len() {
                continue;
            }
            let channel = raw(&daemon);
            for (bytes, fds) in &messages[..last] {
                channel.send_raw(bytes, fds).unwrap();
            }
            let (bytes, fds) = &messages[last];
            channel.send_raw(&bytes[..cut], fds).unwrap();
            departures += 1;
        }
    }
    assert!(departures > 200, "{departures}");
    daemon.is_healthy();
}

#[test]
fn a_front_end_that_says_nothing_is_survived() {
    let daemon = Daemon::start();
    for _ in 0..20 {
        drop(raw(&daemon));
    }
    daemon.is_healthy();
}

/// VIRTIO_F_ACCESS_PLATFORM.
const ACCESS_PLATFORM: u64 = 1 << 33;

/// User Mode Linux asks for features once, and its kernel cannot use this one; QEMU asks once more.
#[test]
fn access_by_the_platform_is_offered_to_front_ends_that_ask_again_after_the_protocol_features() {
    let daemon = Daemon::start();
    let channel = raw(&daemon);
    assert_eq!(channel.ask_u64(request::GET_FEATURES).unwrap() & ACCESS_PLATFORM, 0);
    let _ = channel.ask_u64(request::GET_PROTOCOL_FEATURES).unwrap();
    let offered = channel.ask_u64(request::GET_FEATURES).unwrap();
    assert_eq!(offered & ACCESS_PLATFORM, ACCESS_PLATFORM);
    // With an IOMMU, a front end negotiates it. The daemon says that it cannot serve that, and stays.
    channel.tell(request::SET_FEATURES, &u64s(&[1 << 32 | 1 << 30 | ACCESS_PLATFORM]), &[]).unwrap();
    drop(channel);
    daemon.is_healthy();
}

#[test]
fn every_message_number_with_any_payload_is_survived() {
    any_messages(&Daemon::start());
}

/// Every message number, with any payload, flags and descriptors.
pub(crate) fn any_messages(daemon: &Daemon) {
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        state >> 24
    };
    for number in (0..=64).chain([u32::MAX, 1000]) {
        for round in 0..12 {
            // Half of them meet a connection that is set up.
            let front_end = (round % 2 == 0).then(|| daemon.connect());
            let session = front_end.as_ref().map(|front_end| front_end.start_queue(REQUEST).unwrap());
            let other = front_end.is_none().then(|| raw(daemon));
            let channel = front_end.as_ref().map_or_else(|| other.as_ref().unwrap(), |front_end| &front_end.channel);
            let len = [0, 4, 8, 12, 24, 32, 40, 72][random() as usize % 8];
            let payload: Vec<u8> = (0..len / 4)
                .flat_map(|_| [0u32, 1, 8, u32::MAX, random() as u32][random() as usize % 5].to_le_bytes())
                .collect();
            let fds = vec![channel.as_fd(); random() as usize % 3];
            let flags = [VERSION, VERSION | NEED_REPLY, 0, 2, VERSION | 4, u32::MAX][random() as usize % 6];
            channel.send_raw(&[header(number, flags, payload.len()), payload].concat(), &fds).unwrap();
            drop((session, front_end, other));
        }
    }
    daemon.is_healthy();
}

#[test]
fn sizes_that_lie_are_survived() {
    let daemon = Daemon::start();
    for number in [request::SET_FEATURES, request::SET_MEM_TABLE, request::GET_CONFIG, request::SET_VRING_ADDR] {
        for size in [0, 1, 7, 9, 4095, 4096, 4097, 0x7fff_ffff, u32::MAX] {
            let channel = raw(&daemon);
            channel.send_raw(&[u32s(&[number, VERSION, size]), vec![0; 64]].concat(), &[]).unwrap();
        }
    }
    daemon.is_healthy();
}

/// Sends one message on a connection that is set up, and finds either this connection or the next one working.
fn message_is_survived(daemon: &Daemon, what: &str, harm: impl FnOnce(&FrontEnd)) {
    eprintln!("{what}");
    let front_end = daemon.connect();
    let queue = front_end.start_queue(REQUEST).unwrap();
    harm(&front_end);
    drop((front_end, queue));
    daemon.is_healthy();
}

#[test]
fn descriptors_that_are_missing_or_wrong_are_survived() {
    let daemon = Daemon::start();
    let (pipe_reads, pipe_writes) = std::io::pipe().unwrap();
    let (socket, _other) = UnixStream::pair().unwrap();
    let null = File::open("/dev/null").unwrap();
    let directory = File::open("/").unwrap();
    let wrong: [(&str, BorrowedFd<'_>); 5] = [
        ("a pipe to read", pipe_reads.as_fd()),
        ("a pipe to write", pipe_writes.as_fd()),
        ("a socket", socket.as_fd()),
        ("/dev/null", null.as_fd()),
        ("a directory", directory.as_fd()),
    ];
    let index = u64s(&[u64::from(REQUEST)]);
    for (what, fd) in wrong {
        for count in 0..3 {
            for number in [request::SET_VRING_KICK, request::SET_VRING_CALL, request::SET_VRING_ERR] {
                message_is_survived(&daemon, &format!("request {number}: {count} times {what}"), |front_end| {
                    // What it answers, if it answers, is its own choice.
                    let _ = front_end.channel.tell(number, &index, &vec![fd; count]);
                });
            }
            message_is_survived(&daemon, &format!("memory: {count} times {what}"), |front_end| {
                let table = mem_table(&[front_end.ram.region()]);
                let _ = front_end.channel.tell(request::SET_MEM_TABLE, &table, &vec![fd; count]);
                let _ = front_end.channel.tell(request::SET_VRING_ENABLE, &u32s(&[REQUEST, 1]), &[]);
            });
        }
    }
}

/// Makes a message out of what the front end has.
type Message = fn(&FrontEnd) -> Vec<u8>;

#[test]
fn memory_tables_that_cannot_be_are_survived() {
    let daemon = Daemon::start();
    let tables: [(&str, Message, usize); 9] = [
        ("no region", |_| mem_table(&[]), 0),
        ("the same region twice", |it| mem_table(&[it.ram.region(); 2]), 2),
        ("a region of no bytes", |it| mem_table(&[with(it, |region| region.size = 0)]), 1),
        ("a region larger than its file", |it| mem_table(&[with(it, |region| region.size *= 2)]), 1),
        ("a region larger than the address space", |it| mem_table(&[with(it, |region| region.size = 1 << 62)]), 1),
        ("a region that wraps", |it| mem_table(&[with(it, |region| region.guest_addr = u64::MAX - 4096)]), 1),
        ("an offset that is no page", |it| mem_table(&[with(it, |region| region.mmap_offset = 1)]), 1),
        ("an offset behind the file", |it| mem_table(&[with(it, |region| region.mmap_offset = 1 << 40)]), 1),
        ("more regions than are sent", |_| u32s(&[8, 0]), 0),
    ];
    for (what, table, fds) in tables {
        message_is_survived(&daemon, what, |front_end| {
            let table = table(front_end);
            let told = front_end.channel.tell(request::SET_MEM_TABLE, &table, &vec![front_end.ram.file(); fds]);
            assert!(told.is_err(), "{what} was taken");
        });
    }
}

fn with(
    front_end: &FrontEnd,
    change: impl FnOnce(&mut transom_frontend::message::Region),
) -> transom_frontend::message::Region {
    let mut region = front_end.ram.region();
    change(&mut region);
    region
}

#[test]
fn regions_come_and_go_while_a_queue_runs() {
    let daemon = Daemon::start();
    let (front_end, mut session) = daemon.session();
    let second = Ram::new(1 << 20).unwrap();
    let mut region = second.region();
    (region.guest_addr, region.user_addr) = (1 << 32, 1 << 45);
    let payload = [vec![0; 8], region.to_bytes()].concat();
    for _ in 0..50 {
        front_end.channel.tell(request::ADD_MEM_REG, &payload, &[second.file()]).unwrap();
        use_it(&mut session);
        front_end.channel.tell(request::REM_MEM_REG, &payload, &[]).unwrap();
        use_it(&mut session);
    }
    // One that is not there, one that overlaps.
    front_end.channel.tell(request::REM_MEM_REG, &payload, &[]).unwrap_err();
    drop((front_end, session));
    let (front_end, session) = daemon.session();
    let overlapping = [vec![0; 8], front_end.ram.region().to_bytes()].concat();
    front_end.channel.tell(request::ADD_MEM_REG, &overlapping, &[front_end.ram.file()]).unwrap_err();
    drop((front_end, session));
    daemon.is_healthy();
}

#[test]
fn a_buffer_may_lie_in_two_regions() {
    let daemon = Daemon::start();
    let (front_end, session) = daemon.session();
    let mut queue = session.exchange;
    let second = Ram::new(1 << 20).unwrap();
    let mut region = second.region();
    (region.guest_addr, region.user_addr) = (front_end.ram.size(), 1 << 45);
    let payload = [vec![0; 8], region.to_bytes()].concat();
    front_end.channel.tell(request::ADD_MEM_REG, &payload, &[second.file()]).unwrap();
    // A header that is cut by the border, and an answer in the second region.
    let mut other = Session::new(front_end.start_queue(REQUEST + 1).unwrap());
    let message =
        [zerocopy::IntoBytes::as_bytes(&other.header(transom_wire::Opcode::Getattr as u32, 1, 16)), &[0; 16]].concat();
    let border = front_end.ram.size();
    front_end.ram.write(border - 20, &message[..20]);
    second.write(0, &message[20..]);
    let chain = [(border - 20, 56u32, 1u16, 1u16), (border + 4096, 120, 2, 0)];
    for (index, (addr, len, flags, next)) in chain.into_iter().enumerate() {
        let descriptor = transom_frontend::ring::Descriptor { addr, len, flags, next };
        queue.ring.set_descriptor(index as u16, descriptor);
    }
    queue.ring.publish(0);
    assert_eq!(queue.wait_for_used().unwrap().1, 120);
    assert_eq!(second.read(4096, 4), 120u32.to_le_bytes());
    use_it(&mut other);
}

#[test]
fn queue_numbers_that_are_not_there_are_refused() {
    let daemon = Daemon::start();
    for index in [3u32, 255, 256, 1 << 16, u32::MAX] {
        for number in [request::SET_VRING_NUM, request::SET_VRING_BASE, request::SET_VRING_ENABLE] {
            message_is_survived(&daemon, &format!("request {number} for queue {index}"), |front_end| {
                assert!(front_end.channel.tell(number, &u32s(&[index, 1]), &[]).is_err());
            });
        }
        message_is_survived(&daemon, &format!("GET_VRING_BASE of queue {index}"), |front_end| {
            assert!(front_end.stop_queue(index).is_err());
        });
    }
}

#[test]
fn a_configuration_that_is_not_there_is_not_given() {
    let daemon = Daemon::start();
    for (offset, size) in [(0u32, 41u32), (40, 1), (39, 2), (0, 256), (255, 1), (u32::MAX, 1), (1, u32::MAX)] {
        message_is_survived(&daemon, &format!("{size} bytes at {offset}"), |front_end| {
            let payload = [u32s(&[offset, size, 0]), vec![0; size.min(256) as usize]].concat();
            let answer = front_end.channel.ask(request::GET_CONFIG, &payload);
            assert!(answer.is_err() || answer.is_ok_and(|answer| answer.len() < 12 + size as usize));
        });
    }
}

#[test]
fn a_kick_before_there_is_a_ring_is_survived() {
    let daemon = Daemon::start();
    let front_end = daemon.connect();
    let kick = Wake::new(WakeKind::EventFd).unwrap();
    kick.wake().unwrap();
    let index = u64s(&[u64::from(REQUEST)]);
    front_end.channel.tell(request::SET_VRING_KICK, &index, &[kick.waiting_end()]).unwrap();
    front_end.enable(REQUEST, true).unwrap();
    front_end.enable(REQUEST, false).unwrap();
    front_end.enable(REQUEST, true).unwrap();
    assert_eq!(front_end.stop_queue(REQUEST).unwrap(), 0);
    drop(front_end);
    daemon.is_healthy();
}

#[test]
fn a_kick_that_promises_more_than_it_holds_does_not_hold_the_daemon() {
    let daemon = Daemon::start();
    // One byte of the eight, and the pipe stays open.
    let (reads, writes) = std::io::pipe().unwrap();
    rustix::io::write(&writes, b"k").unwrap();
    let (front_end, session) = daemon.session();
    let index = u64s(&[u64::from(REQUEST)]);
    front_end.channel.tell(request::SET_VRING_KICK, &index, &[reads.as_fd()]).unwrap();
    front_end.enable(REQUEST, true).unwrap();
    drop((front_end, session));
    daemon.is_healthy();
    drop(writes);
}

#[test]
fn a_call_that_nobody_reads_does_not_hold_the_daemon() {
    let daemon = Daemon::start();
    let (front_end, session) = daemon.session();
    let (mut reads, writes) = std::io::pipe().unwrap();
    let index = u64s(&[u64::from(REQUEST)]);
    front_end.channel.tell(request::SET_VRING_CALL, &index, &[writes.as_fd()]).unwrap();
    // More calls than the pipe holds.
    rustix::pipe::fcntl_setpipe_size(&writes, 4096).unwrap();
    let mut queue = session.exchange;
    for _ in 0..1000 {
        queue.submit(&[&[0; 40]], &[16]).unwrap();
        queue.kick.wake().unwrap();
        while queue.reap().unwrap() == 0 {
            std::thread::yield_now();
        }
        queue.ring.enable_call();
    }
    front_end.stop_queue(REQUEST).unwrap();
    drop((front_end, queue));
    daemon.is_healthy();
    drop(writes);
    let mut calls = Vec::new();
    reads.read_to_end(&mut calls).unwrap();
}
