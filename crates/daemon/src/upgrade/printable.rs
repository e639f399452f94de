//! Texts of a daemon, which may be in the hands of a guest, as a terminal and a log can show them.

/// Returns `text` with control characters, and those that reorder or hide others, as escapes such as `\u{1b}`.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_plain(character) {
            shown.push(character);
        } else {
            shown.extend(character.escape_unicode());
        }
    }
    shown
}

fn is_plain(character: char) -> bool {
    // Zero width, direction, and line separators.
    let is_invisible =
        matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    !character.is_control() && !is_invisible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped_and_the_rest_stays() {
        assert_eq!(printable("caf\u{e9}: 'no such file' \u{6587}"), "caf\u{e9}: 'no such file' \u{6587}");
        assert_eq!(printable("\u{1b}]0;title\u{7}\r\n"), r"\u{1b}]0;title\u{7}\u{d}\u{a}");
        assert_eq!(printable("\u{9b}31m\u{7f}\u{202e}txt\u{200b}"), r"\u{9b}31m\u{7f}\u{202e}txt\u{200b}");
    }
}
