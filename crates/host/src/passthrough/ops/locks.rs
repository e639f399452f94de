//! GETLK, SETLK, SETLKW and INTERRUPT.

use transom_wire::{
    Handle, NodeId, Unique,
    ids::LockOwner,
    ops::lk::{FileLock, LkIn},
};

use crate::{
    Errno,
    locks::{
        Locks, Wanted, open_for_locks,
        words::{Wish, answer},
    },
    passthrough::Passthrough,
    server::{Context, Patience},
    sysfd::ofd::LockKind,
};

impl Passthrough {
    pub(in crate::passthrough) fn do_getlk(&self, arg: &LkIn) -> Result<FileLock, Errno> {
        let (locks, wish) = self.wish(arg)?;
        let kind = wish.kind.filter(|_| !wish.is_flock).ok_or(Errno::INVAL)?;
        let file = self.handles.file(Handle::from(arg.fh))?;
        locks.get(&wanted(file.nodeid, arg, &wish, kind), &file.fd).map(answer)
    }

    /// SETLK, and SETLKW where it may wait.
    pub(in crate::passthrough) fn do_setlk(&self, ctx: &Context<'_>, arg: &LkIn, waits: bool) -> Result<(), Errno> {
        let (locks, wish) = self.wish(arg)?;
        let file = self.handles.file(Handle::from(arg.fh))?;
        let waits = waits && ctx.patience == Patience::MayBlock;
        let open = || self.inodes.with_room(|| open_for_locks(&self.proc_fds, &file.fd));
        let wanted = |kind| wanted(file.nodeid, arg, &wish, kind);
        match (wish.is_flock, wish.kind) {
            (true, Some(kind)) if waits => locks.flock_waiting(ctx.unique, &file.fd, kind),
            (true, kind) => locks.flock(&file.fd, kind),
            (false, None) => locks.unset(file.nodeid, LockOwner(arg.owner), wish.range),
            (false, Some(kind)) if waits => locks.set_waiting(ctx.unique, &wanted(kind), &file.locking, open),
            (false, Some(kind)) => locks.set(&wanted(kind), &file.locking, open),
        }
    }

    pub(in crate::passthrough) fn do_interrupt(&self, unique: Unique) {
        if let Some(locks) = &self.locks {
            locks.interrupt(unique);
        }
    }

    pub(in crate::passthrough) fn do_interrupt_all(&self) {
        if let Some(dax) = &self.dax {
            dax.window.interrupt();
        }
        if let Some(locks) = &self.locks {
            locks.interrupt_all();
        }
    }

    /// Errors: ENOSYS for a kind of lock that stays within the guest.
    fn wish(&self, arg: &LkIn) -> Result<(&Locks, Wish), Errno> {
        let wish = Wish::read(arg)?;
        let is_on = if wish.is_flock { self.config.flock } else { self.config.posix_lock };
        match &self.locks {
            Some(locks) if is_on => Ok((locks, wish)),
            _ => Err(Errno::NOSYS),
        }
    }
}

fn wanted(inode: NodeId, arg: &LkIn, wish: &Wish, kind: LockKind) -> Wanted {
    Wanted { inode, owner: LockOwner(arg.owner), pid: arg.lk.pid.get(), range: wish.range, kind }
}
