//! What operations may cost at most: a text file in the tree, a line for each operation.

use std::fmt::Write as _;

use anyhow::{Context as _, ensure};

use super::Row;

/// What a file says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baseline {
    lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq)]
struct Line {
    operation: String,
    instructions: f64,
    system_calls: f64,
    allocations: f64,
}

/// Instructions may grow by this share.
const GROWTH_MAX: f64 = 0.05;

/// Begins the file of transomd's figures.
pub const OF_TRANSOMD: &str = "\
# What transomd executes in user space for one operation. Built with the dev profile and
# CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_CODEGEN_UNITS=4 CARGO_PROFILE_DEV_LTO=off; one request at a time, --poll-us 0,
# tmpfs, root.
# Written by: transom bench cost --write-baseline
";

/// Begins the file of the guest library's figures.
pub const OF_LIBRARY: &str = "\
# What the guest library executes in user space for one operation, over a transomd. Built with the dev profile and
# CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_CODEGEN_UNITS=4 CARGO_PROFILE_DEV_LTO=off; one thread, without polling, tmpfs,
# root.
# Written by: transom bench cost --library --write-baseline
";

impl Baseline {
    /// Returns the baseline that `rows`, of one daemon and one depth, are.
    pub fn of(rows: &[Row]) -> Self {
        let lines = rows.iter().map(|row| Line {
            operation: row.operation.clone(),
            instructions: row.counts.instructions,
            // A difference of nothing can be -0.
            system_calls: row.counts.all_system_calls() + 0.0,
            allocations: row.counts.allocations,
        });
        Self { lines: lines.collect() }
    }

    /// Returns the lower figures of both, operation by operation. What the code itself does is in both; a thread that
    /// wakes up meanwhile adds to one.
    #[must_use]
    pub fn lowest(mut self, other: &Self) -> Self {
        for line in &mut self.lines {
            let Some(other) = other.lines.iter().find(|other| other.operation == line.operation) else { continue };
            line.instructions = line.instructions.min(other.instructions);
            line.system_calls = line.system_calls.min(other.system_calls);
            line.allocations = line.allocations.min(other.allocations);
        }
        self
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    /// A line is not a name and three numbers.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty());
        let lines = lines.map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            ensure!(words.len() == 4, "{line:?}: an operation and three numbers are expected");
            let number = |word: &str| word.parse().with_context(|| format!("{line:?}: {word} is not a number"));
            Ok(Line {
                operation: words[0].to_owned(),
                instructions: number(words[1])?,
                system_calls: number(words[2])?,
                allocations: number(words[3])?,
            })
        });
        Ok(Self { lines: lines.collect::<anyhow::Result<_>>()? })
    }

    /// Returns the text of the file, which begins with `head`.
    pub fn to_text(&self, head: &str) -> String {
        let mut text = head.to_owned();
        let _ =
            writeln!(text, "# {:22} {:>12} {:>12} {:>12}", "operation", "instructions", "system calls", "allocations");
        for line in &self.lines {
            let Line { operation, instructions, system_calls, allocations } = line;
            let _ = writeln!(text, "{operation:24} {instructions:12} {system_calls:12} {allocations:12}");
        }
        text
    }

    /// Returns a sentence for each figure of `now` that is worse than allowed: more instructions by more than 5 %, a
    /// system call or an allocation more, an operation that one of the two does not have.
    pub fn worse(&self, now: &Self) -> Vec<String> {
        let mut worse = Vec::new();
        for line in &now.lines {
            let name = &line.operation;
            let Some(before) = self.lines.iter().find(|before| before.operation == *name) else {
                worse.push(format!("{name}: not in the baseline"));
                continue;
            };
            let mut compare = |what: &str, before: f64, now: f64, growth_max: f64| {
                if now > before * (1.0 + growth_max) {
                    let percent = 100.0 * (now - before) / before.max(1.0);
                    worse.push(format!("{name}: {now} {what}, {before} in the baseline ({percent:+.1} %)"));
                }
            };
            compare("instructions", before.instructions, line.instructions, GROWTH_MAX);
            compare("system calls", before.system_calls, line.system_calls, 0.0);
            compare("allocations", before.allocations, line.allocations, 0.0);
        }
        for before in &self.lines {
            if !now.lines.iter().any(|line| line.operation == before.operation) {
                worse.push(format!("{}: in the baseline, but not counted", before.operation));
            }
        }
        worse
    }
}

#[cfg(test)]
#[path = "baseline_test.rs"]
mod tests;
