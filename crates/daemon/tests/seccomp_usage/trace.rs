//! Reads what strace wrote: which calls the serving process made once its list was in force.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// The names of the calls in the trace at `path`.
pub(crate) fn calls_in(path: &Path) -> io::Result<BTreeSet<String>> {
    calls(BufReader::new(File::open(path)?))
}

fn calls(trace: impl BufRead) -> io::Result<BTreeSet<String>> {
    let mut first = None;
    // Who called seccomp, and how often: the list is the second filter.
    let mut restricted: Option<(String, u32)> = None;
    let mut calls = BTreeSet::new();
    for line in trace.lines() {
        let line = line?;
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let first = first.get_or_insert_with(|| thread.to_owned());
        // Lines of another shape tell the end of a call or of a process.
        let Some(name) = call.trim_start().split_once('(').map(|(name, _)| name) else { continue };
        if !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            continue;
        }
        match &mut restricted {
            None if name == "seccomp" => restricted = Some((thread.to_owned(), 1)),
            None => {}
            Some((by, count)) if *count < 2 => {
                *count += u32::from(by == thread && name == "seccomp");
            }
            // The first process of a trace, when it did not restrict itself, is the one outside the sandbox.
            Some((by, _)) if thread == first && by != first => {}
            Some(_) => {
                calls.insert(name.to_owned());
            }
        }
    }
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_of_the_restricted_process_count() {
        let trace = "\
10 mount(\"a\") = 0
10 clone(child_stack=NULL) = 11
11 seccomp(SECCOMP_SET_MODE_FILTER) = 0
10 wait4(11,  <unfinished ...>
11 prctl(PR_SET_NO_NEW_PRIVS) = 0
11 seccomp(SECCOMP_SET_MODE_FILTER) = 0
11 clone3({flags=CLONE_VM}) = -1 ENOSYS
11 clone(child_stack=0x1) = 12
12 read(3,  <unfinished ...>
11 write(3, \"\"..., 8) = 8
12 <... read resumed>\"\"..., 8) = 8
12 +++ exited with 0 +++
10 <... wait4 resumed>) = 11
10 unlink(\"s\") = 0
";

        let calls = calls(trace.as_bytes()).unwrap();

        assert_eq!(calls.into_iter().collect::<Vec<_>>(), ["clone", "clone3", "read", "write"]);
    }
}
