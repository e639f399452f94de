//! What an error quotes of the logs of a machine: the last lines, or a kernel panic.

use std::{fs, path::Path};

/// Number of lines of a log that an error quotes.
const LAST_LINES: usize = 20;

/// Reads a log without the carriage returns of a serial line; returns an empty string if it does not exist.
pub(super) fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).replace('\r', "")
}

/// Returns the last lines of a text.
pub(super) fn tail(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].iter().flat_map(|line| [line, "\n"]).collect()
}

/// The beginnings of a kernel's report of a fault before a panic.
const FAULTS: [&str; 4] = ["BUG: ", "Oops: ", "general protection fault", "[ cut here ]"];
/// Maximum number of lines between such a report and the panic.
const FAULT_LINES_MAX: usize = 100;

/// Returns the message of a kernel panic and the lines after it, with the report of the fault before it, if there is
/// one.
pub(super) fn panic_message(console: &str) -> Option<String> {
    let lines: Vec<_> = console.lines().collect();
    let panic = lines.iter().position(|line| line.contains("Kernel panic"))?;
    let earliest = panic.saturating_sub(FAULT_LINES_MAX);
    let is_fault = |line: &&str| FAULTS.iter().any(|fault| line.contains(fault));
    let begin = lines[earliest..panic].iter().position(is_fault).map_or(panic, |at| earliest + at);
    Some(lines[begin..lines.len().min(panic + LAST_LINES)].join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_quoted_from_its_message_on_and_the_fault_before_it() {
        let mut console = String::from("before\n[    1.5] Kernel panic - not syncing: why\n");
        console.extend((0..100).map(|n| format!("trace {n}\n")));
        let message = panic_message(&console).unwrap();
        assert!(message.starts_with("[    1.5] Kernel panic - not syncing: why\ntrace 0\n"));
        assert_eq!(message.lines().count(), LAST_LINES);
        assert_eq!(panic_message("no such thing"), None);

        let fault = "[    1.4] BUG: unable to handle page fault\n[    1.4] Call Trace:\n";
        let message = panic_message(&format!("before\n{fault}{message}")).unwrap();
        assert!(message.starts_with(fault) && message.lines().count() == LAST_LINES + 2);
    }

    #[test]
    fn a_tail_is_the_last_lines() {
        let text: String = (0..100).map(|n| format!("{n}\n")).collect();
        assert_eq!(tail(&text).lines().next(), Some("80"));
        assert_eq!(tail("one"), "one\n");
        assert_eq!(tail(""), "");
    }
}
