//! GETLK, SETLK, SETLKW and INTERRUPT.

use transom_wire::{
    Handle, NodeId,
    ids::LockOwner,
    operation::{Getlk, Interrupt, Setlk, Setlkw},
    ops::lk::{LkIn, LkOut},
};

use crate::{
    Errno,
    locks::{
        Locks, Wanted, open_for_locks,
        words::{Wish, answer},
    },
    passthrough::Passthrough,
    server::{BlockingMode, Call, Context, FileSystem, Serve},
    sysfd::ofd::LockKind,
};

impl Serve<Getlk> for Passthrough {
    fn serve(&self, call: Call<'_, Getlk>) -> Result<LkOut, Errno> {
        let arg = &call.arg;
        let (locks, wish) = self.wish(arg)?;
        let kind = wish.kind.filter(|_| !wish.is_flock).ok_or(Errno::INVAL)?;
        let file = self.handles.file(Handle::from(arg.fh))?;
        let found = locks.get(&wanted(file.nodeid, arg, &wish, kind), &file.fd)?;
        Ok(LkOut { lk: answer(found) })
    }
}

impl Serve<Setlk> for Passthrough {
    /// # Errors
    ///
    /// EAGAIN if another lock conflicts.
    fn serve(&self, call: Call<'_, Setlk>) -> Result<(), Errno> {
        self.set_lock(&call.ctx, &call.arg, false)
    }
}

impl Serve<Setlkw> for Passthrough {
    /// Waits for the lock if the request may wait.
    ///
    /// # Errors
    ///
    /// EINTR after INTERRUPT; EAGAIN as for SETLK if the request may not wait.
    fn serve(&self, call: Call<'_, Setlkw>) -> Result<(), Errno> {
        self.set_lock(&call.ctx, &call.arg, call.ctx.blocking == BlockingMode::MayBlock)
    }
}

impl Serve<Interrupt> for Passthrough {
    fn serve(&self, call: Call<'_, Interrupt>) -> Result<(), Errno> {
        self.interrupt(call.arg.unique.into());
        Ok(())
    }
}

impl Passthrough {
    fn set_lock(&self, ctx: &Context<'_>, arg: &LkIn, waits: bool) -> Result<(), Errno> {
        let (locks, wish) = self.wish(arg)?;
        let file = self.handles.file(Handle::from(arg.fh))?;
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

    /// Parses a lock request. Errors: ENOSYS for a kind of lock that stays within the guest.
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
