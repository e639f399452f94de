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

fn too_large(text: &str) -> String {
    format!("{text:?} exceeds 64 bits")
}

#[cfg(test)]
mod tests {
    use super::parse;

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
