//! Parses fio's JSON output.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Context, bail};
use serde::Deserialize;

use super::matrix::BLOCK_LEN;
use crate::report::Measure;

#[derive(Deserialize)]
struct Output {
    jobs: Vec<JobOutput>,
}

#[derive(Deserialize)]
struct JobOutput {
    jobname: String,
    error: i32,
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    total_ios: u64,
    iops: f64,
    clat_ns: Latency,
}

#[derive(Deserialize)]
struct Latency {
    #[serde(default)]
    percentile: BTreeMap<String, f64>,
}

/// Returns the results by job name.
///
/// # Errors
/// If `text` is not fio's output.
pub(super) fn parse(text: &str) -> anyhow::Result<HashMap<String, anyhow::Result<Measure>>> {
    // fio prints notes before the object and after it.
    let begin = text.find("\n{").map(|at| at + 1).or_else(|| text.starts_with('{').then_some(0));
    let begin = begin.with_context(|| format!("fio printed no JSON: {text:?}"))?;
    let output = serde_json::Deserializer::from_str(&text[begin..]).into_iter::<Output>().next();
    let output = output.context("fio printed no JSON")?.context("cannot parse fio's JSON")?;
    Ok(output.jobs.into_iter().map(|job| (job.jobname.clone(), measure(&job))).collect())
}

fn measure(job: &JobOutput) -> anyhow::Result<Measure> {
    if job.error != 0 {
        bail!("{}", std::io::Error::from_raw_os_error(job.error));
    }
    let direction = if job.read.total_ios > 0 { &job.read } else { &job.write };
    if direction.total_ios == 0 {
        bail!("fio did no operation");
    }
    let percentile = |key: &str| direction.clat_ns.percentile.get(key).copied().unwrap_or(0.0);
    Ok(Measure {
        ops: direction.total_ios,
        bytes_per_op: BLOCK_LEN,
        ops_per_s: direction.iops,
        latency_p50_ns: percentile("50.000000"),
        latency_p99_ns: percentile("99.000000"),
        latency_counts: Vec::new(),
        daemon_cpu_ns_per_op: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(error: i32, ios: u64) -> String {
        let idle = r#"{"total_ios":0,"iops":0.0,"clat_ns":{"min":0}}"#;
        format!(
            "note: both iodepth >= 1\n\
             {{\"fio version\":\"3\",\"jobs\":[{{\"jobname\":\"a x1\",\"error\":{error},\
             \"read\":{idle},\
             \"write\":{{\"total_ios\":{ios},\"iops\":12.5,\"clat_ns\":{{\"percentile\":\
             {{\"50.000000\":7,\"99.000000\":9}}}}}}}}]}}\nbye\n"
        )
    }

    fn only(error: i32, ios: u64) -> anyhow::Result<Measure> {
        parse(&answer(error, ios)).unwrap().remove("a x1").unwrap()
    }

    #[test]
    fn figures_are_those_of_the_direction_that_was_used() {
        let measure = only(0, 5).unwrap();
        assert_eq!((measure.ops, measure.ops_per_s), (5, 12.5));
        assert_eq!((measure.latency_p50_ns, measure.latency_p99_ns), (7.0, 9.0));
    }

    #[test]
    fn what_failed_has_no_figures() {
        assert!(only(libc::ENODEV, 5).unwrap_err().to_string().contains("No such device"));
        assert!(only(0, 0).is_err());
        assert!(parse("").is_err());
        assert!(parse("fio: engine mmap not loadable").is_err());
    }
}
