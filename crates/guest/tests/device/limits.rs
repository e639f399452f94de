//! The longest messages that a queue takes.

use std::{sync::Arc, thread};

use transom_guest::channel::{Channel, ChannelError, Message, OwnedMessage, Sink, Source};

use crate::{
    calls::echo,
    fake::{ALL, Fake},
    platform::{SLEEPING, device},
};

#[test]
fn no_part_of_a_message_is_longer_than_the_channel_says() {
    let fake = Arc::new(Fake::new(ALL, 1, 16));
    let device = device(&fake, SLEEPING);
    let len_max = device.data_len_max();
    thread::scope(|scope| {
        scope.spawn(|| fake.serve(1, echo));
        let _end = fake.vanish_at_the_end();
        let try_lens = |data: usize, room: usize| {
            let (data, mut room, mut sum) = (vec![1; data], vec![0; room], [0; 8]);
            device.call(
                0,
                Message {
                    head: &[1; 40],
                    data: Source::Bytes(&data),
                    reply_head: &mut sum,
                    reply_data: Sink::Bytes(&mut room),
                },
            )
        };
        let too_long = Err(ChannelError::TooLong { len_bytes: len_max + 1, len_max_bytes: len_max });
        assert_eq!(try_lens(len_max, 10), Ok(18));
        // The device has as many bytes as were sent.
        assert_eq!(try_lens(10, len_max), Ok(58));
        assert_eq!(try_lens(len_max, len_max), Ok(8 + len_max));
        assert_eq!(try_lens(len_max + 1, 10), too_long);
        assert_eq!(try_lens(10, len_max + 1), too_long);
    });
}

#[test]
fn a_range_beyond_its_buffer_is_refused_and_one_up_to_its_end_is_not() {
    let fake = Arc::new(Fake::new(ALL, 1, 16));
    let device = device(&fake, SLEEPING);
    thread::scope(|scope| {
        scope.spawn(|| fake.serve(1, echo));
        let _end = fake.vanish_at_the_end();
        let buffer = Arc::new(device.buffer(1000).unwrap());
        let len = buffer.len();
        let start = |range| {
            let message = OwnedMessage {
                head: vec![1; 40],
                data: None,
                reply_head_len: 8,
                reply_data: Some((Arc::clone(&buffer), range)),
            };
            device.start(0, message)
        };
        let ticket = start(len - 100..len).unwrap();
        assert_eq!(device.finish(ticket).unwrap().written, 48);
        let error = start(len - 100..len + 1).err();
        assert_eq!(error, Some(ChannelError::TooLong { len_bytes: len + 1, len_max_bytes: len }));
        let mut head = [0; 8];
        let outside = device.call(
            0,
            Message {
                head: &[1; 40],
                data: Source::Buffer(&buffer, len - 1, 2),
                reply_head: &mut head,
                reply_data: Sink::Empty,
            },
        );
        assert_eq!(outside, Err(ChannelError::TooLong { len_bytes: len + 1, len_max_bytes: len }));
    });
}
