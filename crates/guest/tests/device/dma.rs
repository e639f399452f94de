//! The bounce pool: what is copied, what is counted, and what happens when it is full.

use std::{sync::Arc, thread};

use transom_guest::{
    Errno,
    channel::{Channel, ChannelError, Message, OwnedMessage, Sink, Source},
    device::{Settings, VirtioFs},
    dma::{Bounce, DmaBuffer, DmaChoice, DmaError, DmaOps, WhenFull},
};

use crate::{
    calls::{call, echo},
    fake::{ALL, Fake, FakeTransport},
    memory::allocate,
    platform::{Device, SLEEPING, Threads},
};

fn pool(pages: usize, when_full: WhenFull) -> Arc<Bounce<Threads>> {
    Arc::new(Bounce::new(Arc::new(Threads), allocate(pages * 4096), when_full))
}

fn device(fake: &Arc<Fake>, pool: &Arc<Bounce<Threads>>) -> Device {
    let dma = DmaChoice::always(Arc::clone(pool) as Arc<dyn DmaOps>);
    let settings = Settings { in_flight_max: 8, ..SLEEPING };
    VirtioFs::new(FakeTransport(Arc::clone(fake)), Arc::new(Threads), &dma, settings).unwrap()
}

#[test]
fn only_what_was_written_is_copied_out_and_everything_is_given_back() {
    let pool = pool(64, WhenFull::Fail);
    let fake = Arc::new(Fake::new(ALL, 1, 16));
    let device = device(&fake, &pool);
    let before = device.dma_counts();
    thread::scope(|scope| {
        scope.spawn(|| fake.serve(1, |chain| chain.sent()[8..].to_vec()));
        let mut data = [0xaa; 5000];
        let mut head = [0; 16];
        let sent = [7; 3000];
        let message = Message {
            head: &[1; 40],
            data: Source::Bytes(&sent),
            reply_head: &mut head,
            reply_data: Sink::Bytes(&mut data),
        };
        assert_eq!(device.call(0, message), Ok(3032));
        assert_eq!(data[..16], [1; 16]);
        assert_eq!(data[16..3016], [7; 3000]);
        assert_eq!(data[3016..], [0xaa; 1984]);
        let counts = device.dma_counts();
        assert_eq!(counts.mapped_bytes, 8000);
        assert_eq!(counts.bounced_bytes, 3000 + 3016);
        assert_eq!((counts.live_mappings, counts.pool_used_bytes), (0, before.pool_used_bytes));

        // A buffer of the pool is accessed in place.
        let buffer = device.buffer(4096).unwrap();
        let mut head = [0; 16];
        let message = Message {
            head: &[1; 40],
            data: Source::Buffer(&buffer, 0, 4096),
            reply_head: &mut head,
            reply_data: Sink::Empty,
        };
        assert_eq!(device.call(0, message), Ok(16));
        assert_eq!(device.dma_counts().bounced_bytes, counts.bounced_bytes);
        drop(device);
    });
    assert_eq!(pool.counts().pool_used_bytes, 0);
}

#[test]
fn callers_wait_for_a_pool_that_is_full_and_get_their_bytes() {
    // Ten pages are for rings and heads. Each call takes one page and then one more, so of six callers one can always
    // go on, whatever the others hold.
    let pool = pool(18, WhenFull::Wait(u64::MAX));
    let fake = Arc::new(Fake::new(ALL, 1, 16));
    let device = &device(&fake, &pool);
    assert_eq!(device.dma_counts().pool_used_bytes, 10 * 4096);
    thread::scope(|scope| {
        scope.spawn(|| fake.serve(1, echo));
        let callers: Vec<_> = (0..6u8)
            .map(|caller| {
                scope.spawn(move || {
                    for round in 0..200usize {
                        call(device, 0, &[caller; 40], &vec![round as u8; 1 + round * 173 % 4000]).unwrap();
                    }
                })
            })
            .collect();
        callers.into_iter().for_each(|caller| caller.join().unwrap());
        fake.vanish();
    });
    assert_eq!(device.dma_counts().live_mappings, 0);
}

#[test]
fn a_pool_that_may_not_be_waited_for_says_what_it_lacks() {
    let pool = pool(4, WhenFull::Fail);
    let ops: Arc<dyn DmaOps> = Arc::clone(&pool) as Arc<dyn DmaOps>;
    let held: Vec<_> = (0..4).map(|_| DmaBuffer::new(&ops, 4096).unwrap()).collect();
    let error = DmaError::Exhausted { wanted_bytes: 1, pool_bytes: 4 * 4096 };
    assert_eq!(DmaBuffer::new(&ops, 1).err(), Some(error));
    assert_eq!(pool.counts().exhaustions, 1);
    held[1].fill(0, 4096, 0xff);
    drop(held);
    let whole = DmaBuffer::new(&ops, 4 * 4096).unwrap();
    let mut bytes = [1; 4 * 4096];
    whole.read(0, &mut bytes);
    assert_eq!(bytes, [0; 4 * 4096]);
}

#[test]
fn a_message_that_is_abandoned_gives_its_buffers_back_once_the_device_has_used_it() {
    // Ten pages are for rings and heads, and four for two buffers.
    let pool = pool(14, WhenFull::Fail);
    let fake = Arc::new(Fake::new(ALL, 1, 16));
    let device = device(&fake, &pool);
    let start = || {
        let room = Arc::new(device.buffer(2 * 4096).expect("nothing is kept of what was abandoned"));
        let message = OwnedMessage {
            head: vec![1; 40],
            data: None,
            reply_head_len: 16,
            reply_data: Some((Arc::clone(&room), 0..2 * 4096)),
        };
        device.start(0, message).unwrap()
    };
    let answer = || {
        let chain = fake.pop(1).unwrap();
        fake.push(1, chain.head.into(), 16);
    };
    for _ in 0..20 {
        // 1. The reply is seen before.
        let ticket = start();
        answer();
        assert!(device.is_finished(&ticket));
        device.abandon(ticket);
        assert_eq!(pool.counts().pool_used_bytes, 10 * 4096);
        // 2. It comes before, and nobody has looked. 3. It comes after.
        let (second, third) = (start(), start());
        answer();
        device.abandon(second);
        device.abandon(third);
        answer();
    }
    drop(device);
    assert_eq!(pool.counts().pool_used_bytes, 0);
}

#[test]
fn a_buffer_of_another_device_is_refused() {
    let pool = pool(64, WhenFull::Fail);
    let fakes = [Arc::new(Fake::new(ALL, 1, 16)), Arc::new(Fake::new(ALL, 1, 16))];
    let other = device(&fakes[1], &self::pool(64, WhenFull::Fail));
    let device = device(&fakes[0], &pool);
    let buffer = Arc::new(other.buffer(4096).unwrap());
    let refused = ChannelError::Dma(DmaError::OtherDevice);
    let mut head = [0; 16];
    for (data, reply_data) in
        [(Source::Buffer(&buffer, 0, 10), Sink::Empty), (Source::Empty, Sink::Buffer(&buffer, 0, 10))]
    {
        let message = Message { head: &[1; 40], data, reply_head: &mut head, reply_data };
        assert_eq!(device.call(0, message), Err(refused.clone()));
    }
    let part = || Some((Arc::clone(&buffer), 0..10));
    for (data, reply_data) in [(part(), None), (None, part())] {
        let message = OwnedMessage { head: vec![1; 40], data, reply_head_len: 16, reply_data };
        assert_eq!(device.start(0, message).err(), Some(refused.clone()));
    }
    assert!(fakes[0].pop(1).is_none(), "nothing was sent");
    assert_eq!(Errno::from(refused), Errno::INVAL);
}
