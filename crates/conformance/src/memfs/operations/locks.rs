//! Locks.

use transom_host::{
    Errno,
    server::{BlockingMode, Call, FileSystem, Serve},
};
use transom_wire::{
    operation::{Getlk, Interrupt, Setlk, Setlkw},
    ops::lk::{FileLock, LkIn, LkOut},
};

use crate::memfs::{MemFs, locks::Wanted};

impl Serve<Getlk> for MemFs {
    fn serve(&self, call: Call<'_, Getlk>) -> Result<LkOut, Errno> {
        let arg = &call.arg;
        let state = self.lock();
        let nodeid = state.handles.get(arg.fh.get(), false)?.nodeid;
        let conflict = match Wanted::parse(arg)? {
            Wanted::Lock(lock) => lock.conflict(&state.tree.inode(nodeid)?.locks),
            Wanted::Unlock { .. } => return Err(Errno::INVAL),
        };
        let free = FileLock { type_: (libc::F_UNLCK as u32).into(), ..arg.lk };
        Ok(LkOut { lk: conflict.map_or(free, |lock| lock.to_wire()) })
    }
}

impl Serve<Setlk> for MemFs {
    fn serve(&self, call: Call<'_, Setlk>) -> Result<(), Errno> {
        self.try_lock(&call.arg)
    }
}

impl MemFs {
    fn try_lock(&self, arg: &LkIn) -> Result<(), Errno> {
        let wanted = Wanted::parse(arg)?;
        let mut state = self.lock();
        state.set_lock(arg.fh.get(), &wanted)?;
        self.changed.notify_all();
        Ok(())
    }
}

impl Serve<Setlkw> for MemFs {
    fn serve(&self, call: Call<'_, Setlkw>) -> Result<(), Errno> {
        let (ctx, arg) = (&call.ctx, &call.arg);
        if ctx.blocking == BlockingMode::MustNotBlock {
            return self.try_lock(arg);
        }
        let (wanted, unique) = (Wanted::parse(arg)?, ctx.unique.0);
        let mut state = self.lock();
        state.waiting.begin(unique);
        let result = loop {
            match state.set_lock(arg.fh.get(), &wanted) {
                Err(Errno::AGAIN) if state.waiting.is_interrupted(unique) => break Err(Errno::INTR),
                Err(Errno::AGAIN) => {
                    state = self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
                }
                result => break result,
            }
        };
        state.waiting.end(unique);
        self.changed.notify_all();
        result
    }
}

impl Serve<Interrupt> for MemFs {
    fn serve(&self, call: Call<'_, Interrupt>) -> Result<(), Errno> {
        self.interrupt(call.arg.unique.into());
        Ok(())
    }
}
