//! Devices that lie, and devices that vanish: every caller gets an error, and the driver stays intact.

use std::{sync::Arc, thread};

use proptest::prelude::*;
use transom_guest::{
    channel::{Channel, ChannelError, Message, OwnedMessage, Sink, Source},
    device::Settings,
};

use crate::{
    calls::{call, echo},
    fake::{ALL, Fake, VERSION_1},
    platform::{SLEEPING, device},
};

const POLLING: Settings = Settings { poll_max_ns: 100_000, pollers_max: 2, ..SLEEPING };

/// What the device does with one request.
#[derive(Debug, Clone)]
enum Deed {
    Answer,
    Use { id: u32, written: u32, step: u16 },
    UseTwice,
    Overstate(u32),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        6 => Just(Deed::Answer),
        1 => (
            prop_oneof![0u32..20, any::<u32>()],
            prop_oneof![0u32..200, any::<u32>()],
            prop_oneof![0u16..4, any::<u16>()],
        )
            .prop_map(|(id, written, step)| Deed::Use { id, written, step }),
        1 => Just(Deed::UseTwice),
        1 => (1u32..1000).prop_map(Deed::Overstate),
    ]
}

fn misbehave(fake: &Fake, deeds: &[Deed]) {
    for deed in deeds {
        let Some(chain) = fake.pop_wait(1) else { break };
        let head = chain.head.into();
        fake.while_running(1, || match *deed {
            Deed::Answer => {
                let written = chain.reply(&echo(&chain));
                fake.push(1, head, written);
            }
            Deed::Use { id, written, step } => {
                fake.push_with_index(1, id, written, step);
            }
            Deed::UseTwice => {
                fake.push(1, head, 0);
                fake.push(1, head, 0);
            }
            Deed::Overstate(by) => {
                fake.push(1, head, chain.room() as u32 + by);
            }
        });
    }
    fake.vanish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_the_device_uses_every_caller_returns_and_later_ones_fail_at_once(
        deeds in prop::collection::vec(deed(), 0..40),
        is_polling in any::<bool>(),
        is_plain in any::<bool>(),
    ) {
        let fake = Arc::new(Fake::new(if is_plain { VERSION_1 } else { ALL }, 1, 16));
        let device = &device(&fake, if is_polling { POLLING } else { SLEEPING });
        thread::scope(|scope| {
            let fake = &fake;
            scope.spawn(move || misbehave(fake, &deeds));
            for caller in 0..3u8 {
                scope.spawn(move || loop {
                    let (mut head, mut data) = ([0; 8], [0; 700]);
                    let message = Message {
                        head: &[caller; 48],
                        data: Source::Bytes(&[caller; 600]),
                        reply_head: &mut head,
                        reply_data: Sink::Bytes(&mut data),
                    };
                    match device.call(0, message) {
                        // It claims to have written something, and nothing beyond the room.
                        Ok(written) => assert!(written <= 708),
                        Err(ChannelError::Broken(_) | ChannelError::Gone) => break,
                        Err(error) => panic!("{error}"),
                    }
                });
            }
            scope.spawn(|| {
                let message = OwnedMessage { head: vec![7; 48], data: None, reply_head_len: 64, reply_data: None };
                if let Ok(ticket) = device.start(0, message) {
                    let _ = device.finish(ticket);
                }
            });
        });
        prop_assert!(fake.resets() >= 2);
        prop_assert!(call(device, 0, &[1], &[]).is_err());
        prop_assert!(device.send_priority(&[1]).is_err());
    }
}

#[test]
fn callers_of_every_queue_are_woken_when_the_device_vanishes() {
    let fake = Arc::new(Fake::new(ALL, 3, 8));
    let device = &device(&fake, SLEEPING);
    thread::scope(|scope| {
        // More callers than slots, so that some wait for a slot.
        let callers: Vec<_> =
            (0..30u16).map(|caller| scope.spawn(move || call(device, caller % 3, &[1; 40], &[]))).collect();
        for queue in 1..=3 {
            fake.pop_wait(queue).unwrap();
        }
        fake.vanish();
        for caller in callers {
            assert_eq!(caller.join().unwrap(), Err(ChannelError::Gone));
        }
    });
}

#[test]
fn buffers_of_started_messages_are_freed_after_the_device_was_reset() {
    let fake = Arc::new(Fake::new(ALL, 1, 8));
    let device = device(&fake, SLEEPING);
    let room = Arc::new(device.buffer(4096).unwrap());
    let message = OwnedMessage {
        head: vec![1; 40],
        data: None,
        reply_head_len: 16,
        reply_data: Some((Arc::clone(&room), 0..4096)),
    };
    let ticket = device.start(0, message).unwrap();
    assert!(!device.is_finished(&ticket));
    assert_eq!((Arc::strong_count(&room), fake.resets()), (2, 1));
    drop(device);
    assert_eq!((Arc::strong_count(&room), fake.resets()), (1, 2));
}
