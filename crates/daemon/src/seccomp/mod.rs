//! The system calls that a serving daemon may make: an allow-list.
//!
//! `table` is the list. A few calls are limited by their arguments as well. Calls that are always allowed cost nothing
//! measurable: the kernel keeps a bitmap of them.

mod table;

use crate::options::SeccompMode;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as ArgLen, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter_all_threads,
};
use std::collections::BTreeMap;
use thiserror::Error;

/// One entry of the list.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    number: libc::c_long,
    symbol: &'static str,
    /// Whether an ordinary run may go without it.
    pub is_rare: bool,
    arguments: Arguments,
    /// What the daemon makes it for.
    pub why: &'static str,
}

impl Call {
    /// Its name, as `strace` and manual pages spell it.
    pub fn name(&self) -> &'static str {
        self.symbol.trim_start_matches("SYS_")
    }
}

/// With which arguments a call is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arguments {
    Any,
    /// A thread, not a process.
    NewThread,
    /// Memory that holds no code.
    NotExecutable,
    /// The name of a thread.
    ThreadName,
    /// A thread's working directory and umask, no namespace.
    OwnDirectory,
    /// Flags of files, blocking mode of sockets.
    KnownIoctl,
}

/// Why there is no filter.
#[derive(Debug, Error)]
pub enum SeccompError {
    /// The rules cannot be compiled, or the kernel refuses them.
    #[error("cannot restrict system calls: {0} (--seccomp none serves without)")]
    Filter(#[from] seccompiler::Error),
    /// Nothing is known of this kind of processor.
    #[error("cannot restrict system calls on {0}; --seccomp none serves without")]
    Architecture(&'static str),
}

impl From<seccompiler::BackendError> for SeccompError {
    fn from(error: seccompiler::BackendError) -> Self {
        Self::Filter(error.into())
    }
}

/// Every call on the list.
pub fn calls() -> impl Iterator<Item = &'static Call> {
    table::CALLS.iter().chain(table::OLDER_CALLS)
}

/// Restricts every thread of this process, now and later, to the list. There is no way back.
pub fn restrict(mode: SeccompMode) -> Result<(), SeccompError> {
    let action = match mode {
        SeccompMode::None => return Ok(()),
        SeccompMode::Kill => SeccompAction::KillProcess,
        SeccompMode::Log => SeccompAction::Log,
        SeccompMode::Trap => SeccompAction::Trap,
    };
    // The kernel takes the strictest answer of both.
    apply_filter_all_threads(&without_clone3()?)?;
    apply_filter_all_threads(&allow_list(action)?)?;
    Ok(())
}

fn allow_list(otherwise: SeccompAction) -> Result<BpfProgram, SeccompError> {
    let rules = calls().map(|call| Ok((call.number, rules(call.arguments)?))).collect::<Result<_, SeccompError>>()?;
    compile(rules, otherwise, SeccompAction::Allow)
}

/// The arguments of clone3 lie in memory, where no filter sees them. Without it the C library takes clone.
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

/// The rules of which one has to hold; none at all: any arguments.
fn rules(arguments: Arguments) -> Result<Vec<SeccompRule>, SeccompError> {
    let condition = |index, op, value: u64| SeccompCondition::new(index, ArgLen::Dword, op, value);
    let conditions = match arguments {
        Arguments::Any => return Ok(Vec::new()),
        Arguments::NewThread => {
            let flag = u64::from(libc::CLONE_THREAD.cast_unsigned());
            vec![condition(0, Op::MaskedEq(flag), flag)?]
        }
        Arguments::NotExecutable => {
            let flag = u64::from(libc::PROT_EXEC.cast_unsigned());
            vec![condition(2, Op::MaskedEq(flag), 0)?]
        }
        Arguments::ThreadName => vec![condition(0, Op::Eq, u64::from(libc::PR_SET_NAME.cast_unsigned()))?],
        Arguments::OwnDirectory => vec![condition(0, Op::Eq, u64::from(libc::CLONE_FS.cast_unsigned()))?],
        Arguments::KnownIoctl => {
            let known =
                [libc::FIONBIO, libc::FS_IOC_GETFLAGS, libc::FS_IOC_SETFLAGS, FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR];
            let one = |request| condition(1, Op::Eq, u64::from(request as u32));
            known.into_iter().map(one).collect::<Result<_, _>>()?
        }
    };
    conditions.into_iter().map(|one| Ok(SeccompRule::new(vec![one])?)).collect()
}

/// `_IOR('X', 31, struct fsxattr)` of linux/fs.h, 28 bytes.
const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f;
/// `_IOW('X', 32, struct fsxattr)` of linux/fs.h, 28 bytes.
const FS_IOC_FSSETXATTR: libc::Ioctl = 0x401c_5820;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_list_is_in_order_and_gives_reasons() {
        for list in [table::CALLS, table::OLDER_CALLS] {
            assert!(list.is_sorted_by(|a, b| a.name() < b.name()), "in the order of names, each once");
            assert!(list.iter().all(|call| call.why.len() >= 4 && !call.why.ends_with('.')));
        }
    }

    #[test]
    fn no_call_is_listed_twice() {
        let numbers: std::collections::HashSet<_> = calls().map(|call| call.number).collect();

        assert_eq!(numbers.len(), calls().count());
    }

    #[test]
    fn programs_new_processes_and_namespaces_are_not_on_the_list() {
        for name in ["execve", "execveat", "fork", "vfork", "socket", "connect", "ptrace", "mount", "bpf", "setns"] {
            assert!(calls().all(|call| call.name() != name), "{name}");
        }
    }

    #[test]
    fn the_rules_compile_for_this_machine() {
        allow_list(SeccompAction::KillProcess).unwrap();
        without_clone3().unwrap();
    }
}
