//! Rings that no driver would write.

use transom_frontend::{
    FrontEnd, Options,
    fuse::Session,
    message::{HANG_AFTER, mem_table, request, u32s, u64s},
    queue::Queue,
    ring::{Descriptor, INDIRECT, NEXT, Ring, WRITE},
    wake::{Wake, WakeKind},
};
use transom_wire::{Opcode, header::OutHeader};
use zerocopy::{FromBytes, IntoBytes};

use crate::host::{Daemon, REQUEST, use_it};

/// Lets `harm` break a queue, then finds the connection's other queue, this queue set up anew, and the daemon healthy.
fn survives(what: &str, harm: impl FnOnce(&FrontEnd, &mut Queue)) {
    eprintln!("{what}");
    let daemon = Daemon::start();
    let (front_end, session) = daemon.session_with(Options { indirect: false, ..Options::default() });
    let mut queue = session.exchange;
    harm(&front_end, &mut queue);
    let mut other = Session::new(front_end.start_queue(REQUEST + 1).unwrap());
    use_it(&mut other);
    front_end.stop_queue(REQUEST).unwrap();
    use_it(&mut Session::new(front_end.start_queue(REQUEST).unwrap()));
    drop((front_end, queue, other));
    daemon.is_healthy();
}

/// A GETATTR of the root in one buffer and its answer's room in another, as two descriptors.
fn getattr(queue: &Queue) -> [Descriptor; 2] {
    let header = transom_wire::header::InHeader {
        len: 56.into(),
        opcode: (Opcode::Getattr as u32).into(),
        unique: 77.into(),
        nodeid: 1.into(),
        uid: 0.into(),
        gid: 0.into(),
        pid: 0.into(),
        total_extlen: 0.into(),
        padding: 0.into(),
    };
    let ram = queue.ram();
    let end = ram.size();
    ram.write(end - 4096, &[header.as_bytes(), &[0; 16]].concat());
    ram.write(end - 2048, &[0xee; 256]);
    [
        Descriptor { addr: end - 4096, len: 56, flags: NEXT, next: 1 },
        Descriptor { addr: end - 2048, len: 120, flags: WRITE, next: 0 },
    ]
}

fn error_of(queue: &Queue) -> i32 {
    OutHeader::read_from_bytes(&queue.ram().read(queue.ram().size() - 2048, 16)).unwrap().error.get()
}

/// Offers `descriptors` as a chain from index 0 on; returns the used length.
fn offer(queue: &mut Queue, descriptors: &[Descriptor]) -> u32 {
    for (index, &descriptor) in descriptors.iter().enumerate() {
        queue.ring.set_descriptor(index as u16, descriptor);
    }
    queue.ring.publish(0);
    let (head, len) = queue.wait_for_used().unwrap();
    assert_eq!(head, 0);
    len
}

#[test]
fn a_chain_made_by_hand_is_served() {
    survives("by hand", |_, queue| {
        let chain = getattr(queue);
        assert_eq!(offer(queue, &chain), 120);
    });
}

#[test]
fn a_front_end_is_told_of_a_broken_ring() {
    for kind in [WakeKind::EventFd, WakeKind::Pipe] {
        let error = Wake::new(kind).unwrap();
        survives(&format!("told by {kind:?}"), |front_end, queue| {
            let number = u64s(&[u64::from(REQUEST)]);
            front_end.channel.tell(request::SET_VRING_ERR, &number, &[error.waking_end()]).unwrap();
            queue.ring.set_avail_idx(queue.ring.next_avail().wrapping_add(0x8000));
            queue.kick.wake().unwrap();
            assert!(error.wait(HANG_AFTER).unwrap());
        });
    }
}

#[test]
fn an_available_index_that_jumps_stops_the_queue() {
    for jump in [65, 1000, 0x7fff, 0x8000, 0xffff] {
        survives(&format!("jump by {jump}"), |_, queue| {
            queue.ring.set_avail_idx(queue.ring.next_avail().wrapping_add(jump));
            queue.kick.wake().unwrap();
        });
    }
}

#[test]
fn a_head_out_of_range_stops_the_queue() {
    for head in [64, 65, 0x7fff, 0xffff] {
        survives(&format!("head {head}"), |_, queue| {
            queue.ring.publish(head);
            queue.kick.wake().unwrap();
        });
    }
}

#[test]
fn a_ring_full_of_one_chain_is_served_as_often_as_it_is_offered() {
    survives("64 times the same head", |_, queue| {
        for (index, descriptor) in getattr(queue).into_iter().enumerate() {
            queue.ring.set_descriptor(index as u16, descriptor);
        }
        (0..64).for_each(|_| queue.ring.publish(0));
        for _ in 0..64 {
            assert_eq!(queue.wait_for_used().unwrap(), (0, 120));
        }
    });
}

#[test]
fn a_chain_with_a_loop_ends() {
    survives("a descriptor that is its own next", |_, queue| {
        let [readable, writable] = getattr(queue);
        offer(queue, &[readable, Descriptor { flags: WRITE | NEXT, next: 1, ..writable }]);
    });
    survives("two descriptors that are each other's next", |_, queue| {
        let [readable, writable] = getattr(queue);
        offer(queue, &[readable, Descriptor { flags: WRITE | NEXT, next: 0, ..writable }]);
    });
}

#[test]
fn a_next_out_of_range_ends_the_chain() {
    for next in [64, 0xffff] {
        survives(&format!("next {next}"), |_, queue| {
            let [readable, writable] = getattr(queue);
            offer(queue, &[readable, Descriptor { flags: WRITE | NEXT, next, ..writable }]);
        });
    }
}

#[test]
fn buffers_outside_memory_are_answered_with_a_fault_where_an_answer_fits() {
    let addresses = |size: u64| [size, size - 1, 1 << 40, u64::MAX, u64::MAX - 3, 1 << 63];
    for index in 0..6 {
        survives("writable data outside", |_, queue| {
            let [readable, writable] = getattr(queue);
            let addr = addresses(queue.ram().size())[index];
            let header = Descriptor { len: 16, flags: WRITE | NEXT, next: 2, ..writable };
            let used = offer(queue, &[readable, header, Descriptor { addr, len: 104, flags: WRITE, next: 0 }]);
            assert_eq!((used, error_of(queue)), (16, -libc::EFAULT));
        });
        survives("readable data outside", |_, queue| {
            let [readable, writable] = getattr(queue);
            let addr = addresses(queue.ram().size())[index];
            let header = Descriptor { len: 40, ..readable };
            let body = Descriptor { addr, len: 16, flags: NEXT, next: 2 };
            let used = offer(queue, &[header, body, writable]);
            assert_eq!((used, error_of(queue)), (16, -libc::EFAULT));
        });
        survives("everything outside", |_, queue| {
            let addr = addresses(queue.ram().size())[index];
            let [readable, writable] = getattr(queue);
            assert_eq!(offer(queue, &[Descriptor { addr, ..readable }, Descriptor { addr, ..writable }]), 0);
        });
    }
}

#[test]
fn descriptors_of_no_bytes_are_passed_over() {
    survives("zero lengths", |_, queue| {
        let [readable, writable] = getattr(queue);
        let nothing = |flags, next| Descriptor { addr: u64::MAX, len: 0, flags: flags | NEXT, next };
        let chain = [nothing(0, 1), Descriptor { next: 2, ..readable }, nothing(0, 3), nothing(WRITE, 4), writable];
        assert_eq!(offer(queue, &chain), 120);
    });
    survives("nothing but zero lengths", |_, queue| {
        let nothing = Descriptor { addr: 0, len: 0, flags: 0, next: 0 };
        assert_eq!(offer(queue, &[nothing]), 0);
    });
}

#[test]
fn a_readable_descriptor_behind_a_writable_one_is_refused() {
    survives("out of order", |_, queue| {
        let [readable, writable] = getattr(queue);
        let header = Descriptor { len: 40, ..readable };
        let body = Descriptor { addr: readable.addr + 40, len: 16, flags: 0, next: 0 };
        let used = offer(queue, &[header, Descriptor { flags: WRITE | NEXT, next: 2, ..writable }, body]);
        assert_eq!((used, error_of(queue)), (16, -libc::EFAULT));
    });
}

#[test]
fn buffers_that_share_memory_harm_only_the_guest() {
    survives("the reply over the request", |_, queue| {
        let [readable, writable] = getattr(queue);
        assert_eq!(offer(queue, &[readable, Descriptor { addr: readable.addr, ..writable }]), 120);
    });
    survives("the reply over the descriptor table", |_, queue| {
        let [readable, writable] = getattr(queue);
        let table = queue.ring.addresses()[0];
        assert_eq!(offer(queue, &[readable, Descriptor { addr: table, ..writable }]), 120);
    });
    survives("the reply over the available ring", |_, queue| {
        let [readable, writable] = getattr(queue);
        let avail = queue.ring.addresses()[1];
        queue.ring.set_descriptor(0, readable);
        queue.ring.set_descriptor(1, Descriptor { addr: avail, ..writable });
        queue.ring.publish(0);
        queue.wait_for_used().unwrap();
    });
}

#[test]
fn the_lengths_of_a_chain_may_add_up_to_more_than_memory() {
    survives("4 GiB by descriptors that share memory", |_, queue| {
        let [readable, _] = getattr(queue);
        let len = queue.ram().size() as u32;
        let mut chain = vec![readable];
        chain.extend((2..63).map(|next| Descriptor { addr: 0, len, flags: WRITE | NEXT, next }));
        chain.push(Descriptor { addr: 0, len, flags: WRITE, next: 0 });
        chain[0].len = 10;
        queue.ring.set_descriptor(0, chain[0]);
        offer(queue, &chain);
    });
}

fn indirect(queue: &mut Queue, table: &[Descriptor], len: u32) -> u32 {
    let bytes: Vec<u8> = table.iter().flat_map(|descriptor| descriptor.to_bytes()).collect();
    let addr = queue.ram().size() - (2 << 20);
    queue.ram().write(addr, &bytes);
    offer(queue, &[Descriptor { addr, len, flags: INDIRECT, next: 0 }])
}

/// As [`survives`], on a ring with indirect descriptors.
fn survives_indirect(what: &str, harm: impl Fn(&mut Queue)) {
    eprintln!("{what}");
    let daemon = Daemon::start();
    let (front_end, session) = daemon.session();
    let mut queue = session.exchange;
    harm(&mut queue);
    use_it(&mut Session::new(front_end.start_queue(REQUEST + 1).unwrap()));
    drop((front_end, queue));
    daemon.is_healthy();
}

#[test]
fn indirect_tables_of_every_bad_kind_are_survived() {
    survives_indirect("a good one", |queue| {
        let chain = getattr(queue);
        assert_eq!(indirect(queue, &chain, 32), 120);
    });
    for len in [0, 1, 15, 17, 31, 33, 0xffff_ffff, 0x8000_0000, 16 * 0x10000] {
        survives_indirect(&format!("a table of {len} bytes"), |queue| {
            let chain = getattr(queue);
            indirect(queue, &chain, len);
        });
    }
    survives_indirect("a table in a table", |queue| {
        let chain = getattr(queue);
        let addr = queue.ram().size() - (2 << 20);
        indirect(queue, &[Descriptor { addr, len: 32, flags: INDIRECT, next: 0 }, chain[1]], 32);
    });
    survives_indirect("a table outside memory", |queue| {
        offer(queue, &[Descriptor { addr: 1 << 50, len: 32, flags: INDIRECT, next: 0 }]);
    });
    survives_indirect("a table that continues on the ring", |queue| {
        let chain = getattr(queue);
        indirect(queue, &[chain[0], Descriptor { flags: WRITE | NEXT, next: 2, ..chain[1] }], 32);
    });
}

#[test]
fn an_indirect_table_with_65535_descriptors_is_answered() {
    survives_indirect("65535 descriptors of one byte", |queue| {
        let [readable, writable] = getattr(queue);
        let byte = |index: u16| Descriptor { addr: writable.addr, len: 1, flags: WRITE | NEXT, next: index + 1 };
        let mut table = vec![readable];
        table.extend((1..65534).map(byte));
        table.push(Descriptor { addr: writable.addr, len: 1, flags: WRITE, next: 0 });
        indirect(queue, &table, 65535 * 16);
    });
}

#[test]
fn rings_outside_memory_are_refused_or_stop_the_queue() {
    let daemon = Daemon::start();
    for part in 0..3 {
        for addr in [1 << 40, u64::MAX / 2, (16 << 20) - 4, (16 << 20) - 16, 16 << 20] {
            let front_end = daemon.connect();
            let ring = Ring::new(&front_end.ram, 64, true);
            let mut addresses = ring.addresses();
            addresses[part] = addr;
            // Refused, or found out when the ring is used.
            if front_end.send_addresses(REQUEST, addresses).is_err() {
                continue;
            }
            front_end.channel.tell(request::SET_VRING_NUM, &u32s(&[REQUEST, 64]), &[]).unwrap();
            let kick = transom_frontend::wake::Wake::new(transom_frontend::wake::WakeKind::EventFd);
            let kick = kick.unwrap();
            let index = u64s(&[u64::from(REQUEST)]);
            front_end.channel.tell(request::SET_VRING_KICK, &index, &[kick.waiting_end()]).unwrap();
            front_end.enable(REQUEST, true).unwrap();
            front_end.ram.store(addresses[1].min(front_end.ram.size() - 4) + 2, 1u16.to_le());
            kick.wake().unwrap();
            front_end.stop_queue(REQUEST).unwrap();
        }
    }
    daemon.is_healthy();
}

#[test]
fn an_available_ring_that_ends_outside_memory_does_not_keep_the_worker_busy() {
    let daemon = Daemon::start();
    let front_end = daemon.connect();
    let ring = Ring::new(&front_end.ram, 64, false);
    let [table, _, used] = ring.addresses();
    // The index is the last thing in memory; the entries are not.
    let avail = front_end.ram.size() - 4;
    front_end.send_ring(REQUEST, &ring).unwrap();
    front_end.send_addresses(REQUEST, [table, avail, used]).unwrap();
    front_end.ram.store(avail + 2, 1u16.to_le());
    let kick = transom_frontend::wake::Wake::new(transom_frontend::wake::WakeKind::EventFd).unwrap();
    let index = u64s(&[u64::from(REQUEST)]);
    front_end.channel.tell(request::SET_VRING_KICK, &index, &[kick.waiting_end()]).unwrap();
    front_end.enable(REQUEST, true).unwrap();
    kick.wake().unwrap();
    drop(front_end);
    daemon.is_healthy();
}

#[test]
fn queue_sizes_that_cannot_be_are_refused() {
    let daemon = Daemon::start();
    for size in [0, 32769, 65536, u32::MAX] {
        let front_end = daemon.connect();
        let told = front_end.channel.tell(request::SET_VRING_NUM, &u32s(&[REQUEST, size]), &[]);
        assert!(told.is_err(), "size {size}");
    }
    for size in [3, 63, 32767] {
        let front_end = daemon.connect();
        let ring = Ring::new(&front_end.ram, 64, true);
        front_end.send_ring(REQUEST, &ring).unwrap();
        // Refused or ignored.
        let _ = front_end.channel.tell(request::SET_VRING_NUM, &u32s(&[REQUEST, size]), &[]);
    }
    daemon.is_healthy();
}

#[test]
fn a_queue_said_to_be_larger_than_its_ring_harms_only_the_guest() {
    let daemon = Daemon::start();
    let (front_end, session) = daemon.session_with(Options { queue_size: 8, ..Options::default() });
    front_end.channel.tell(request::SET_VRING_NUM, &u32s(&[REQUEST, 32768]), &[]).unwrap();
    let mut queue = session.exchange;
    (0..300).for_each(|head| queue.ring.publish(head * 7));
    queue.kick.wake().unwrap();
    front_end.stop_queue(REQUEST).unwrap();
    drop((front_end, queue));
    daemon.is_healthy();
}

#[test]
fn a_memory_table_replaced_under_a_running_queue_is_survived() {
    let daemon = Daemon::start();
    let (front_end, mut session) = daemon.session();
    use_it(&mut session);
    // The rings are no longer memory.
    let elsewhere = transom_frontend::message::Region { guest_addr: 1 << 40, ..front_end.ram.region() };
    front_end.channel.tell(request::SET_MEM_TABLE, &mem_table(&[elsewhere]), &[front_end.ram.file()]).unwrap();
    session.exchange.submit(&[&[0; 40]], &[16]).unwrap();
    session.exchange.kick.wake().unwrap();
    front_end.stop_queue(REQUEST).unwrap();
    front_end.send_memory().unwrap();
    use_it(&mut Session::new(front_end.start_queue(REQUEST).unwrap()));
    drop((front_end, session));
    daemon.is_healthy();
}

#[test]
fn random_rings_are_survived() {
    random_rings(&Daemon::start());
}

/// Queues full of random descriptors, stopped or left.
pub(crate) fn random_rings(daemon: &Daemon) {
    let mut random = fastrand(0x5eed);
    for _ in 0..300 {
        let (front_end, session) = daemon.session();
        let mut queue = session.exchange;
        let [readable, _] = getattr(&queue);
        for index in 0..64 {
            let flags = random() as u16 & 7;
            let addr = match random() % 4 {
                0 => random(),
                1 => queue.ring.addresses()[random() as usize % 3],
                2 => readable.addr,
                _ => random() % queue.ram().size(),
            };
            let len = random() as u32 >> (random() % 32);
            queue.ring.set_descriptor(index, Descriptor { addr, len, flags, next: random() as u16 % 70 });
        }
        (0..random() % 65).for_each(|_| queue.ring.publish(random() as u16 % 65));
        queue.kick.wake().unwrap();
        if random().is_multiple_of(2) {
            front_end.stop_queue(REQUEST).unwrap();
        }
        drop((front_end, queue));
    }
    daemon.is_healthy();
}

/// A generator of numbers that are the same on every run (SplitMix64).
fn fastrand(mut state: u64) -> impl FnMut() -> u64 {
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
