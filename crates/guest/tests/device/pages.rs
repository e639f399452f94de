//! Memory whose pages may lie anywhere for the device, and platforms without threads.

use std::{ptr::NonNull, sync::Arc};

use transom_guest::{
    channel::{Channel, ChannelError, Message, Sink, Source},
    device::VirtioFs,
    dma::{Bounce, Direct, DirectMemory, DmaChoice, DmaError, DmaMemory, WhenFull},
    platform::{self, Platform},
};

use crate::{
    calls::{call, echo},
    fake::{ALL, Fake, FakeTransport, INDIRECT_DESC},
    memory::{Heap, allocate},
    platform::{SLEEPING, Threads},
    polled::Polled,
};

const PAGE: usize = 4096;

/// The lengths that architectures have.
const PAGE_LENS: [usize; 3] = [4 << 10, 16 << 10, 64 << 10];

/// The most that one message carries, however long pages are.
const LEN_MAX: usize = 1 << 20;

/// The heap, with addresses only for pieces within a page of this length.
struct Paged(Heap, usize);

impl DirectMemory for &'static Paged {
    fn allocate(&self, len_bytes: usize) -> Option<DmaMemory> {
        (&self.0).allocate(len_bytes)
    }

    fn free(&self, memory: DmaMemory) {
        (&self.0).free(memory);
    }

    fn address(&self, start: NonNull<u8>, len_bytes: usize) -> Option<u64> {
        assert!(start.addr().get() % self.1 + len_bytes <= self.1, "{len_bytes} bytes at {start:p} cross a page");
        Some(start.addr().get() as u64)
    }

    fn contiguous_len_max(&self) -> usize {
        self.1
    }
}

#[test]
fn data_is_cut_at_pages_of_each_length_and_arrives_whole_wherever_it_begins() {
    PAGE_LENS.into_iter().for_each(check_pages);
}

fn check_pages(page: usize) {
    for (features, queue_len, pages) in [(ALL, 1024, 256), (ALL, 128, 125), (ALL & !INDIRECT_DESC, 128, 29)] {
        let heap: &'static Paged = Box::leak(Box::new(Paged(Heap::new(), page)));
        let dma = DmaChoice { direct: Some(Arc::new(Direct::new(heap))), ..DmaChoice::default() };
        let fake = Arc::new(Fake::new(features, 1, queue_len));
        let device = VirtioFs::new(FakeTransport(Arc::clone(&fake)), Arc::new(Threads), &dma, SLEEPING).unwrap();
        let len_max = device.data_len_max();
        assert_eq!(len_max, (pages * page).min(LEN_MAX));
        std::thread::scope(|scope| {
            scope.spawn(|| fake.serve(1, echo));
            // Both directions together have the descriptors of one; each of these leaves room for the other.
            for (offset, len) in [(0, len_max / 2 - 2 * page), (1, page), (page - 1, 2), (page - 1, 3 * page), (7, 100)]
            {
                let bytes = vec![9; offset + len];
                call(&device, 0, &[3; 40], &bytes[offset..]).unwrap();
            }
            for offset in [0, 1, page - 1] {
                let bytes = vec![5; offset + len_max];
                let mut sum = [0; 8];
                let message = Message {
                    head: &[1; 40],
                    data: Source::Bytes(&bytes[offset..]),
                    reply_head: &mut sum,
                    reply_data: Sink::Empty,
                };
                assert_eq!(device.call(0, message), Ok(8));
                assert_eq!(u64::from_le_bytes(sum), 40 + 5 * len_max as u64);
            }
            let long = vec![0; len_max + 1];
            let too_long = ChannelError::TooLong { len_bytes: len_max + 1, len_max_bytes: len_max };
            assert_eq!(call(&device, 0, &[1], &long), Err(too_long));
            drop(device);
        });
    }
}

/// One thread, which can wait only by checking again.
struct Alone;

impl Platform for Alone {
    type RawMutex = parking_lot::RawMutex;
    type Event = Look;

    fn now_ns(&self) -> u64 {
        0
    }

    fn spawn(&self, _: &'static str, task: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        Err(task)
    }

    fn is_single_threaded(&self) -> bool {
        true
    }
}

#[derive(Default)]
struct Look;

impl platform::Event for Look {
    fn wait(&self, is_done: &mut dyn FnMut() -> bool, _: Option<u64>) -> bool {
        while !is_done() {}
        true
    }

    fn wake_all(&self) {}
}

/// A device that works only while it is waited for, one request at a time, the last one first.
fn serve_in_reverse(line: &FakeTransport, queue: u16) {
    let queue = usize::from(queue);
    let mut chains: Vec<_> = std::iter::from_fn(|| line.0.pop(queue)).collect();
    while let Some(chain) = chains.pop() {
        let written = chain.reply(&echo(&chain));
        line.0.push(queue, chain.head.into(), written);
    }
}

#[test]
fn one_thread_that_polls_calls_starts_and_sends_more_than_the_queue_holds() {
    let fake = Arc::new(Fake::new(ALL, 1, 8));
    let polled = Polled { line: FakeTransport(Arc::clone(&fake)), on_wait: serve_in_reverse };
    let device = VirtioFs::new(polled, Arc::new(Alone), &crate::platform::direct(), SLEEPING).unwrap();
    let start = |byte: u8| {
        let message = transom_guest::channel::OwnedMessage {
            head: vec![byte; 2],
            data: None,
            reply_head_len: 8,
            reply_data: None,
        };
        device.start(0, message).unwrap()
    };
    let tickets: Vec<_> = (0..30).map(start).collect();
    // The remaining ones get no reply, and the slots that they hold do not prevent a call.
    let mut sum = [0; 8];
    let message = Message { head: &[9; 5], data: Source::Empty, reply_head: &mut sum, reply_data: Sink::Empty };
    assert_eq!(device.call(0, message), Ok(8));
    for (byte, ticket) in (0u64..).zip(tickets) {
        assert_eq!(device.finish(ticket).unwrap().head, (2 * byte).to_le_bytes());
    }
    for _ in 0..100 {
        device.send_priority(&[2; 700]).unwrap();
    }
    assert!(device.queue_counts(0).unwrap().full > 0);
}

#[test]
fn one_thread_does_not_wait_for_room_that_only_it_could_give_back() {
    let pool = Bounce::new(Arc::new(Alone), allocate(64 * PAGE), WhenFull::Wait(u64::MAX));
    let polled = Polled { line: FakeTransport(Arc::new(Fake::new(ALL, 1, 8))), on_wait: serve_in_reverse };
    let device = VirtioFs::new(polled, Arc::new(Alone), &DmaChoice::always(Arc::new(pool)), SLEEPING).unwrap();
    let send = || {
        let message =
            Message { head: &[9; 5], data: Source::Bytes(&[1; 10]), reply_head: &mut [0; 8], reply_data: Sink::Empty };
        device.call(0, message)
    };
    let held: Vec<_> = std::iter::from_fn(|| device.buffer(PAGE).ok()).collect();
    let error = DmaError::Exhausted { wanted_bytes: 10, pool_bytes: 64 * PAGE };
    assert_eq!(send(), Err(ChannelError::Dma(error)));
    drop(held);
    assert_eq!(send(), Ok(8));
}
