//! Measures the cost of DMA operations: 4 KiB reads and writes by 16 jobs of a device that answers at once, in the
//! thread that notifies it.
//!
//! Compares buffers that the device accesses, which bypass the operations altogether; direct operations; and a bounce
//! pool. Because there is no device latency to hide the cost, each share is an upper bound. Rounds alternate; medians
//! are printed as a table and as lines of JSON. Also measures one mapping and its end, through the trait object and by
//! static dispatch. `cargo run --release -p transom-guest --example dma [ROUNDS]`

#[allow(dead_code, clippy::unwrap_used, reason = "it belongs to the tests of the device, which use more of it")]
#[path = "../../tests/device/fake.rs"]
mod fake;
mod inline;
#[allow(dead_code, reason = "the tests of the device use more of it")]
#[path = "../../tests/device/memory.rs"]
mod memory;
mod operations;

use std::{
    sync::{Arc, Barrier},
    thread,
    time::Instant,
};

use transom_guest::{
    channel::{Channel, Message, Sink, Source},
    device::{Settings, VirtioFs},
    dma::{Bounce, Direct, DmaBuffer, DmaChoice, DmaOps, WhenFull},
};

use crate::{
    fake::{ALL, Fake},
    inline::{Inline, Threads},
    memory::{Heap, allocate},
};

const LEN: usize = 4096;
const JOBS: usize = 16;
const CALLS_PER_JOB: u32 = 2000;

type Device = VirtioFs<Threads, Inline>;

#[derive(Clone, Copy)]
enum Way {
    Without,
    Operations,
}

fn main() {
    let rounds: usize = std::env::args().nth(1).map_or(9, |rounds| rounds.parse().expect("a number of rounds"));
    let direct: Arc<dyn DmaOps> = Arc::new(Direct::new(&*Box::leak(Box::new(Heap::new()))));
    let bounce = Bounce::new(Arc::new(Threads), allocate(16 << 20), WhenFull::Wait(1_000_000_000));
    let (direct, bounce) = (device(direct), device(Arc::new(bounce)));
    let cases = [
        ("without", &direct, Way::Without),
        ("direct", &direct, Way::Operations),
        ("bounce", &bounce, Way::Operations),
    ];
    println!("{:8} {:6} {:>12} {:>12}", "", "", "ns a call", "of without");
    for is_write in [false, true] {
        let mut times = vec![Vec::new(); cases.len()];
        for _ in 0..rounds.max(1) {
            for (times, &(_, device, way)) in times.iter_mut().zip(&cases) {
                times.push(run(device, way, is_write));
            }
        }
        let medians: Vec<f64> = times.iter_mut().map(|times| median(times)).collect();
        let kind = if is_write { "write" } else { "read" };
        for ((name, ..), ns) in cases.iter().zip(&medians) {
            println!("{name:8} {kind:6} {ns:12.1} {:12.4}", ns / medians[0]);
        }
        let [without, direct, bounce] = medians[..] else { continue };
        println!(
            "{{\"operation\":\"{kind}\",\"len_bytes\":{LEN},\"jobs\":{JOBS},\"without_ns\":{without:.1},\
             \"direct_ns\":{direct:.1},\"bounce_ns\":{bounce:.1}}}"
        );
    }
    operations::report(rounds.max(1));
}

fn device(ops: Arc<dyn DmaOps>) -> Device {
    let settings = Settings { poll_max_ns: 0, ..Settings::default() };
    let line = Inline::new(Fake::new(ALL, 1, 256));
    VirtioFs::new(line, Arc::new(Threads), &DmaChoice::always(ops), settings).expect("the device initializes")
}

/// Returns nanoseconds per call, with all jobs at once.
fn run(device: &Device, way: Way, is_write: bool) -> f64 {
    let barrier = Barrier::new(JOBS + 1);
    thread::scope(|scope| {
        for _ in 0..JOBS {
            scope.spawn(|| {
                let buffer = device.buffer(LEN).expect("the pool has room");
                let mut bytes = vec![0; LEN];
                barrier.wait();
                for _ in 0..CALLS_PER_JOB {
                    call(device, way, is_write, &buffer, &mut bytes);
                }
                barrier.wait();
            });
        }
        barrier.wait();
        let begin = Instant::now();
        barrier.wait();
        begin.elapsed().as_nanos() as f64 / (JOBS as f64 * f64::from(CALLS_PER_JOB))
    })
}

fn call(device: &Device, way: Way, is_write: bool, buffer: &DmaBuffer, bytes: &mut [u8]) {
    let mut reply_head = [0; 24];
    let (data, reply_data) = match (way, is_write) {
        (Way::Without, true) => (Source::Buffer(buffer, 0, LEN), Sink::Empty),
        (Way::Without, false) => (Source::Empty, Sink::Buffer(buffer, 0, LEN)),
        (Way::Operations, true) => (Source::Bytes(bytes), Sink::Empty),
        (Way::Operations, false) => (Source::Empty, Sink::Bytes(bytes)),
    };
    let message = Message { head: &[0; 80], data, reply_head: &mut reply_head, reply_data };
    device.call(0, message).expect("the device answers");
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
