//! Messages to the person at the terminal. Texts of images and guests are in them, which must not control it.

use std::{fmt::Display, os::unix::ffi::OsStrExt as _, path::Path};

use transom_overlay::controls_display;

/// Prints a message, which can have several lines, to standard error.
pub(crate) fn tell(message: impl Display) {
    eprintln!("transom: {}", printable(&message.to_string()));
}

/// Returns a text of several lines without characters that would control a terminal.
pub(crate) fn printable(text: &str) -> String {
    escaped(text, |letter| matches!(letter, '\n' | '\t'))
}

/// Returns a text as one line, without characters that would control a terminal.
pub(crate) fn one_line(text: &str) -> String {
    escaped(text, |_| false)
}

/// Returns a path as one line, without characters that would control a terminal.
pub(crate) fn path_in_line(path: &Path) -> String {
    bytes_in_line(path.as_os_str().as_bytes())
}

/// Returns a name as one line: without characters that would control a terminal, and with invalid UTF-8 as in `\xff`.
pub(crate) fn bytes_in_line(name: &[u8]) -> String {
    let shown = name.utf8_chunks().map(|chunk| {
        let invalid: String = chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")).collect();
        one_line(chunk.valid()) + &invalid
    });
    shown.collect()
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match controls_display(letter) && !stays(letter) {
            true => shown.extend(letter.escape_default()),
            false => shown.push(letter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn what_would_control_a_terminal_is_escaped_and_the_rest_stays() {
        let evil = "größe\t\u{1b}[2J\r\u{202e}txt\u{9b}1m\n";
        assert_eq!(printable(evil), "größe\t\\u{1b}[2J\\r\\u{202e}txt\\u{9b}1m\n");
        assert_eq!(one_line(evil), "größe\\t\\u{1b}[2J\\r\\u{202e}txt\\u{9b}1m\\n");
        assert_eq!(path_in_line(Path::new(OsStr::from_bytes(b"a\xff\x1b"))), "a\\xff\\u{1b}");
        assert_eq!(bytes_in_line(b"latin \xfc and \n"), "latin \\xfc and \\n");
    }
}
