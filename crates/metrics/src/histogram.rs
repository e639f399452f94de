//! The buckets of a latency histogram: four for each power of two, from one microsecond to one minute.
//!
//! A quantile read from the buckets is at most 25 % too high. Bucket 0 counts everything up to [`LOWEST_NS`], the last
//! bucket everything above [`HIGHEST_NS`]. Upper bounds are inclusive, as OpenMetrics requires.

/// The upper bound of bucket 0. No request is measurably faster than a microsecond.
const LOWEST_NS: u64 = 1 << LOWEST_LOG2;
const LOWEST_LOG2: u32 = 10;

/// The upper bound of the last bucket but one, 69 seconds. Slower requests need no finer distinction.
const HIGHEST_NS: u64 = 1 << HIGHEST_LOG2;
const HIGHEST_LOG2: u32 = 36;

/// log2 of the number of buckets for each power of two.
const STEP_LOG2: u32 = 2;

/// The number of buckets, including the first and the last.
pub const BUCKET_COUNT: usize = ((HIGHEST_LOG2 - LOWEST_LOG2) << STEP_LOG2) as usize + 2;

/// Returns the bucket that counts a latency.
#[inline]
pub fn bucket(duration_ns: u64) -> usize {
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

/// Returns the upper bound of `bucket`, or `None` for the last bucket, which is unbounded.
pub(crate) fn upper_bound_ns(bucket: usize) -> Option<u64> {
    if bucket >= BUCKET_COUNT - 1 {
        return None;
    }
    let steps = bucket as u64;
    let log2 = LOWEST_LOG2 as u64 + (steps >> STEP_LOG2);
    Some(((1 << STEP_LOG2) + (steps & ((1 << STEP_LOG2) - 1))) << (log2 - STEP_LOG2 as u64))
}

/// Returns the buckets whose upper bound is a power of two: few enough for a text that is read every few seconds.
pub(crate) fn coarse_buckets() -> impl Iterator<Item = usize> {
    (0..BUCKET_COUNT - 1).step_by(1 << STEP_LOG2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn upper_bounds_are_inclusive_and_rise() {
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
        fn an_upper_bound_is_at_most_a_quarter_too_high(log2 in 10u32..36, part in 0f64..1f64) {
            let value = ((1u64 << log2) as f64 * (1.0 + part)) as u64 + 1;
            let upper = upper_bound_ns(bucket(value)).unwrap();
            prop_assert!(upper >= value && (upper as f64) <= value as f64 * 1.25 + 1.0);
        }
    }
}
