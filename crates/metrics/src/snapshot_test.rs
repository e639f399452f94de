use proptest::prelude::*;

use super::*;

fn operation(latencies_ns: &[u64]) -> Operation {
    let mut operation = Operation { name: "lookup", errors: 0, duration_sum_ns: 0, durations: [0; BUCKET_COUNT] };
    latencies_ns.iter().for_each(|&ns| operation.durations[histogram::bucket(ns)] += 1);
    operation
}

#[test]
fn an_operation_without_requests_has_no_latency() {
    assert_eq!((operation(&[]).count(), operation(&[]).quantile_ns(0.99)), (0, 0));
}

#[test]
fn coarse_durations_count_each_request_once() {
    let latencies = [1, 1024, 1025, 2048, 3_000_000, 1 << 36, u64::MAX];
    let coarse: Vec<_> = operation(&latencies).coarse_durations().filter(|&(_, count)| count > 0).collect();
    // The last one is above every bound.
    assert_eq!(coarse, [(1024, 2), (2048, 2), (1 << 22, 1), (1 << 36, 1)]);
}

proptest! {
    #[test]
    fn quantiles_are_at_most_a_quarter_too_high(
        mut latencies in prop::collection::vec(1025u64..60_000_000_000, 1..200),
        part in 0.01f64..=1.0,
    ) {
        let told = operation(&latencies).quantile_ns(part);
        latencies.sort_unstable();
        let exact = latencies[(latencies.len() as f64 * part).ceil() as usize - 1];
        prop_assert!(told >= exact && told as f64 <= exact as f64 * 1.25 + 1.0, "{} for {}", told, exact);
    }
}
