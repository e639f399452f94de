//! The arguments with which a call is allowed, where not all of them are.
//!
//! A filter sees registers, not memory: flags, commands and numbers of processes can be limited, paths and structures
//! cannot.

use super::SeccompError;
use seccompiler::{SeccompCmpArgLen as ArgLen, SeccompCmpOp as Op, SeccompCondition, SeccompRule};

/// With which arguments a call is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arguments {
    Any,
    /// A thread in the same namespaces, not a process.
    NewThread,
    /// Memory that holds no code.
    NotExecutable,
    /// The name of a thread.
    ThreadName,
    /// A thread's working directory and umask, no namespace.
    OwnDirectory,
    /// Flags of files, blocking mode of sockets.
    KnownIoctl,
    /// Copies and flags of descriptors, locks of open files. No signals: F_SETOWN would direct them to any process.
    KnownFcntl,
    /// Signals to threads of this process.
    OwnProcess,
    /// What any socket has, whatever its protocol.
    AnySocket,
    /// How long a socket waits.
    SocketTimeout,
}

/// `_IOR('X', 31, struct fsxattr)` of linux/fs.h, 28 bytes.
const FS_IOC_FSGETXATTR: libc::Ioctl = 0x801c_581f;
/// `_IOW('X', 32, struct fsxattr)` of linux/fs.h, 28 bytes.
const FS_IOC_FSSETXATTR: libc::Ioctl = 0x401c_5820;

/// The requests of ioctl.
const IOCTLS: [libc::Ioctl; 5] =
    [libc::FIONBIO, libc::FS_IOC_GETFLAGS, libc::FS_IOC_SETFLAGS, FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR];

/// The commands of fcntl.
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

/// The flags of clone that make namespaces.
const NEW_NAMESPACES: libc::c_int = libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET;

impl Arguments {
    /// The rules of which one has to hold; an empty list allows any arguments.
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

/// One rule for each of `values`: the lower 32 bits of argument `index` are that.
fn any_of<const N: usize>(index: u8, values: [i32; N]) -> Result<Vec<Vec<SeccompCondition>>, SeccompError> {
    values.into_iter().map(|value| Ok(vec![equal(index, value)?])).collect()
}

/// The lower 32 bits of argument `index` are `value`.
fn equal(index: u8, value: i32) -> Result<SeccompCondition, SeccompError> {
    Ok(SeccompCondition::new(index, ArgLen::Dword, Op::Eq, value.cast_unsigned().into())?)
}

/// Of the lower 32 bits of argument `index`, those in `mask` are `value`.
fn masked(index: u8, mask: i32, value: i32) -> Result<SeccompCondition, SeccompError> {
    let mask = mask.cast_unsigned().into();
    Ok(SeccompCondition::new(index, ArgLen::Dword, Op::MaskedEq(mask), value.cast_unsigned().into())?)
}
