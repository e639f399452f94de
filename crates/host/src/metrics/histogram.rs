//! The buckets of a latency: four for each power of two, from a microsecond to a minute.
//!
//! A quantile read from them is at most a quarter too high. Bucket 0 has all up to [`LOWEST_NS`], the last one all above
//! [`HIGHEST_NS`]; a bucket's upper bound belongs to it, as OpenMetrics wants.

/// The upper bound of bucket 0: what is faster than about a microsecond is as good as free.
const LOWEST_NS: u64 = 1 << LOWEST_LOG2;
const LOWEST_LOG2: u32 = 10;

/// The upper bound of the last bucket but one: 69 seconds, after which somebody has noticed.
const HIGHEST_NS: u64 = 1 << HIGHEST_LOG2;
const HIGHEST_LOG2: u32 = 36;

/// log2 of the buckets for each power of two.
const STEP_LOG2: u32 = 2;

/// Buckets, with the first and the last one.
pub(super) const BUCKET_COUNT: usize = ((HIGHEST_LOG2 - LOWEST_LOG2) << STEP_LOG2) as usize + 2;

/// The bucket of a latency.
pub(super) fn bucket(duration_ns: u64) -> usize {
    if duration_ns <= LOWEST_NS {
        return 0;
    }
    if duration_ns > HIGHEST_NS {
        return BUCKET_COUNT - 1;
    }
    let below = duration_ns - 1;
    let log2 = below.ilog2();
    let step = (below >> (log2 - STEP_LOG2)) as usize & ((1 << STEP_LOG2) - 1);
    1 + ((((log2 - LOWEST_LOG2) as usize) << STEP_LOG2) | step)
}

/// The upper bound of `bucket`; `None` for the last one, which has none.
pub(super) fn upper_bound_ns(bucket: usize) -> Option<u64> {
    if bucket >= BUCKET_COUNT - 1 {
        return None;
    }
    let steps = bucket as u64;
    let log2 = LOWEST_LOG2 as u64 + (steps >> STEP_LOG2);
    Some(((1 << STEP_LOG2) + (steps & ((1 << STEP_LOG2) - 1))) << (log2 - STEP_LOG2 as u64))
}

/// The buckets that end at a power of two: few enough for a text that is read every few seconds.
pub(super) fn coarse_buckets() -> impl Iterator<Item = usize> {
    (0..BUCKET_COUNT - 1).step_by(1 << STEP_LOG2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bounds_belong_to_their_bucket_and_rise() {
        assert_eq!((bucket(0), upper_bound_ns(0)), (0, Some(1024)));
        for index in 0..BUCKET_COUNT - 1 {
            let upper = upper_bound_ns(index).unwrap();
            assert_eq!((bucket(upper), bucket(upper + 1)), (index, index + 1));
        }
        assert_eq!(upper_bound_ns(BUCKET_COUNT - 2), Some(HIGHEST_NS));
        assert_eq!((bucket(u64::MAX), upper_bound_ns(BUCKET_COUNT - 1)), (BUCKET_COUNT - 1, None));
        assert!(coarse_buckets().all(|index| upper_bound_ns(index).unwrap().is_power_of_two()));
        assert_eq!(coarse_buckets().last(), Some(BUCKET_COUNT - 2));
    }

    proptest! {
        #[test]
        fn a_bound_is_at_most_a_quarter_too_high(log2 in 10u32..36, part in 0f64..1f64) {
            let value = ((1u64 << log2) as f64 * (1.0 + part)) as u64 + 1;
            let upper = upper_bound_ns(bucket(value)).unwrap();
            prop_assert!(upper >= value && (upper as f64) <= value as f64 * 1.25 + 1.0);
        }
    }
}
