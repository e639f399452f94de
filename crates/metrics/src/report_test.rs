use super::*;
use crate::{Gauges, WindowUsage, families, histogram::BUCKET_COUNT};

fn report() -> Report {
    let usage = WindowUsage { len_bytes: 4 << 20, ranges_mapped: 1, ..WindowUsage::default() };
    let window = Some(WindowGauges { usage, files: vec![("/a\"b".into(), 1)] });
    let gauges = Gauges { inodes: 5, inodes_refused: 2, window, queue_depths: vec![0, 3], ..Gauges::default() };
    let mut durations = [0; BUCKET_COUNT];
    durations[0] = 3;
    let operations = vec![Operation { name: "lookup", errors: 1, duration_sum_ns: 9, durations }];
    let mut counters = [0; Counter::ALL.len()];
    counters[Counter::ReadBytes as usize] = 4096;
    let errors = vec![("ENOENT".to_owned(), 1)];
    Report::new(&Snapshot { uptime_seconds: 1.5, operations, errors, gauges, counters })
}

#[test]
fn a_report_is_parsed_as_it_was_written() {
    let json = serde_json::to_vec(&report()).unwrap();
    let read = Report::parse(&json).unwrap();
    assert_eq!(read, report());
    assert_eq!((read.operations[0].count, read.operations[0].max_ns), (3, 1024));
    assert_eq!(read.value(families::READ_BYTES.name), Some(4096));
    assert_eq!(read.value(families::INODES.name), Some(5));
    assert_eq!(read.value(families::INODES_REFUSED.name), Some(2));
    assert_eq!(read.value("transom_nothing"), None);
    assert_eq!(read.window.unwrap().files[0].name, "/a\"b");
}

#[test]
fn counters_and_gauges_are_apart() {
    let report = report();
    let has = |values: &[Value], name| values.iter().any(|value| value.name == name);
    assert!(
        has(&report.counters, families::INODES_REFUSED.name) && !has(&report.gauges, families::INODES_REFUSED.name)
    );
    assert!(has(&report.gauges, families::INODES.name) && !has(&report.counters, families::INODES.name));
}

#[test]
fn other_layouts_and_other_json_are_refused() {
    let error = Report::parse(br#"{"layout": 2}"#).unwrap_err();
    assert_eq!(error.to_string(), "report has layout 2, expected layout 1");
    for json in [&b""[..], b"[]", br#"{"layout": 1}"#, br#"{"layout": -1}"#, b"\xff"] {
        assert!(matches!(Report::parse(json), Err(ReportError::Invalid(_))), "{json:?}");
    }
}
