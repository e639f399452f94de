//! Steps as people read them.

use std::fmt;

use super::{
    operation::{Access, ByteLock, Caller, Content, Creation, LockKind, Name, OpenMode, Operation, Process, Step},
    tree::NAMES,
};

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES[usize::from(self.0)])
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Root => "root",
            Self::User => "user",
        })
    }
}

impl fmt::Display for OpenMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.access {
            Access::Read => "O_RDONLY",
            Access::Write => "O_WRONLY",
            Access::ReadWrite => "O_RDWR",
        })?;
        f.write_str(match self.creates {
            Creation::No => "",
            Creation::IfMissing => "|O_CREAT",
            Creation::Exclusive => "|O_CREAT|O_EXCL",
        })?;
        f.write_str(if self.truncates { "|O_TRUNC" } else { "" })?;
        f.write_str(if self.appends { "|O_APPEND" } else { "" })
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Letters(letter, len) => write!(f, "\"{}\" * {len}", char::from(*letter)),
            Self::Reporter => f.write_str("a program"),
        }
    }
}

impl fmt::Display for LockKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "shared",
            Self::Write => "exclusive",
            Self::Unlock => "unlock",
        })
    }
}

impl fmt::Display for ByteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}+{}", self.kind, self.start, self.len)
    }
}

/// An owner as an argument of chown.
struct Owner(Option<u32>);

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(id) => id.fmt(f),
            None => f.write_str("-1"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = self.call();
        match self {
            Self::Open { slot, name, mode, permissions } => {
                let is_created = mode.creates != Creation::No;
                let permissions = if is_created { format!(", 0{permissions:o}") } else { String::new() };
                write!(f, "fd{slot} = open({name}, {mode}{permissions})")
            }
            Self::Duplicate { from, to } => write!(f, "fd{to} = dup(fd{from})"),
            Self::Read { slot, offset, len } => write!(f, "pread(fd{slot}, {len} bytes at {offset})"),
            Self::Write { slot, offset, content } => write!(f, "pwrite(fd{slot}, {content} at {offset})"),
            Self::Append { slot, content } => write!(f, "write(fd{slot}, {content})"),
            Self::Truncate { slot, len } => write!(f, "ftruncate(fd{slot}, {len})"),
            Self::Allocate { slot, punches, offset, len } => {
                let mode = if *punches { "PUNCH_HOLE|KEEP_SIZE" } else { "0" };
                write!(f, "fallocate(fd{slot}, {mode}, {offset}+{len})")
            }
            Self::Copy { from, to, len } => write!(f, "copy_file_range(fd{from}, fd{to}, {len})"),
            Self::Close { slot } | Self::Sync { slot } | Self::Status { slot } => write!(f, "{call}(fd{slot})"),
            Self::ChangeMode { slot, permissions } => write!(f, "fchmod(fd{slot}, 0{permissions:o})"),
            Self::ChangeOwner { slot, uid, gid } => {
                write!(f, "fchown(fd{slot}, {}, {})", Owner(*uid), Owner(*gid))
            }
            Self::Ioctl { slot, number, value } => write!(f, "ioctl(fd{slot}, {number:#010x}, {value:#x})"),
            Self::Lock { slot, lock } | Self::QueryLock { slot, lock } => write!(f, "{call}(fd{slot}, {lock})"),
            Self::Flock { slot, kind } => write!(f, "flock(fd{slot}, {kind})"),
            Self::PathTruncate { name, len } => write!(f, "truncate({name}, {len})"),
            Self::PathChangeMode { name, permissions } => write!(f, "chmod({name}, 0{permissions:o})"),
            Self::PathChangeOwner { name, uid, gid } => write!(f, "lchown({name}, {}, {})", Owner(*uid), Owner(*gid)),
            Self::PathTimes { name, is_now } => {
                write!(f, "utimensat({name}, {})", if *is_now { "now" } else { "the year 2001" })
            }
            Self::MayAccess { name, mask } => write!(f, "access({name}, {mask})"),
            Self::MakeDirectory { name, permissions } => write!(f, "mkdir({name}, 0{permissions:o})"),
            Self::PathStatus { name }
            | Self::RemoveDirectory { name }
            | Self::Unlink { name }
            | Self::List { name }
            | Self::Execute { name } => write!(f, "{call}({name})"),
            Self::Link { old, new } => write!(f, "link({old}, {new})"),
            Self::Symlink { target, name } => write!(f, "symlink({target}, {name})"),
            Self::Rename { old, new, flags: 0 } => write!(f, "rename({old}, {new})"),
            Self::Rename { old, new, flags } => write!(f, "renameat2({old}, {new}, {flags})"),
            Self::SetAttribute { name, attribute, value } => {
                write!(f, "setxattr({name}, {}, value {value})", attribute.name())
            }
            Self::GetAttribute { name, attribute } | Self::RemoveAttribute { name, attribute } => {
                write!(f, "{call}({name}, {})", attribute.name())
            }
            Self::Mask { mask } => write!(f, "umask(0{mask:o})"),
            Self::Race { attempts } => write!(
                f,
                "{attempts} times: open(O_RDWR|O_CREAT|O_TRUNC) while root creates the name on the host with mode 0600"
            ),
            Self::RaceOpen { name } => write!(f, "open({name}, O_RDWR|O_CREAT|O_TRUNC)"),
            Self::Fork | Self::Exit | Self::Inspect => f.write_str(&call),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let child = if self.process == Process::Child { "'s child" } else { "" };
        write!(f, "{}{child}: {}", self.caller, self.operation)
    }
}
