//! Writes sizes.

/// Formats a size with a unit, such as `1.5M`, in at most four characters and rounded up as by ls(1).
pub fn short(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["K", "M", "G", "T", "P", "E"];
    if bytes < 1024 {
        return bytes.to_string();
    }
    // In tenths of the unit.
    let mut tenths = bytes.saturating_mul(10).div_ceil(1024);
    if bytes > u64::MAX / 10 {
        tenths = bytes.div_ceil(1024).saturating_mul(10);
    }
    let mut unit = 0;
    while tenths > 10 * 1023 && unit + 1 < UNITS.len() {
        tenths = tenths.div_ceil(1024);
        unit += 1;
    }
    if tenths < 100 {
        format!("{}.{}{}", tenths / 10, tenths % 10, UNITS[unit])
    } else {
        format!("{}{}", tenths.div_ceil(10), UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn sizes_are_rounded_up_to_few_letters() {
        let cases = [
            (0, "0"),
            (1023, "1023"),
            (1024, "1.0K"),
            (1025, "1.1K"),
            (10 << 10, "10K"),
            ((1 << 20) - 1, "1.0M"),
            (1 << 30, "1.0G"),
            (1500 << 20, "1.5G"),
            (u64::MAX, "16E"),
        ];
        for (bytes, text) in cases {
            assert_eq!(short(bytes), text, "{bytes}");
        }
    }
}
