use super::*;
use transom_metrics::Value;

fn reading(uptime_seconds: f64, operations: &[(&str, u64, u64)], read_bytes: u64) -> Report {
    let operations = operations.iter().map(|&(name, count, errors)| OperationReport {
        operation: name.into(),
        count,
        errors,
        duration_sum_ns: 0,
        p50_ns: 999,
        p90_ns: 1_500,
        p99_ns: 12_345_678,
        max_ns: 2_000_000_000,
    });
    Report {
        layout: 1,
        version: "1".into(),
        uptime_seconds,
        operations: operations.collect(),
        errors: Vec::new(),
        counters: vec![Value { name: families::READ_BYTES.name.into(), value: read_bytes }],
        gauges: Vec::new(),
        queue_depths: vec![0, 3],
        window: None,
        group_host_delay_ns: None,
        replays: None,
    }
}

fn texts(now: &Report, before: Option<&Report>, sort: Sort) -> Vec<String> {
    report(now, before, sort).into_iter().map(|line| line.text).collect()
}

#[test]
fn rates_are_those_between_two_readings() {
    let before = reading(10.0, &[("lookup", 100, 0), ("read", 1000, 0)], 0);
    let now = reading(12.0, &[("lookup", 500, 4), ("read", 1000, 0)], 4 << 20);
    let lines = texts(&now, Some(&before), Sort::Rate);
    assert_eq!(lines[0], "rates     200 requests/s   read 2.0 MiB/s   written 0.0 MiB/s   2.0 errors/s   (over 2.0 s)");
    let cells: Vec<_> = lines[5].split_whitespace().collect();
    assert_eq!(cells, ["lookup", "200", "500", "999", "ns", "1.5", "µs", "12", "ms", "2.0", "s", "4"]);
    assert!(lines[6].starts_with("read"));
}

#[test]
fn an_agent_has_its_line() {
    let replays = |replayed, delay_ns| ReplayReport {
        agents: 1,
        keeps_up: true,
        replayed,
        skipped: 2,
        overflows: 1,
        waiting: 3,
        delay_ns,
    };
    let before = Report { replays: Some(replays(10, 1_000_000)), ..reading(10.0, &[], 0) };
    let now = Report { replays: Some(replays(30, 25_000_000)), ..reading(12.0, &[], 0) };
    let expected =
        "agent     keeps up   10.0 changes/s, 1.2 ms until acknowledged   3 waiting   2 skipped   1 overflows";
    assert_eq!(texts(&now, Some(&before), Sort::Rate)[3], expected);
    let gone = Report { replays: Some(ReplayReport { agents: 0, ..replays(30, 0) }), ..reading(12.0, &[], 0) };
    assert!(texts(&gone, None, Sort::Rate)[3].starts_with("agent     no agent   "));
}

#[test]
fn a_window_has_its_lines() {
    let window = |maps, map_ns| WindowReport {
        len_bytes: 64 << 20,
        ranges: 24,
        maps,
        unmaps: 6,
        refused: 1,
        map_ns,
        files: vec![Value { name: "/model".into(), value: 20 }, Value { name: "/\u{1b}".into(), value: 4 }],
    };
    let before = Report { window: Some(window(10, 1_000_000)), ..reading(10.0, &[], 0) };
    let now = Report { window: Some(window(30, 25_000_000)), ..reading(12.0, &[], 0) };
    let lines = texts(&now, Some(&before), Sort::Rate);
    let expected = "window    24 of 32 ranges mapped (48 MiB)   10.0 maps/s, 1.2 ms each   0 unmaps/s   1 refused";
    assert_eq!(lines[3], expected);
    assert_eq!(lines[4], "          most ranges: /model (20)   /\u{fffd} (4)");
}

#[test]
fn a_coherence_group_has_a_line() {
    let value = |family: Family, value| Value { name: family.name.into(), value };
    let group = |uptime_seconds, stamps| {
        let mut report = reading(uptime_seconds, &[], 0);
        report.gauges.push(value(families::GROUP_MEMBERS, 3));
        report.counters.extend([value(families::GROUP_STAMPS, stamps), value(families::GROUP_EPOCHS, 2)]);
        report
    };
    let lines = texts(&group(12.0, 1050), Some(&group(10.0, 1000)), Sort::Rate);
    assert_eq!(lines[3], "group     3 members   clock 1050   25.0 stamps/s   2 epochs raised");
    assert_eq!(lines[4], "          changes on the host are not stamped");
}

#[test]
fn a_coherence_group_says_how_late_changes_on_the_host_are_stamped() {
    let value = |family: Family, value| Value { name: family.name.into(), value };
    let group = |uptime_seconds, stamped, delay_ns| {
        let mut report = reading(uptime_seconds, &[], 0);
        report.gauges.extend([value(families::GROUP_MEMBERS, 1), value(families::GROUP_HOST_WATCHED, 1)]);
        report.counters.push(value(families::GROUP_HOST_CHANGES, stamped));
        report.counters.push(value(families::GROUP_HOST_CHANGES_TIMED, stamped / 10));
        report.group_host_delay_ns = Some(delay_ns);
        report
    };
    let before = group(10.0, 200, 1_000_000);
    let said = |now: &Report| texts(now, Some(&before), Sort::Rate)[4].to_owned();
    let line = said(&group(12.0, 300, 4_000_000));
    assert!(
        line.contains("changes on the host: 50.0 stamped/s") && line.contains("delay of host changes 300"),
        "{line}"
    );
    let quiet = said(&group(12.0, 200, 1_000_000));
    assert!(quiet.ends_with("delay of host changes -"), "{quiet}");
}

#[test]
fn a_first_reading_has_averages_since_the_start() {
    let lines = texts(&reading(10.0, &[("lookup", 100, 0)], 0), None, Sort::Rate);
    assert!(lines[0].starts_with("rates     10.0 requests/s"), "{}", lines[0]);
    assert!(lines[0].ends_with("(average since start)"), "{}", lines[0]);
}

#[test]
fn a_daemon_that_just_started_has_no_rates_rather_than_infinite_ones() {
    let lines = texts(&reading(0.0, &[("lookup", 100, 0)], 7), None, Sort::Rate);
    assert!(lines[0].starts_with("rates     0 requests/s   read 0.0 MiB/s"), "{}", lines[0]);
}

#[test]
fn every_sort_is_reached_and_sorts() {
    let now = reading(1.0, &[("b", 9, 0), ("a", 1, 5)], 0);
    let mut sort = Sort::default();
    let mut first = Vec::new();
    for _ in 0..5 {
        first.push((sort.word(), texts(&now, None, sort)[5][..1].to_owned()));
        sort = sort.next();
    }
    assert_eq!(sort, Sort::default());
    let expected = [("rate", "b"), ("total", "b"), ("p99", "a"), ("errors", "a"), ("name", "a")];
    assert_eq!(first, expected.map(|(word, name)| (word, name.to_owned())));
}

#[test]
fn what_a_terminal_would_obey_is_not_passed_on() {
    let lines = texts(&reading(1.0, &[("\u{1b}[2J", 1, 0)], 0), None, Sort::Rate);
    assert!(lines.iter().all(|line| !line.contains('\u{1b}')), "{lines:?}");
}
