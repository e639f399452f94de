use std::collections::BTreeMap;

use super::{super::metrics_test::example, *};

#[test]
fn the_text_has_what_was_counted() {
    let text = render(example());
    for line in [
        "# TYPE transom_operation_duration_seconds histogram",
        "# UNIT transom_operation_duration_seconds seconds",
        "transom_operation_duration_seconds_bucket{le=\"0.001048576\",operation=\"lookup\"} 1",
        "transom_operation_duration_seconds_bucket{le=\"+Inf\",operation=\"lookup\"} 2",
        "transom_operation_duration_seconds_sum{operation=\"lookup\"} 0.004",
        "transom_operation_duration_seconds_count{operation=\"other\"} 2",
        "transom_operation_errors_total{operation=\"lookup\"} 1",
        "transom_errors_total{errno=\"ENOENT\"} 1",
        "transom_errors_total{errno=\"ENOSYS\"} 2",
        "transom_read_bytes_total 4096",
        "transom_inodes 5",
        "transom_quota_bytes 4096",
        "transom_quota_refused_total 3",
        "transom_group_members 2",
        "transom_group_stamps_total 7",
        "transom_group_host_watched 1",
        "transom_group_host_changes_total 4",
        "transom_group_host_change_delay_seconds_total 0.25",
        "transom_queue_depth_requests{queue=\"1\"} 3",
        "transom_replayed_changes_total 7",
        "transom_replay_delay_seconds_total 1.5",
    ] {
        assert!(text.lines().any(|it| it == line), "missing: {line}\n{text}");
    }
    assert!(text.ends_with("\n# EOF\n"));
}

/// Parses the text by the OpenMetrics specification: families are contiguous, start with their metadata and use the
/// suffixes of their type; bucket counts are cumulative.
#[test]
fn the_text_is_openmetrics_and_has_every_family() {
    let text = render(example());
    let mut lines = text.lines().peekable();
    let mut families = families::ALL.iter();
    while let Some(head) = lines.next_if(|line| *line != "# EOF") {
        let family = families.next().expect("no family is left");
        assert_eq!(head, format!("# HELP {} {}", family.name, family.help));
        let kind = format!("{:?}", family.kind).to_lowercase();
        assert_eq!(lines.next().unwrap(), format!("# TYPE {} {kind}", family.name));
        if !family.unit.is_empty() {
            assert_eq!(lines.next().unwrap(), format!("# UNIT {} {}", family.name, family.unit));
        }
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
            assert!(labels.is_empty() || labels.contains(&format!("{}=\"", family.label)), "{line}");
            assert!(value.parse::<f64>().is_ok_and(|value| value >= 0.0), "{line}");
            if name.ends_with("_bucket") {
                let series = labels.split(',').next_back().unwrap().to_owned();
                let count = value.parse().unwrap();
                assert!(last.insert(series, count).is_none_or(|before| before <= count), "{line}");
            }
        }
    }
    assert_eq!(families.next(), None);
}
