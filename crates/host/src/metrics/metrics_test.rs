use transom_metrics::{GroupGauges, QuotaGauges, ReplayGauges, Report, WindowGauges};
use transom_wire::Opcode;

use super::*;

/// Returns metrics with a few requests.
pub(super) fn example() -> Snapshot {
    let metrics = Metrics::new();
    let ms = Duration::from_millis;
    metrics.operation(Opcode::Lookup as u32, ms(1), Ok(()));
    metrics.operation(Opcode::Lookup as u32, ms(3), Err(Errno::NOENT));
    metrics.operation(Opcode::Read as u32, ms(2), Ok(()));
    metrics.operation(63, ms(5), Err(Errno::NOSYS));
    metrics.operation(u32::MAX, ms(7), Err(Errno::NOSYS));
    metrics.add(Counter::ReadBytes, 4096);
    let window = Some(WindowGauges { files: vec![("/a\"b".into(), 3)], ..WindowGauges::default() });
    let group = Some(GroupGauges {
        members: 2,
        stamps: 7,
        epochs: 1,
        host_watched: 1,
        host_changes: 4,
        host_changes_timed: 2,
        host_delay_ns: 250_000_000,
    });
    let quota = Some(QuotaGauges { bytes: 4096, bytes_limit: 8192, files: 1, refused: 3 });
    let replays = Some(ReplayGauges { replayed: 7, delay_ns: 1_500_000_000, ..ReplayGauges::default() });
    let gauges = Gauges { inodes: 5, window, quota, group, replays, queue_depths: vec![0, 3], ..Gauges::default() };
    metrics.snapshot(gauges)
}

#[test]
fn the_snapshot_adds_up_what_all_threads_count() {
    let metrics = Metrics::new();
    std::thread::scope(|scope| {
        for thread in 0..40u64 {
            let metrics = &metrics;
            scope.spawn(move || {
                for _ in 0..1000 {
                    metrics.operation(Opcode::Write as u32, Duration::from_nanos(thread), Err(Errno::IO));
                    metrics.add(Counter::WrittenBytes, thread);
                }
            });
        }
    });
    let snapshot = metrics.snapshot(Gauges::default());
    let write = &snapshot.operations[0];
    assert_eq!((write.name, write.count(), write.errors), ("write", 40_000, 40_000));
    assert_eq!(write.duration_sum_ns, 780_000);
    assert_eq!(snapshot.counter(Counter::WrittenBytes), 780_000);
    assert_eq!(snapshot.errors, [("EIO".to_owned(), 40_000)]);
}

#[test]
fn a_report_has_what_was_counted() {
    let report = Report::new(&example());
    let names: Vec<_> = report.operations.iter().map(|it| it.operation.as_str()).collect();
    assert_eq!(names, ["lookup", "read", "other"]);
    assert_eq!((report.value("transom_read_bytes"), report.value("transom_inodes")), (Some(4096), Some(5)));
    let lookup = &report.operations[0];
    assert!((3_000_000..=3_750_000).contains(&lookup.p99_ns), "{lookup:?}");
    assert!((1_000_000..=1_250_000).contains(&lookup.p50_ns), "{lookup:?}");
}

/// Prints the CPU time that counting costs. A measurement, not a check: `cargo test --release -p transom-host --
/// --ignored --nocapture cost_of_counting`.
#[test]
#[ignore = "a measurement"]
fn cost_of_counting() {
    const ROUNDS: u32 = 10_000_000;
    let metrics = Metrics::new();
    let each_ns = |act: &(dyn Fn(u32) + Sync)| {
        let busy = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
        };
        let begun = busy();
        (0..ROUNDS).for_each(act);
        (busy() - begun) / f64::from(ROUNDS)
    };
    let duration = |round: u32| Duration::from_nanos(u64::from(round % 100_000));
    for threads in [1, 2] {
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let loop_ns = each_ns(&|round| _ = std::hint::black_box(duration(round)));
                    let operation_ns = each_ns(&|round| metrics.operation(15, duration(round), Ok(())));
                    let bytes_ns = each_ns(&|round| metrics.add(Counter::ReadBytes, round.into()));
                    println!(
                        "{threads} threads: operation {operation_ns:.1} ns, bytes {bytes_ns:.1} ns, \
                         empty loop {loop_ns:.1} ns"
                    );
                });
            }
        });
    }
}
