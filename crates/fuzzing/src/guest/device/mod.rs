//! A device with arbitrary behaviour, under a driver that makes small calls.
//!
//! The device can access all of a pool at any time; everything else belongs to the driver.

mod calls;
mod fake;
mod rings;

use std::sync::Arc;

use transom_guest::{
    device::{Settings, VirtioFs},
    dma::{DmaChoice, WhenFull},
};

use super::{
    memory::{Pool, Reach},
    platform::Lone,
    tape::Tape,
};
use fake::{Fake, FakeTransport};

/// Starts the device of an input and calls it until the input ends.
///
/// # Panics
/// If memory is touched that was not lent to the device, if the driver keeps some of the pool, or if it would wait
/// forever.
pub fn run(bytes: &[u8]) {
    let tape = Tape::new(bytes);
    let flags = tape.byte();
    let pool = Pool::new(8 + usize::from(tape.byte()) % 64);
    let when_full = if flags & 1 == 0 { WhenFull::Fail } else { WhenFull::Wait(5000) };
    let platform = Arc::<Lone>::default();
    let ops = pool.ops(Arc::clone(&platform), when_full, flags & 2 != 0);
    let settings = Settings {
        queue_len_max: tape.choose(&[1024, 16, 8, 4, 0, 33]),
        in_flight_max: tape.choose(&[256, 1, 2, 5]),
        request_queues_max: Some(tape.choose(&[1, 2, 0])),
        poll_max_ns: if flags & 4 == 0 { 0 } else { 100_000 },
        pollers_max: 1,
        notification_buffers: 0,
    };
    let fake = Arc::new(Fake::new(Arc::clone(&tape), Reach::new(&pool)));
    let choice = DmaChoice::always(Arc::clone(&ops));
    match VirtioFs::new(FakeTransport(Arc::clone(&fake)), platform, &choice, settings) {
        Ok(device) => calls::until_over(&device, &tape, &fake),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    assert!(!fake.has_queues(), "the device was not reset");
    let counts = ops.counts();
    assert_eq!((counts.pool_used_bytes, counts.live_mappings), (0, 0), "everything was given back");
}
