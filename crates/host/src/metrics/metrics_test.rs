use std::collections::BTreeMap;

use proptest::prelude::*;
use transom_wire::Opcode;

use super::{families::Kind, *};

const DOCUMENT: &str = include_str!("../../../../docs/metrics.md");

fn example() -> (Metrics, Snapshot) {
    let metrics = Metrics::new();
    let ms = Duration::from_millis;
    metrics.operation(Opcode::Lookup as u32, ms(1), Ok(()));
    metrics.operation(Opcode::Lookup as u32, ms(3), Err(Errno::NOENT));
    metrics.operation(Opcode::Read as u32, ms(2), Ok(()));
    metrics.operation(63, ms(5), Err(Errno::NOSYS));
    metrics.operation(u32::MAX, ms(7), Err(Errno::NOSYS));
    metrics.add(Counter::ReadBytes, 4096);
    let window = Some(WindowGauges { files: vec![("/a\"b".into(), 3)], ..WindowGauges::default() });
    let gauges = Gauges { inodes: 5, window, queue_depths: vec![0, 3], ..Gauges::default() };
    let snapshot = metrics.snapshot(gauges);
    (metrics, snapshot)
}

#[test]
fn threads_count_apart_and_the_snapshot_adds_up() {
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
    assert_eq!((write.name, write.count, write.errors), ("write", 40_000, 40_000));
    assert_eq!(write.duration_sum_ns, 780_000);
    assert_eq!(snapshot.counter(Counter::WrittenBytes), 780_000);
    assert_eq!(snapshot.errors, [("EIO".to_owned(), 40_000)]);
}

#[test]
fn the_text_has_what_was_counted() {
    let text = openmetrics::render(&example().1);
    for line in [
        "# TYPE transom_operation_duration_seconds histogram",
        "# UNIT transom_operation_duration_seconds seconds",
        "transom_operation_duration_seconds_bucket{operation=\"lookup\",le=\"0.001048576\"} 1",
        "transom_operation_duration_seconds_bucket{operation=\"lookup\",le=\"+Inf\"} 2",
        "transom_operation_duration_seconds_sum{operation=\"lookup\"} 0.004",
        "transom_operation_duration_seconds_count{operation=\"other\"} 2",
        "transom_operation_errors_total{operation=\"lookup\"} 1",
        "transom_errors_total{errno=\"ENOENT\"} 1",
        "transom_errors_total{errno=\"ENOSYS\"} 2",
        "transom_read_bytes_total 4096",
        "transom_inodes 5",
        "transom_queue_depth_requests{queue=\"1\"} 3",
    ] {
        assert!(text.lines().any(|it| it == line), "missing: {line}\n{text}");
    }
    assert!(text.ends_with("\n# EOF\n"));
}

/// Reads the text as the specification has it: families are contiguous, begin with their head, and have the suffixes of
/// their kind; buckets rise.
#[test]
fn the_text_is_openmetrics_and_has_every_family() {
    let text = openmetrics::render(&example().1);
    let mut lines = text.lines().peekable();
    let mut families = families::ALL.iter();
    while let Some(head) = lines.next_if(|line| *line != "# EOF") {
        let family = families.next().expect("a family of the list");
        assert_eq!(head, format!("# TYPE {} {}", family.name, family.kind.word()));
        if !family.unit.is_empty() {
            assert!(family.name.ends_with(&format!("_{}", family.unit)), "{}", family.name);
            assert_eq!(lines.next().unwrap(), format!("# UNIT {} {}", family.name, family.unit));
        }
        assert_eq!(lines.next().unwrap(), format!("# HELP {} {}", family.name, family.help));
        let suffixes: &[&str] = match family.kind {
            Kind::Counter => &["_total"],
            Kind::Gauge => &[""],
            Kind::Info => &["_info"],
            Kind::Histogram => &["_bucket", "_sum", "_count"],
        };
        let mut last: BTreeMap<String, u64> = BTreeMap::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
            assert!(suffixes.contains(&name.strip_prefix(family.name).unwrap()), "{line}");
            assert_eq!(labels.is_empty(), family.label.is_empty(), "{line}");
            assert!(labels.is_empty() || labels.starts_with(&format!("{}=\"", family.label)), "{line}");
            assert!(value.parse::<f64>().is_ok_and(|value| value >= 0.0), "{line}");
            if name.ends_with("_bucket") {
                let series = labels.split(',').next().unwrap().to_owned();
                let count = value.parse().unwrap();
                assert!(last.insert(series, count).is_none_or(|before| before <= count), "{line}");
            }
        }
    }
    assert_eq!(families.next(), None);
}

#[test]
fn the_document_lists_every_metric() {
    let rows: Vec<&str> = DOCUMENT.lines().filter(|line| line.starts_with("| `")).collect();
    let expected: Vec<String> = families::ALL
        .iter()
        .map(|family| {
            let label = if family.label.is_empty() { String::new() } else { format!("`{}`", family.label) };
            let unit = if family.unit.is_empty() { "" } else { family.unit };
            format!("| `{}` | {} | {unit} | {label} | {} |", family.name, family.kind.word(), family.help)
        })
        .collect();
    assert_eq!(rows, expected, "the rows of docs/metrics.md follow families.rs");
}

#[test]
fn json_reads_back() {
    let report = Report::new(&example().1);
    let read: Report = serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(read.operations.iter().map(|it| it.operation.as_str()).collect::<Vec<_>>(), ["lookup", "read", "other"]);
    assert_eq!((read.value("transom_read_bytes"), read.value("transom_inodes")), (Some(4096), Some(5)));
    assert_eq!(read.value("transom_nothing"), None);
    let lookup = &read.operations[0];
    assert!((3_000_000..=3_750_000).contains(&lookup.p99_ns), "{lookup:?}");
    assert!((1_000_000..=1_250_000).contains(&lookup.p50_ns), "{lookup:?}");
}

proptest! {
    /// The oracle is the sorted list of all latencies.
    #[test]
    fn a_quantile_is_at_most_a_quarter_too_high(
        mut latencies in proptest::collection::vec(1100u64..10_000_000_000, 1..200),
        part in 0.01f64..=1.0,
    ) {
        let metrics = Metrics::new();
        latencies.iter().for_each(|&ns| metrics.operation(1, Duration::from_nanos(ns), Ok(())));
        latencies.sort_unstable();
        let exact = latencies[(latencies.len() as f64 * part).ceil() as usize - 1];
        let told = metrics.snapshot(Gauges::default()).operations[0].quantile_ns(part);
        prop_assert!(told >= exact && told as f64 <= exact as f64 * 1.25 + 1.0, "{} for {}", told, exact);
    }
}

/// Prints what counting costs in time of the processor; a figure, not a check:
/// `cargo test --release -p transom-host -- --ignored --nocapture cost_of_counting`.
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
                        "{threads} threads: operation {operation_ns:.1} ns, bytes {bytes_ns:.1} ns, an empty turn {loop_ns:.1} ns"
                    );
                });
            }
        });
    }
}
