//! Formats names, modes, times and sizes.
//!
//! Names are bytes. They are written to files and pipes unchanged; on a terminal, control characters and invalid UTF-8
//! are escaped.

use std::{
    borrow::Cow,
    io::{self, IsTerminal as _},
};

use jiff::{Timestamp, tz::TimeZone};

use crate::tell::bytes_in_line;

/// Half a year: as with ls(1), older times and future ones show the year instead of the hour.
const RECENT_S: i64 = 365 * 24 * 3600 / 2;

/// Returns `name` in the form to write to standard output.
pub(super) fn for_stdout(name: &[u8]) -> Cow<'_, [u8]> {
    if io::stdout().is_terminal() { Cow::Owned(bytes_in_line(name).into_bytes()) } else { Cow::Borrowed(name) }
}

/// Formats a mode as ls(1) does, such as `drwxr-xr-x`.
pub(super) fn mode(mode: u32) -> String {
    let kind = match mode & 0o170_000 {
        0o040_000 => 'd',
        0o120_000 => 'l',
        0o020_000 => 'c',
        0o060_000 => 'b',
        0o010_000 => 'p',
        0o140_000 => 's',
        0o100_000 => '-',
        _ => '?',
    };
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    text
}

/// Returns the type of a file, such as `directory`.
pub(super) fn kind(mode: u32) -> &'static str {
    match mode & 0o170_000 {
        0o040_000 => "directory",
        0o120_000 => "symbolic link",
        0o020_000 => "character device",
        0o060_000 => "block device",
        0o010_000 => "fifo",
        0o140_000 => "socket",
        0o100_000 => "file",
        _ => "unknown",
    }
}

/// Formats a time as ls(1) does, in the local time zone: `Nov 21 09:30` or `Nov 21  2020`.
pub(super) fn short_time(seconds: i64) -> String {
    time_in(seconds, Timestamp::now().as_second(), &TimeZone::system())
}

fn time_in(seconds: i64, now: i64, zone: &TimeZone) -> String {
    let Ok(time) = Timestamp::from_second(seconds) else { return format!("@{seconds}") };
    let is_recent = seconds <= now && now.saturating_sub(seconds) < RECENT_S;
    let format = if is_recent { "%b %e %H:%M" } else { "%b %e  %Y" };
    time.to_zoned(zone.clone()).strftime(format).to_string()
}

/// Formats a time to the nanosecond, in the local time zone.
pub(super) fn exact_time(seconds: i64, nanoseconds: u32) -> String {
    match i32::try_from(nanoseconds).ok().and_then(|nanoseconds| Timestamp::new(seconds, nanoseconds).ok()) {
        Some(time) => time.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S.%9f %z").to_string(),
        None => format!("@{seconds}.{nanoseconds:09}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_read_as_in_a_long_listing() {
        let cases = [
            (0o100_644, "-rw-r--r--"),
            (0o040_755, "drwxr-xr-x"),
            (0o120_777, "lrwxrwxrwx"),
            (0o104_755, "-rwsr-xr-x"),
            (0o102_640, "-rw-r-S---"),
            (0o041_777, "drwxrwxrwt"),
            (0o041_776, "drwxrwxrwT"),
            (0, "?---------"),
        ];
        for (bits, text) in cases {
            assert_eq!(mode(bits), text);
        }
    }

    #[test]
    fn old_and_future_times_show_their_year() {
        let now = 1_700_000_000;
        assert_eq!(time_in(now - 60, now, &TimeZone::UTC), "Nov 14 22:12");
        assert_eq!(time_in(0, now, &TimeZone::UTC), "Jan  1  1970");
        assert_eq!(time_in(now + 60, now, &TimeZone::UTC), "Nov 14  2023");
        assert_eq!(time_in(i64::MAX, now, &TimeZone::UTC), "@9223372036854775807");
    }
}
