//! Requests that must not be done twice: what each is about to do is recorded first. A process that serves it again
//! after a death looks at the host, and finds out whether it was done.
//!
//! Without a journal, each of these costs a branch. With one, a `statx` of the name or the file.

use std::{
    os::fd::AsFd,
    time::{SystemTime, UNIX_EPOCH},
};

use rustix::fs::{AtFlags, RenameFlags, Statx};

use super::{Passthrough, inodes::Inode};
use crate::{
    Errno,
    journal::{FileId, Intent, Journal},
    server::{Context, GuestSlice, total_len},
    sysfd::stat,
};

/// How far the clock of a file system's server may be behind, and a local one's, which moves in steps.
const CLOCK_SKEW_NS: u64 = 2_000_000_000;

impl Passthrough {
    /// Returns whether the request has made the file `name` before the process died. Records that it is about to,
    /// otherwise.
    pub(super) fn has_made(&self, ctx: &Context<'_>, dir: &Inode, name: &[u8]) -> Result<bool, Errno> {
        let Some(journal) = &self.journal else { return Ok(false) };
        let found = stat_of(dir, name);
        let earlier = journal.earlier(ctx.unique.0);
        if let (Some(Intent::Make { at_ns }), Some(stat)) = (earlier, &found) {
            let born_ns = FileId::of(stat).born_ns;
            let is_new = born_ns == 0 || born_ns.saturating_add(CLOCK_SKEW_NS) >= at_ns;
            if is_new && self.host_uid(ctx.uid)?.0 == stat.stx_uid {
                return Ok(true);
            }
        }
        if found.is_none() {
            let at_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
            journal.intend(ctx.unique.0, &Intent::Make { at_ns });
        }
        Ok(false)
    }

    /// As [`Passthrough::has_made`], for another name of `inode`.
    pub(super) fn has_linked(&self, ctx: &Context<'_>, inode: &Inode, dir: &Inode, name: &[u8]) -> Result<bool, Errno> {
        let Some(journal) = &self.journal else { return Ok(false) };
        let found = stat_of(dir, name).as_ref().map(FileId::of);
        let linked = FileId::of(&stat::statx(&inode.fd, AtFlags::empty(), stat::IDENTITY)?);
        let earlier = journal.earlier(ctx.unique.0);
        if earlier.is_some() && found == Some(linked) {
            return Ok(true);
        }
        if found.is_none() {
            journal.intend(ctx.unique.0, &Intent::Make { at_ns: 0 });
        }
        Ok(false)
    }

    /// Returns whether the request has removed `name` before the process died. Records what it is about to remove,
    /// otherwise.
    pub(super) fn has_removed(&self, ctx: &Context<'_>, dir: &Inode, name: &[u8]) -> bool {
        let Some(journal) = &self.journal else { return false };
        let found = stat_of(dir, name).as_ref().map(FileId::of);
        match (journal.earlier(ctx.unique.0), found) {
            (Some(Intent::Remove(file)), found) if found != Some(file) => return true,
            (_, Some(file)) => journal.intend(ctx.unique.0, &Intent::Remove(file)),
            (_, None) => {}
        }
        false
    }

    /// Returns whether the request has renamed before the process died. Records what it is about to rename, otherwise.
    ///
    /// # Errors
    ///
    /// EIO if neither is the case.
    pub(super) fn has_renamed(
        &self,
        ctx: &Context<'_>,
        (dir, name): (&Inode, &[u8]),
        (new_dir, new_name): (&Inode, &[u8]),
        flags: RenameFlags,
    ) -> Result<bool, Errno> {
        let Some(journal) = &self.journal else { return Ok(false) };
        let at = |dir, name| stat_of(dir, name).as_ref().map(FileId::of);
        let (old, new) = (at(dir, name), at(new_dir, new_name));
        if let Some(Intent::Rename(file, replaced)) = journal.earlier(ctx.unique.0) {
            let is_undone = (old, new) == (Some(file), replaced);
            let is_left = match flags {
                RenameFlags::EXCHANGE => old == replaced,
                // Something else has the name then.
                RenameFlags::WHITEOUT => old != Some(file),
                _ => old.is_none(),
            };
            match is_undone {
                true => {}
                false if new == Some(file) && is_left => return Ok(true),
                false => return Err(undecided(journal)),
            }
        }
        if let Some(file) = old {
            journal.intend(ctx.unique.0, &Intent::Rename(file, new));
        }
        Ok(false)
    }

    /// Returns how many bytes of `data` the request has appended before the process died, if it has. Records where the
    /// file ends, otherwise.
    ///
    /// # Errors
    ///
    /// EIO if somebody else has changed the file's size too.
    pub(super) fn has_appended(
        &self,
        ctx: &Context<'_>,
        file: impl AsFd,
        data: &[GuestSlice<'_>],
    ) -> Result<Option<u32>, Errno> {
        let Some(journal) = &self.journal else { return Ok(None) };
        let now = stat::statx(file, AtFlags::empty(), stat::IDENTITY)?.stx_size;
        if let Some(Intent::Append { size }) = journal.earlier(ctx.unique.0) {
            let wanted = total_len(data);
            match now.checked_sub(size) {
                Some(0) => {}
                Some(written) if written <= wanted as u64 => return Ok(Some(written as u32)),
                _ => return Err(undecided(journal)),
            }
        }
        journal.intend(ctx.unique.0, &Intent::Append { size: now });
        Ok(None)
    }

    /// Dies here if a test of the journal wants that.
    pub(super) fn journal_step(&self, name: &str) {
        if let Some(journal) = &self.journal {
            journal.step(name);
        }
    }
}

/// Counts a request of which nobody knows whether it was done.
pub(super) fn undecided(journal: &Journal) -> Errno {
    journal.count_undecided();
    tracing::warn!("a request fails with EIO: nobody knows whether the process that died has done it");
    Errno::IO
}

fn stat_of(dir: &Inode, name: &[u8]) -> Option<Statx> {
    stat::statx_at(&dir.fd, name, stat::IDENTITY).ok()
}
