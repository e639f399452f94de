//! A report for tests: every verdict once, a refusal, and a daemon that was not measured everywhere.

use super::{Facts, HOST, Limit, Measure, Report, SCHEMA, Sample, Version};
use crate::workload::line::LatencyCount;

/// Ratios over five rounds: clearly double, unclear, equal, clearly half.
const WORKLOADS: [(&str, [f64; 5]); 4] = [
    ("create_write_4k", [2.0, 2.1, 2.0, 1.9, 2.0]),
    ("read_4k_rand_direct", [1.2, 0.9, 1.25, 1.1, 1.3]),
    ("stat_warm", [1.0, 1.01, 0.99, 1.0, 1.0]),
    ("fault_write_empty", [0.5, 0.52, 0.5, 0.48, 0.5]),
];

pub(crate) fn report() -> Report {
    let version = |name: &str| Version { name: name.into(), version: format!("{name} 1.0"), args: Vec::new() };
    let mut samples = Vec::new();
    for (workload, ratios) in WORKLOADS {
        for (repetition, ratio) in (0..).zip(ratios) {
            for (daemon, speed) in [("ours", 10_000.0 * ratio), ("theirs", 10_000.0), (HOST, 80_000.0)] {
                samples.push(Sample {
                    scenario: "user, other core, cache=auto".into(),
                    workload: workload.into(),
                    daemon: daemon.into(),
                    repetition,
                    measure: Some(measure(speed)),
                    refusal: None,
                });
            }
        }
    }
    samples.push(Sample {
        scenario: "uml, same core, cache=auto".into(),
        workload: "mmap_read_seq_cold".into(),
        daemon: "ours".into(),
        repetition: 0,
        measure: None,
        refusal: Some("No such device".into()),
    });
    Report {
        schema: SCHEMA,
        title: "an example".into(),
        command: vec!["transom".into(), "bench".into()],
        facts: Facts::default(),
        daemons: ["ours", "theirs", "absent"].map(version).into(),
        limits: vec![Limit { name: "memcpy 4 KiB, MiB/s".into(), value: 12_345.6 }],
        notes: vec!["not measured: absent under uml: it is an example".into()],
        samples,
    }
}

fn measure(ops_per_s: f64) -> Measure {
    let ns = 1e9 / ops_per_s;
    let class = |factor: f64, count| LatencyCount { below_ns: (ns * factor) as u64, count };
    Measure {
        ops: 1000,
        bytes_per_op: 0,
        ops_per_s,
        latency_p50_ns: ns,
        latency_p99_ns: ns * 4.0,
        latency_counts: vec![class(0.8, 300), class(1.0, 500), class(1.5, 150), class(4.0, 45), class(20.0, 5)],
        daemon_cpu_ns_per_op: Some(ns / 2.0),
    }
}
