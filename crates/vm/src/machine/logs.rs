//! What is quoted of the logs of a machine: the last lines, a kernel panic, or why the kernel killed a program.

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

/// Maximum number of lines that are quoted of the report of a fault.
const FAULT_LINES_QUOTED: usize = 40;
/// How the kernel reports that it has ended a process for want of memory.
const OUT_OF_MEMORY: &str = "Out of memory: ";

/// Returns the report of the first fault of the kernel, or of its killing a process for want of memory. Linux ends a
/// process in whose context it faults with SIGKILL, as it does where memory is short.
pub(super) fn fault_message(console: &str) -> Option<String> {
    let lines: Vec<_> = console.lines().collect();
    let is_fault = |line: &&str| line.contains(OUT_OF_MEMORY) || FAULTS.iter().any(|fault| line.contains(fault));
    let begin = lines.iter().position(is_fault)?;
    Some(lines[begin..lines.len().min(begin + FAULT_LINES_QUOTED)].join("\n"))
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
    fn a_fault_that_is_no_panic_is_quoted_from_its_first_line_on() {
        let mut console = String::from("before\n[    1.4] BUG: unable to handle page fault for address: 0\n");
        console.extend((0..100).map(|n| format!("trace {n}\n")));
        let message = fault_message(&console).unwrap();
        assert!(message.starts_with("[    1.4] BUG: unable") && message.lines().count() == FAULT_LINES_QUOTED);
        let killed = "[    9.9] Out of memory: Killed process 77 (init)";
        assert_eq!(fault_message(&format!("before\n{killed}\n")).as_deref(), Some(killed));
        assert_eq!(fault_message("before\nafter\n"), None);
    }

    #[test]
    fn a_tail_is_the_last_lines() {
        let text: String = (0..100).map(|n| format!("{n}\n")).collect();
        assert_eq!(tail(&text).lines().next(), Some("80"));
        assert_eq!(tail("one"), "one\n");
        assert_eq!(tail(""), "");
    }
}
