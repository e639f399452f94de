//! Medians and their confidence intervals.

/// Returns the median; `None` if there are no values.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        len if len % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Returns the median absolute deviation, relative to the median.
pub(super) fn relative_spread(values: &[f64]) -> Option<f64> {
    let center = median(values)?;
    let distances: Vec<f64> = values.iter().map(|value| (value - center).abs()).collect();
    Some(median(&distances)? / center)
}

/// The minimum probability that the interval contains the median of all possible runs.
const CONFIDENCE: f64 = 0.93;

/// Returns the narrowest interval between two of the values, symmetric in rank, that contains the true median with
/// [`CONFIDENCE`], whatever the distribution; `None` if there are too few values.
///
/// Each run is above the true median with probability one half, so ranks follow the binomial distribution. Five runs
/// are the minimum: their extremes contain the median in 30 of 32 cases.
pub(super) fn median_interval(values: &[f64]) -> Option<(f64, f64)> {
    let sorted = sorted(values);
    let count = sorted.len();
    let mut outside = 0.0;
    let mut best = None;
    for rank in 0..count / 2 {
        outside += 2.0 * binomial(count, rank) / 2f64.powi(count as i32);
        if 1.0 - outside < CONFIDENCE {
            break;
        }
        best = Some((sorted[rank], sorted[count - 1 - rank]));
    }
    best
}

fn binomial(n: usize, k: usize) -> f64 {
    (0..k).map(|i| (n - i) as f64 / (i + 1) as f64).product()
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_even_and_odd_counts() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn interval_needs_five_values_and_narrows_with_nine() {
        let up_to = |n: u32| (1..=n).map(f64::from).collect::<Vec<_>>();
        assert_eq!(median_interval(&up_to(4)), None);
        assert_eq!(median_interval(&up_to(5)), Some((1.0, 5.0)));
        // Ranks 2..=8 of nine contain the median in 96 of 100 cases.
        assert_eq!(median_interval(&up_to(9)), Some((2.0, 8.0)));
    }

    #[test]
    fn spread_is_relative_to_the_median() {
        assert_eq!(relative_spread(&[90.0, 100.0, 110.0]), Some(0.1));
    }
}
