//! Does one operation in the process that is asked to, in its current directory.

use rustix::fs::{FallocateFlags, OFlags};

use super::{
    inspect,
    operation::{Access, Attribute, ByteLock, Content, Creation, LockKind, OpenMode, Operation, SLOTS},
    outcome::{Outcome, shown},
    tree::{RACES, REPORTER, USER},
};
use crate::{
    client::{Client, Errno, Handle, Lock, LockOwner, RenameFlags, Result, SetTime, Time, XattrFlags},
    syscalls::{
        Syscalls,
        child::{self, Ending},
        ioctl,
    },
};

/// The descriptors of one process.
#[derive(Debug, Default)]
pub(super) struct Actor {
    slots: [Option<Handle>; SLOTS as usize],
}

/// Why a step has no outcome but an error.
enum Stop {
    /// What it names is not there.
    Nothing,
    Errno(Errno),
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl Actor {
    pub(super) fn perform(&mut self, operation: &Operation) -> Outcome {
        match self.call(operation) {
            Ok(outcome) => outcome,
            Err(Stop::Nothing) => Outcome::nothing(),
            Err(Stop::Errno(errno)) => Outcome::error(errno),
        }
    }

    fn handle(&self, slot: u8) -> std::result::Result<Handle, Stop> {
        self.slots[usize::from(slot)].ok_or(Stop::Nothing)
    }

    /// Leaves out what root writes to a file with set-id bits: the bare directory keeps them.
    ///
    /// FALLOCATE and COPY_FILE_RANGE do not say whether the caller may keep the bits, so that a careful daemon takes
    /// them, and a mount that passes files through takes them on every write.
    fn avoid_roots_set_id(&self, slot: u8) -> std::result::Result<(), Stop> {
        let has_bits = || {
            let mode = Syscalls.stat_handle(self.handle(slot)?)?.mode;
            Ok::<_, Stop>(mode & 0o4000 != 0 || mode & 0o2010 == 0o2010)
        };
        if rustix::process::geteuid().is_root() && has_bits()? { Err(Stop::Nothing) } else { Ok(()) }
    }

    /// Closes what a slot holds and puts `handle` there.
    fn put(&mut self, slot: u8, handle: Option<Handle>) -> Result<()> {
        match std::mem::replace(&mut self.slots[usize::from(slot)], handle) {
            Some(old) => Syscalls.close(old),
            None => Ok(()),
        }
    }

    fn call(&mut self, operation: &Operation) -> std::result::Result<Outcome, Stop> {
        let done = Outcome::ok();
        match operation {
            Operation::Open { slot, name, mode, permissions } => {
                let handle = Syscalls.open(name.bytes(), open_flags(*mode), (*permissions).into())?;
                self.put(*slot, Some(handle))?;
            }
            Operation::Close { slot } => {
                self.handle(*slot)?;
                self.put(*slot, None)?;
            }
            Operation::Duplicate { from, to } => {
                let from = self.handle(*from)?;
                let handle = ioctl::duplicate(from)?;
                self.put(*to, Some(handle))?;
            }
            Operation::Read { slot, offset, len } => {
                let mut buf = vec![0; usize::from(*len)];
                let len = Syscalls.read_at(self.handle(*slot)?, &mut buf, (*offset).into())?;
                return Ok(done.with("data", shown(&buf[..len])));
            }
            Operation::Write { slot, offset, content } => {
                self.avoid_roots_set_id(*slot)?;
                let len = Syscalls.write_at(self.handle(*slot)?, &bytes(*content), (*offset).into())?;
                return Ok(done.with("count", len));
            }
            Operation::Append { slot, content } => {
                self.avoid_roots_set_id(*slot)?;
                let len = Syscalls.write(self.handle(*slot)?, &bytes(*content))?;
                return Ok(done.with("count", len));
            }
            Operation::Truncate { slot, len } => Syscalls.truncate_handle(self.handle(*slot)?, (*len).into())?,
            Operation::Allocate { slot, punches, offset, len } => {
                self.avoid_roots_set_id(*slot)?;
                let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let mode = if *punches { punch } else { FallocateFlags::empty() };
                Syscalls.fallocate(self.handle(*slot)?, mode, (*offset).into(), (*len).into())?;
            }
            Operation::Copy { from, to, len } => {
                self.avoid_roots_set_id(*to)?;
                let (from, to) = (self.handle(*from)?, self.handle(*to)?);
                return Ok(done.with("count", Syscalls.copy_range(from, 0, to, 0, (*len).into())?));
            }
            Operation::Sync { slot } => Syscalls.sync(self.handle(*slot)?, false)?,
            Operation::Status { slot } => {
                return Ok(done.with_attributes("", &Syscalls.stat_handle(self.handle(*slot)?)?));
            }
            Operation::ChangeMode { slot, permissions } => {
                Syscalls.chmod_handle(self.handle(*slot)?, (*permissions).into())?;
            }
            Operation::ChangeOwner { slot, uid, gid } => Syscalls.chown_handle(self.handle(*slot)?, *uid, *gid)?,
            Operation::Ioctl { slot, number, value } => {
                let answer = ioctl::ioctl(self.handle(*slot)?, *number, *value)?;
                return Ok(done.with("answer", format!("{answer:#x}")));
            }
            Operation::Lock { slot, lock } => {
                Syscalls.lock(self.handle(*slot)?, owner(*lock), range(*lock), false)?;
            }
            Operation::QueryLock { slot, lock } => {
                let (found, pid) = Syscalls.query_lock(self.handle(*slot)?, owner(*lock), range(*lock))?;
                return Ok(done.with_lock(found, pid));
            }
            Operation::Flock { slot, kind } => Syscalls.flock(self.handle(*slot)?, client_kind(*kind), false)?,
            Operation::Mask { mask } => drop(Syscalls.umask((*mask).into())),
            Operation::RaceOpen { name } => return race(&format!("{RACES}/{name}")),
            Operation::Inspect => return Ok(inspect::inspect()?),
            // `caller` does these.
            Operation::Fork | Operation::Exit | Operation::Race { .. } => return Err(Stop::Nothing),
            by_name => return call_by_name(by_name),
        }
        Ok(done)
    }
}

/// The calls that take names only.
fn call_by_name(operation: &Operation) -> std::result::Result<Outcome, Stop> {
    let done = Outcome::ok();
    match operation {
        Operation::PathStatus { name } => {
            return Ok(done.with_attributes("", &Syscalls.stat(name.bytes(), false)?));
        }
        Operation::PathTruncate { name, len } => Syscalls.truncate(name.bytes(), (*len).into())?,
        Operation::PathChangeMode { name, permissions } => Syscalls.chmod(name.bytes(), (*permissions).into())?,
        Operation::PathChangeOwner { name, uid, gid } => Syscalls.chown(name.bytes(), *uid, *gid, false)?,
        Operation::PathTimes { name, is_now } => {
            let time = if *is_now { SetTime::Now } else { SetTime::At(Time { sec: 1_000_000_000, nsec: 0 }) };
            Syscalls.utimens(name.bytes(), time, time, false)?;
        }
        Operation::MayAccess { name, mask } => {
            Syscalls.access(name.bytes(), rustix::fs::Access::from_bits_retain((*mask).into()), true)?;
        }
        Operation::MakeDirectory { name, permissions } => Syscalls.mkdir(name.bytes(), (*permissions).into())?,
        Operation::RemoveDirectory { name } => Syscalls.rmdir(name.bytes())?,
        Operation::Unlink { name } => Syscalls.unlink(name.bytes())?,
        Operation::Link { old, new } => Syscalls.link(old.bytes(), new.bytes(), false)?,
        Operation::Symlink { target, name } => Syscalls.symlink(target.bytes(), name.bytes())?,
        Operation::Rename { old, new, flags } => {
            Syscalls.rename(old.bytes(), new.bytes(), RenameFlags::from_bits_retain(*flags))?;
        }
        Operation::List { name } => return Ok(done.with("names", inspect::names(name.bytes())?.join(" "))),
        Operation::SetAttribute { name, attribute, value } => {
            let value = attribute_value(*attribute, *value);
            Syscalls.xattr_set(name.bytes(), attribute.name().as_bytes(), &value, XattrFlags::empty(), true)?;
        }
        Operation::GetAttribute { name, attribute } => {
            let mut buf = [0; 256];
            let len = Syscalls.xattr_get(name.bytes(), attribute.name().as_bytes(), &mut buf, true)?;
            return Ok(done.with("value", shown(&buf[..len])));
        }
        Operation::RemoveAttribute { name, attribute } => {
            Syscalls.xattr_remove(name.bytes(), attribute.name().as_bytes(), true)?;
        }
        Operation::Execute { name } => {
            return Ok(match child::execute(name.bytes())? {
                Ending::Exit(status) => done.with("runs-as", format!("uid&7={} gid&7={}", status & 7, status >> 3)),
                other => done.with("runs-as", format!("{other:?}")),
            });
        }
        _ => return Err(Stop::Nothing),
    }
    Ok(done)
}

/// Opens a file that root may be creating at this moment, and tells whose file it got.
fn race(name: &str) -> std::result::Result<Outcome, Stop> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
    let handle = Syscalls.open(name.as_bytes(), flags, 0o600)?;
    let status = Syscalls.stat_handle(handle);
    Syscalls.close(handle)?;
    let status = status?;
    let is_refused = status.uid != USER && status.mode & 0o006 != 0o006;
    Ok(Outcome::ok().with("holds-what-it-may-not-open", is_refused))
}

fn bytes(content: Content) -> Vec<u8> {
    match content {
        Content::Letters(letter, len) => vec![letter; len.into()],
        Content::Reporter => REPORTER.to_vec(),
    }
}

fn open_flags(mode: OpenMode) -> OFlags {
    // A FIFO or a terminal would wait; programs have neither, and renames may change that.
    let mut flags = OFlags::NONBLOCK;
    flags |= match mode.access {
        Access::Read => OFlags::RDONLY,
        Access::Write => OFlags::WRONLY,
        Access::ReadWrite => OFlags::RDWR,
    };
    flags |= match mode.creates {
        Creation::No => OFlags::empty(),
        Creation::IfMissing => OFlags::CREATE,
        Creation::Exclusive => OFlags::CREATE | OFlags::EXCL,
    };
    flags.set(OFlags::TRUNC, mode.truncates);
    flags.set(OFlags::APPEND, mode.appends);
    flags
}

fn client_kind(kind: LockKind) -> crate::client::LockKind {
    match kind {
        LockKind::Read => crate::client::LockKind::Read,
        LockKind::Write => crate::client::LockKind::Write,
        LockKind::Unlock => crate::client::LockKind::None,
    }
}

fn owner(lock: ByteLock) -> LockOwner {
    if lock.is_description { LockOwner::Description } else { LockOwner::Process }
}

fn range(lock: ByteLock) -> Lock {
    Lock { kind: client_kind(lock.kind), start: lock.start.into(), len: lock.len.into() }
}

/// The bytes of an attribute: some are valid, one is not.
fn attribute_value(attribute: Attribute, value: u8) -> Vec<u8> {
    let list = |entries: &[(u16, u16, u32)]| {
        let entries = entries.iter().flat_map(|(tag, rights, id)| {
            [tag.to_le_bytes().as_slice(), &rights.to_le_bytes(), &id.to_le_bytes()].concat()
        });
        2u32.to_le_bytes().into_iter().chain(entries).collect()
    };
    const OWNER: u16 = 1;
    const NAMED_USER: u16 = 2;
    const GROUP: u16 = 4;
    const MASK: u16 = 16;
    const OTHER: u16 = 32;
    const NOBODY: u32 = u32::MAX;
    match (attribute, value) {
        // Version 2, CAP_NET_RAW permitted and effective.
        (Attribute::Capability, 0 | 1) => {
            [0x0200_0001u32, 1 << 13, 0, 0, 0].iter().flat_map(|n| n.to_le_bytes()).collect()
        }
        (Attribute::AccessList | Attribute::DefaultList, 0) => list(&[
            (OWNER, 6, NOBODY),
            (NAMED_USER, 6, USER),
            (GROUP, 0, NOBODY),
            (MASK, 6, NOBODY),
            (OTHER, 0, NOBODY),
        ]),
        (Attribute::AccessList | Attribute::DefaultList, 1) => {
            list(&[(OWNER, 7, NOBODY), (GROUP, 5, NOBODY), (OTHER, 4, NOBODY)])
        }
        _ => vec![b'v'; usize::from(value) * 7],
    }
}
