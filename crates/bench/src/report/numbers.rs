//! Formats numbers for people.

use super::compare::Cell;

const LARGE_BYTES: u64 = 1 << 20;

/// Returns a rate with its spread, or why there is no rate.
pub(super) fn speed(cell: &Cell, bytes_per_op: u64) -> String {
    let Some(ops_per_s) = cell.ops_per_s else {
        return cell.refusal.as_ref().map_or_else(|| "-".into(), |reason| format!("refused: {reason}"));
    };
    let spread = cell.spread.map(|spread| format!(" ±{:.0}%", spread * 100.0)).unwrap_or_default();
    format!("{}{spread}", rate(ops_per_s, bytes_per_op))
}

/// Returns megabytes per second for large blocks, otherwise operations per second.
pub(super) fn rate(ops_per_s: f64, bytes_per_op: u64) -> String {
    match bytes_per_op {
        LARGE_BYTES.. => format!("{} MiB/s", number(ops_per_s * bytes_per_op as f64 / LARGE_BYTES as f64)),
        _ => format!("{}/s", number(ops_per_s)),
    }
}

/// Formats a duration with a suitable unit.
pub(super) fn duration(ns: f64) -> String {
    match ns {
        _ if ns < 1e4 => format!("{:.2} µs", ns / 1e3),
        _ if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        _ => format!("{:.2} ms", ns / 1e6),
    }
}

/// Formats a number with three significant digits and grouped thousands.
pub(super) fn number(value: f64) -> String {
    if value.abs() < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            grouped.push(' ');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(number(1_234_567.4), "1 234 567");
        assert_eq!(number(123.4), "123");
        assert_eq!(number(3.456), "3.46");
    }
}
