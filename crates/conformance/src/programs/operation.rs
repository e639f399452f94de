//! What a program consists of: steps, each a system call of one caller's process.
//!
//! A step holds small numbers and indices into tables of this file, so that a program is a line of JSON for the process
//! that does it, a readable line for people, and cheap to shrink.

use serde::{Deserialize, Serialize};

use super::tree::NAMES;

/// How many descriptors a process has.
pub(super) const SLOTS: u8 = 3;

/// Who does a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum Caller {
    Root,
    /// [`super::tree::USER`], without supplementary groups and capabilities.
    User,
}

/// Which of a caller's processes does a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Process {
    First,
    /// The child of the first one, from [`Operation::Fork`] to [`Operation::Exit`].
    Child,
}

/// One step of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) caller: Caller,
    pub(super) process: Process,
    pub(super) operation: Operation,
}

/// An index into [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Name(pub(super) u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Access {
    Read,
    Write,
    ReadWrite,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenMode {
    pub(super) access: Access,
    pub(super) creates: Creation,
    pub(super) truncates: bool,
    pub(super) appends: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Creation {
    No,
    IfMissing,
    Exclusive,
}

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Content {
    /// This many bytes of this letter.
    Letters(u8, u16),
    /// [`super::tree::REPORTER`]: a program whose exit status tells who it runs as.
    Reporter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LockKind {
    Read,
    Write,
    Unlock,
}

/// A lock on bytes; `len` 0 reaches to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ByteLock {
    pub(super) kind: LockKind,
    pub(super) start: u8,
    pub(super) len: u8,
    /// Of the open file description rather than of the process.
    pub(super) is_description: bool,
}

/// Extended attributes that programs use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Attribute {
    User,
    Trusted,
    Capability,
    AccessList,
    DefaultList,
}

impl Attribute {
    pub(super) const ALL: [Self; 5] =
        [Self::User, Self::Trusted, Self::Capability, Self::AccessList, Self::DefaultList];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::User => "user.test",
            Self::Trusted => "trusted.test",
            Self::Capability => "security.capability",
            Self::AccessList => "system.posix_acl_access",
            Self::DefaultList => "system.posix_acl_default",
        }
    }
}

/// A system call and its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Operation {
    // Descriptors
    Open {
        slot: u8,
        name: Name,
        mode: OpenMode,
        permissions: u16,
    },
    Close {
        slot: u8,
    },
    Duplicate {
        from: u8,
        to: u8,
    },
    Read {
        slot: u8,
        offset: u16,
        len: u16,
    },
    Write {
        slot: u8,
        offset: u16,
        content: Content,
    },
    Append {
        slot: u8,
        content: Content,
    },
    Truncate {
        slot: u8,
        len: u16,
    },
    Allocate {
        slot: u8,
        punches: bool,
        offset: u16,
        len: u16,
    },
    Copy {
        from: u8,
        to: u8,
        len: u16,
    },
    Sync {
        slot: u8,
    },
    Status {
        slot: u8,
    },
    ChangeMode {
        slot: u8,
        permissions: u16,
    },
    ChangeOwner {
        slot: u8,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    Ioctl {
        slot: u8,
        number: u32,
        value: u32,
    },
    Lock {
        slot: u8,
        lock: ByteLock,
    },
    QueryLock {
        slot: u8,
        lock: ByteLock,
    },
    Flock {
        slot: u8,
        kind: LockKind,
    },
    // Names
    PathStatus {
        name: Name,
    },
    PathTruncate {
        name: Name,
        len: u16,
    },
    PathChangeMode {
        name: Name,
        permissions: u16,
    },
    PathChangeOwner {
        name: Name,
        uid: Option<u32>,
        gid: Option<u32>,
    },
    PathTimes {
        name: Name,
        is_now: bool,
    },
    MayAccess {
        name: Name,
        mask: u8,
    },
    MakeDirectory {
        name: Name,
        permissions: u16,
    },
    RemoveDirectory {
        name: Name,
    },
    Unlink {
        name: Name,
    },
    Link {
        old: Name,
        new: Name,
    },
    Symlink {
        target: Name,
        name: Name,
    },
    Rename {
        old: Name,
        new: Name,
        flags: u32,
    },
    List {
        name: Name,
    },
    SetAttribute {
        name: Name,
        attribute: Attribute,
        value: u8,
    },
    GetAttribute {
        name: Name,
        attribute: Attribute,
    },
    RemoveAttribute {
        name: Name,
        attribute: Attribute,
    },
    Execute {
        name: Name,
    },
    // Processes
    Fork,
    Exit,
    Mask {
        mask: u16,
    },
    /// On the host, root creates a file with mode 0600 while the caller opens the same name with `O_CREAT`, so often.
    Race {
        attempts: u8,
    },
    /// The part of a race that the caller does.
    RaceOpen {
        name: String,
    },
    /// Looks at the whole tree; no program has it.
    Inspect,
}

impl Operation {
    /// What differences are told by: the system call, and whether it is about a capability.
    pub(super) fn case(&self) -> String {
        let about = match self {
            Self::GetAttribute { attribute: Attribute::Capability, .. }
            | Self::RemoveAttribute { attribute: Attribute::Capability, .. } => "-capability",
            _ => "",
        };
        self.call() + about
    }

    /// The name of the system call.
    pub(super) fn call(&self) -> String {
        let name = match self {
            Self::Open { mode: OpenMode { creates: Creation::No, .. }, .. } => "open",
            Self::Open { .. } => "create",
            Self::Close { .. } => "close",
            Self::Duplicate { .. } => "dup",
            Self::Read { .. } => "read",
            Self::Write { .. } | Self::Append { .. } => "write",
            Self::Truncate { .. } => "ftruncate",
            Self::Allocate { .. } => "fallocate",
            Self::Copy { .. } => "copy_file_range",
            Self::Sync { .. } => "fsync",
            Self::Status { .. } => "fstat",
            Self::ChangeMode { .. } => "fchmod",
            Self::ChangeOwner { .. } => "fchown",
            Self::Ioctl { number, .. } => return format!("ioctl-{number:#010x}"),
            Self::Lock { lock, .. } if lock.is_description => "ofd-setlk",
            Self::Lock { .. } => "setlk",
            Self::QueryLock { lock, .. } if lock.is_description => "ofd-getlk",
            Self::QueryLock { .. } => "getlk",
            Self::Flock { .. } => "flock",
            Self::PathStatus { .. } => "lstat",
            Self::PathTruncate { .. } => "truncate",
            Self::PathChangeMode { .. } => "chmod",
            Self::PathChangeOwner { .. } => "lchown",
            Self::PathTimes { .. } => "utimensat",
            Self::MayAccess { .. } => "access",
            Self::MakeDirectory { .. } => "mkdir",
            Self::RemoveDirectory { .. } => "rmdir",
            Self::Unlink { .. } => "unlink",
            Self::Link { .. } => "link",
            Self::Symlink { .. } => "symlink",
            Self::Rename { .. } => "rename",
            Self::List { .. } => "getdents",
            Self::SetAttribute { .. } => "setxattr",
            Self::GetAttribute { .. } => "getxattr",
            Self::RemoveAttribute { .. } => "removexattr",
            Self::Execute { .. } => "execve",
            Self::Fork => "fork",
            Self::Exit => "exit",
            Self::Mask { .. } => "umask",
            Self::Race { .. } | Self::RaceOpen { .. } => "race",
            Self::Inspect => "end",
        };
        name.to_owned()
    }

    /// Whether locks that a close has given back may be in its way.
    pub(super) fn is_about_locks(&self) -> bool {
        matches!(self, Self::Lock { .. } | Self::QueryLock { .. } | Self::Flock { .. })
    }
}

impl Name {
    /// The path, relative to the program's directory.
    pub(super) fn bytes(self) -> &'static [u8] {
        NAMES[usize::from(self.0)].as_bytes()
    }
}
