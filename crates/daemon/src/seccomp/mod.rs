//! The system calls that a serving daemon may make: an allow-list.
//!
//! `table` is the list; `arguments` holds the restrictions of a few calls. Calls that are always allowed cost nothing
//! measurable: the kernel keeps a bitmap of them.

mod arguments;
mod table;

use crate::options::{FileHandles, SeccompMode};
use arguments::Arguments;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch, apply_filter_all_threads};
use std::collections::BTreeMap;
use thiserror::Error;

/// One entry of the list.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    number: libc::c_long,
    symbol: &'static str,
    /// Whether an ordinary run may not make the call.
    pub is_rare: bool,
    arguments: Arguments,
    /// Why the daemon makes the call.
    pub why: &'static str,
}

impl Call {
    /// Returns the call's name, as `strace` and manual pages spell it.
    pub fn name(&self) -> &'static str {
        self.symbol.trim_start_matches("SYS_")
    }
}

/// Why the filter cannot be installed.
#[derive(Debug, Error)]
pub enum SeccompError {
    /// The rules cannot be compiled, or the kernel rejects them.
    #[error("cannot restrict system calls: {0} (--seccomp none serves without)")]
    Filter(#[from] seccompiler::Error),
    /// This processor architecture is not supported.
    #[error("cannot restrict system calls on {0}; --seccomp none serves without")]
    Architecture(&'static str),
}

impl From<seccompiler::BackendError> for SeccompError {
    fn from(error: seccompiler::BackendError) -> Self {
        Self::Filter(error.into())
    }
}

/// What decides whether some calls are on the list.
#[derive(Debug, Clone, Copy)]
pub struct Uses {
    /// Whether inodes are held by handles.
    pub file_handles: FileHandles,
    /// Whether directories are observed as they become known.
    pub observes_directories: bool,
}

/// Returns every call on the list.
pub fn calls(uses: Uses) -> impl Iterator<Item = &'static Call> {
    let handle_calls = if uses.file_handles == FileHandles::Never { &[] } else { table::HANDLE_CALLS };
    let observing_calls = if uses.observes_directories { table::OBSERVING_CALLS } else { &[] };
    table::CALLS.iter().chain(handle_calls).chain(observing_calls).chain(table::OLDER_CALLS)
}

/// Restricts all present and future threads of this process to the list. This cannot be undone.
///
/// Must be called after the last fork: the list allows signals only to this process.
pub fn restrict(mode: SeccompMode, uses: Uses) -> Result<(), SeccompError> {
    let action = match mode {
        SeccompMode::None => return Ok(()),
        SeccompMode::Kill => SeccompAction::KillProcess,
        SeccompMode::Log => SeccompAction::Log,
        SeccompMode::Trap => SeccompAction::Trap,
    };
    // The kernel applies the stricter of the two filters.
    apply_filter_all_threads(&without_clone3()?)?;
    apply_filter_all_threads(&allow_list(action, uses)?)?;
    Ok(())
}

fn allow_list(otherwise: SeccompAction, uses: Uses) -> Result<BpfProgram, SeccompError> {
    let rules = calls(uses).map(|call| Ok((call.number, call.arguments.rules()?)));
    let rules = rules.collect::<Result<_, SeccompError>>()?;
    compile(rules, otherwise, SeccompAction::Allow)
}

/// Returns a filter that answers clone3 with ENOSYS, so that the C library falls back to clone: clone3's arguments lie
/// in memory, which no filter sees.
fn without_clone3() -> Result<BpfProgram, SeccompError> {
    let rules = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    compile(rules, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS.cast_unsigned()))
}

fn compile(
    rules: BTreeMap<libc::c_long, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, SeccompError> {
    let arch = std::env::consts::ARCH;
    let target = TargetArch::try_from(arch).map_err(|_| SeccompError::Architecture(arch))?;
    Ok(SeccompFilter::new(rules, otherwise, listed, target)?.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Uses = Uses { file_handles: FileHandles::Prefer, observes_directories: true };

    #[test]
    fn each_list_is_in_order_and_gives_reasons() {
        for list in [table::CALLS, table::HANDLE_CALLS, table::OBSERVING_CALLS, table::OLDER_CALLS] {
            assert!(list.is_sorted_by(|a, b| a.name() < b.name()), "in the order of names, each once");
            assert!(list.iter().all(|call| call.why.len() >= 4 && !call.why.ends_with('.')));
        }
    }

    #[test]
    fn no_call_is_listed_twice() {
        let all = || calls(ALL);
        let numbers: std::collections::HashSet<_> = all().map(|call| call.number).collect();

        assert_eq!(numbers.len(), all().count());
    }

    #[test]
    fn programs_new_processes_and_namespaces_are_not_on_the_list() {
        for name in ["execve", "execveat", "fork", "vfork", "socket", "connect", "ptrace", "mount", "bpf", "setns"] {
            assert!(calls(ALL).all(|call| call.name() != name), "{name}");
        }
    }

    #[test]
    fn the_rules_compile_for_this_machine() {
        let least = Uses { file_handles: FileHandles::Never, observes_directories: false };
        for uses in [least, ALL] {
            allow_list(SeccompAction::KillProcess, uses).unwrap();
        }
        without_clone3().unwrap();
    }
}
