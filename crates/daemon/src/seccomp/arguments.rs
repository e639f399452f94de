//! The arguments with which a call is allowed, for calls that are not allowed with any.
//!
//! A filter sees registers, not memory: it can restrict flags, commands and process ids, but not paths and structures.

use super::SeccompError;
use seccompiler::{SeccompCmpArgLen as ArgLen, SeccompCmpOp as Op, SeccompCondition, SeccompRule};

/// The arguments with which a call is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arguments {
    Any,
    /// Creating a thread in the same namespaces, not a process.
    NewThread,
    /// Memory that is not executable.
    NotExecutable,
    /// Setting the name of a thread.
    ThreadName,
    /// Unsharing a thread's working directory and umask, no namespace.
    OwnDirectory,
    /// Inode flags, and the blocking mode of sockets.
    KnownIoctl,
    /// Copies and flags of descriptors, and open file description locks. No F_SETOWN, which could direct signals to any
    /// process.
    KnownFcntl,
    /// Signals to threads of this process.
    OwnProcess,
    /// Options common to all sockets, whatever the protocol.
    AnySocket,
    /// Timeouts of sockets.
    SocketTimeout,
}

/// `_IOR('X', 31, struct fsxattr)` of linux/fs.h, 28 bytes.
const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f;
/// `_IOW('X', 32, struct fsxattr)` of linux/fs.h, 28 bytes.
const FS_IOC_FSSETXATTR: libc::Ioctl = 0x401c_5820;

/// The allowed requests of ioctl.
const IOCTLS: [libc::Ioctl; 6] =
    [libc::FIONBIO, libc::FIONREAD, libc::FS_IOC_GETFLAGS, libc::FS_IOC_SETFLAGS, FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR];

/// The allowed commands of fcntl.
const FCNTLS: [libc::c_int; 8] = [
    libc::F_DUPFD_CLOEXEC,
    libc::F_GETFD,
    libc::F_SETFD,
    libc::F_GETFL,
    libc::F_SETFL,
    libc::F_OFD_GETLK,
    libc::F_OFD_SETLK,
    libc::F_OFD_SETLKW,
];

/// The flags of clone that create namespaces.
const NEW_NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

impl Arguments {
    /// Returns the rules of which one must match; an empty list allows any arguments.
    pub(super) fn rules(self) -> Result<Vec<SeccompRule>, SeccompError> {
        let rules = match self {
            Self::Any => return Ok(Vec::new()),
            Self::NewThread => {
                vec![vec![masked(0, libc::CLONE_THREAD | NEW_NAMESPACES, libc::CLONE_THREAD)?]]
            }
            Self::NotExecutable => vec![vec![masked(2, libc::PROT_EXEC, 0)?]],
            Self::ThreadName => vec![vec![equal(0, libc::PR_SET_NAME)?]],
            Self::OwnDirectory => vec![vec![equal(0, libc::CLONE_FS)?]],
            Self::KnownIoctl => any_of(1, IOCTLS.map(|request| request as i32))?,
            Self::KnownFcntl => any_of(1, FCNTLS)?,
            Self::OwnProcess => vec![vec![equal(0, std::process::id().cast_signed())?]],
            Self::AnySocket => vec![vec![equal(1, libc::SOL_SOCKET)?]],
            Self::SocketTimeout => {
                let mut rules = any_of(2, [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO])?;
                for rule in &mut rules {
                    rule.push(equal(1, libc::SOL_SOCKET)?);
                }
                rules
            }
        };
        rules.into_iter().map(|conditions| Ok(SeccompRule::new(conditions)?)).collect()
    }
}

/// Returns one rule for each of `values`: the lower 32 bits of argument `index` equal it.
fn any_of<const N: usize>(index: u8, values: [i32; N]) -> Result<Vec<Vec<SeccompCondition>>, SeccompError> {
    values.into_iter().map(|value| Ok(vec![equal(index, value)?])).collect()
}

/// Matches if the lower 32 bits of argument `index` equal `value`.
fn equal(index: u8, value: i32) -> Result<SeccompCondition, SeccompError> {
    Ok(SeccompCondition::new(index, ArgLen::Dword, Op::Eq, value.cast_unsigned().into())?)
}

/// Matches if the bits in `mask` of the lower 32 bits of argument `index` equal `value`.
fn masked(index: u8, mask: i32, value: i32) -> Result<SeccompCondition, SeccompError> {
    let mask = mask.cast_unsigned().into();
    Ok(SeccompCondition::new(index, ArgLen::Dword, Op::MaskedEq(mask), value.cast_unsigned().into())?)
}
