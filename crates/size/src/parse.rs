//! Reads sizes.

use std::num::IntErrorKind;

/// Parses a number of bytes, with an optional unit: K, M, G and T are powers of 1024.
///
/// # Errors
///
/// A message that names `text`, if it is not a size or does not fit 64 bits.
pub fn parse(text: &str) -> Result<u64, String> {
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let shift = match text[number.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        unit => return Err(format!("unknown unit {unit:?} in {text:?}; units are K, M, G and T")),
    };
    let number: u64 = match number.parse() {
        Ok(number) => number,
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => return Err(too_large(text)),
        Err(_) => return Err(format!("{text:?} is not a size; valid sizes are 64K, 256M and 1G, for example")),
    };
    number.checked_mul(1 << shift).ok_or_else(|| too_large(text))
}

/// Parses `SIZE` or `SIZE,files=N`, as in `10G,files=100000`.
///
/// # Errors
///
/// As [`parse`]; also if a part is 0 or unknown.
pub fn parse_quota(text: &str) -> Result<(u64, Option<u64>), String> {
    let (size, files) = match text.split_once(',') {
        None => (text, None),
        Some((size, rest)) => {
            let files = rest.strip_prefix("files=").ok_or_else(|| format!("expected files=N, not {rest:?}"))?;
            let files = files.parse().map_err(|_| format!("{files:?} is not a number of files"))?;
            (size, Some(files))
        }
    };
    match (parse(size)?, files) {
        (0, _) | (_, Some(0)) => Err(format!("{text:?} leaves no room; to allow no changes, share read-only")),
        limits => Ok(limits),
    }
}

/// Parses `SIZE`, `requests=N` or `SIZE,requests=N`, what may pass in a second, as in `50M,requests=2000`.
///
/// # Errors
///
/// As [`parse`]; also if a part is 0, unknown or given twice.
pub fn parse_rate(text: &str) -> Result<(Option<u64>, Option<u64>), String> {
    let (mut bytes, mut requests) = (None, None);
    for part in text.split(',') {
        let (limit, number) = match part.strip_prefix("requests=") {
            Some(number) => {
                (&mut requests, number.parse().map_err(|_| format!("{number:?} is not a number of requests"))?)
            }
            None => (&mut bytes, parse(part)?),
        };
        if number == 0 {
            return Err(format!("{text:?} lets nothing pass"));
        }
        if limit.replace(number).is_some() {
            return Err(format!("{text:?} has two limits of a kind; expected SIZE, requests=N, or both"));
        }
    }
    Ok((bytes, requests))
}

fn too_large(text: &str) -> String {
    format!("{text:?} exceeds 64 bits")
}

#[cfg(test)]
mod tests {
    use super::{parse, parse_quota, parse_rate};

    #[test]
    fn a_rate_has_bytes_or_requests_or_both() {
        assert_eq!(parse_rate("10M"), Ok((Some(10 << 20), None)));
        assert_eq!(parse_rate("requests=50"), Ok((None, Some(50))));
        assert_eq!(parse_rate("requests=50,1K"), Ok((Some(1024), Some(50))));
        for text in ["", "0", "requests=0", "1M,2M", "1M,files=2", "1M,", "requests=x"] {
            assert!(parse_rate(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_quota_has_bytes_and_perhaps_files() {
        assert_eq!(parse_quota("10G"), Ok((10 << 30, None)));
        assert_eq!(parse_quota("64K,files=5"), Ok((64 << 10, Some(5))));
        for text in ["", "0", "1M,", "1M,files=", "1M,files=0", "1M,inodes=5", "1M,files=5,x", ",files=5"] {
            assert!(parse_quota(text).is_err(), "{text}");
        }
    }

    #[test]
    fn units_are_binary_and_of_any_case() {
        for (text, size) in [
            ("0", 0),
            ("4096", 4096),
            ("4096b", 4096),
            ("64K", 64 << 10),
            ("64kb", 64 << 10),
            ("64KiB", 64 << 10),
            ("256M", 256 << 20),
            ("1gib", 1 << 30),
            ("2T", 2 << 40),
            ("16777215T", 16_777_215 << 40),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Ok(size), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "K", "-1", "1.5G", "0x10", "\u{663}M", "1G1G"] {
            assert!(parse(text).unwrap_err().contains("is not a size"), "{text}");
        }
        for text in ["x", "12X", "12KX"] {
            assert!(parse(text).unwrap_err().contains("unknown unit"), "{text}");
        }
    }

    #[test]
    fn overflow_is_refused() {
        for text in ["16777216T", "18446744073709551616", "184467440737095516155", "99999999999999999999K"] {
            assert!(parse(text).unwrap_err().contains("exceeds 64 bits"), "{text}");
        }
    }
}
