//! Calls and started messages with an honest device.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use transom_guest::channel::{Channel, ChannelError, Message, OwnedMessage, Sink, Source};

use crate::{
    fake::{ALL, Chain, EVENT_IDX, Fake, INDIRECT_DESC, VERSION_1},
    platform::{Device, SLEEPING, device},
};

/// The device's reply: the sum of the bytes, then the bytes in reverse order.
pub(crate) fn echo(chain: &Chain) -> Vec<u8> {
    let sent = chain.sent();
    let sum: u64 = sent.iter().map(|&byte| u64::from(byte)).sum();
    sum.to_le_bytes().into_iter().chain(sent.into_iter().rev()).take(chain.room()).collect()
}

pub(crate) fn call(device: &Device, queue: u16, head: &[u8], data: &[u8]) -> Result<(), ChannelError> {
    let mut sum = [0; 8];
    let mut back = vec![0; head.len() + data.len() + 3];
    let message = Message { head, data: Source::Bytes(data), reply_head: &mut sum, reply_data: Sink::Bytes(&mut back) };
    let written = device.call(queue, message)?;
    assert_eq!(written, 8 + head.len() + data.len());
    let sent: Vec<u8> = [head, data].concat();
    assert_eq!(u64::from_le_bytes(sum), sent.iter().map(|&byte| u64::from(byte)).sum::<u64>());
    assert!(back.iter().take(sent.len()).eq(sent.iter().rev()));
    assert_eq!(back[sent.len()..], [0; 3]);
    Ok(())
}

#[test]
fn threads_that_call_at_the_same_time_each_get_their_own_reply() {
    for features in [ALL, VERSION_1 | INDIRECT_DESC, VERSION_1 | EVENT_IDX, VERSION_1] {
        let fake = Arc::new(Fake::new(features, 2, 16));
        let device = &device(&fake, SLEEPING);
        assert_eq!((device.tag(), device.request_queues()), (b"share".as_slice(), 2));
        thread::scope(|scope| {
            for queue in [1, 2] {
                let fake = &fake;
                scope.spawn(move || fake.serve(queue, echo));
            }
            let callers: Vec<_> = (0..8u16)
                .map(|caller| {
                    scope.spawn(move || {
                        for round in 0..200usize {
                            let head = vec![caller as u8 + 1; 40 + round * 7 % 900];
                            let data = vec![round as u8; round * 131 % 9000];
                            call(device, caller % 2, &head, &data).unwrap();
                        }
                    })
                })
                .collect();
            callers.into_iter().for_each(|caller| caller.join().unwrap());
            fake.vanish();
        });
    }
}

#[test]
fn a_guessed_ticket_of_a_priority_message_is_unknown_before_and_after_its_reply() {
    const SLOTS: u64 = 8;
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        let fake = Arc::new(Fake::new(ALL, 1, SLOTS as u16));
        let device = device(&fake, SLEEPING);
        let guess_all = || {
            // A ticket is a count, the queue, which is 0, and a slot.
            for guessed in (0..4 * SLOTS).flat_map(|count| (0..SLOTS).map(move |slot| count << 26 | slot)) {
                let outcome = device.finish(transom_guest::channel::Ticket(guessed));
                assert_eq!(outcome.err(), Some(ChannelError::Broken("an unknown ticket")), "{guessed:#x}");
            }
        };
        for _ in 0..SLOTS / 2 {
            device.send_priority(&[1; 56]).unwrap();
        }
        guess_all();
        thread::scope(|scope| {
            scope.spawn(|| fake.serve(0, |_| Vec::new()));
            // Each goes into a slot whose reply has come.
            for _ in 0..2 * SLOTS {
                device.send_priority(&[1; 56]).unwrap();
                guess_all();
            }
            fake.vanish();
        });
        ended.send(()).unwrap();
    });
    // A guess that waits for the reply of another's message may never end.
    end.recv_timeout(Duration::from_secs(60)).expect("every guess is answered");
}

#[test]
fn started_messages_beyond_the_length_of_the_queue_are_all_finished_in_any_order() {
    let fake = Arc::new(Fake::new(ALL, 1, 8));
    let device = device(&fake, SLEEPING);
    thread::scope(|scope| {
        scope.spawn(|| fake.serve(1, echo));
        let tickets: Vec<_> = (0..100u8)
            .map(|number| {
                let data = Arc::new(device.buffer(1000).unwrap());
                data.fill(0, 1000, number);
                let room = Arc::new(device.buffer(100).unwrap());
                let message = OwnedMessage {
                    head: vec![number; 40],
                    data: Some((data, 10..20)),
                    reply_head_len: 8,
                    reply_data: Some((Arc::clone(&room), 7..80)),
                };
                (number, room, device.start(0, message).unwrap())
            })
            .collect();
        for (number, room, ticket) in tickets.into_iter().rev() {
            let reply = device.finish(ticket).unwrap();
            assert_eq!(reply.written, 58);
            assert_eq!(reply.head, (u64::from(number) * 50).to_le_bytes());
            let mut bytes = [0; 100];
            room.read(0, &mut bytes);
            assert!(bytes[7..57].iter().all(|&byte| byte == number) && bytes[57..] == [0; 43]);
        }
        assert_eq!(
            device.finish(transom_guest::channel::Ticket(77 << 26)).err(),
            Some(ChannelError::Broken("an unknown ticket"))
        );
        drop(device);
    });
}
