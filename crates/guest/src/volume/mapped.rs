//! Reading and writing through the window.
//!
//! Bytes below the known size are copied. The rest, and ranges that are not mapped now, go by requests, which see the
//! same pages on the server. So do accesses to a small file until a mapping pays: most are read once. Nothing else of a
//! mapped file is cached.
//!
//! A copy changes neither times nor set-id bits. So the first write of an open file is a request, and then one every
//! [`TOUCH_NS`], for which the server does both. For copies after the last of these, a SETATTR is sent before the file
//! is closed or made durable, unless the time was set in the meantime.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use transom_wire::{
    linux::O_DSYNC,
    ops::setattr::{SetattrIn, SetattrValid},
};
use zerocopy::FromZeros as _;

use super::{Inode, OpenFile};
use crate::{
    Errno, Platform,
    cache::CacheMode,
    dax::{Access, Pin, RANGE_LEN},
    memory::{Origin, Patience, Target},
    session::Caller,
};

/// Precision of times: about that of a kernel that counts ticks, and it costs half a percent of the speed of requests.
const TOUCH_NS: u64 = 10_000_000;
/// A file with fewer bytes is mapped only if that saves requests: the size from which the daemon has Linux map files
/// (`--dax-policy auto`).
const SMALL_BYTES: u64 = 256 << 10;
/// How long the size of a file is valid for copies if attributes are not cached: Linux's default, one second.
const SIZE_HOLDS_NS: u64 = 1_000_000_000;

/// State for copies of a mapped file.
#[derive(Default)]
pub(super) struct Mapped {
    /// Size in bytes; only bytes below it are copied.
    size: AtomicU64,
    /// The time at which the size expires, in nanoseconds of the platform's clock; 0 if it must be requested.
    size_until_ns: AtomicU64,
    /// Copies have changed the file since the last request that did.
    is_touched: AtomicBool,
    /// The file may again have set-id bits, or attributes that a write removes.
    has_new_rights: AtomicBool,
}

/// State for copies through an open file.
#[derive(Default)]
pub(super) struct Stream {
    /// Where the last access ended.
    end: AtomicU64,
    /// When the last write request was sent; 0 for never.
    wrote_at_ns: AtomicU64,
}

impl Mapped {
    /// Records the size from a reply.
    pub(super) fn learn(&self, size: u64, until_ns: u64) {
        self.size.store(size, Ordering::Relaxed);
        self.size_until_ns.store(until_ns, Ordering::Release);
    }

    /// Invalidates the size.
    pub(super) fn forget(&self) {
        self.size_until_ns.store(0, Ordering::Release);
    }
}

impl<P: Platform> OpenFile<P> {
    /// Returns whether the file is mapped.
    pub(super) fn is_mapped(&self) -> bool {
        self.inode().ranges().is_some()
    }

    /// Reads by copying what is in the window, and the rest by requests.
    pub(super) fn read_mapped(&self, caller: &Caller<'_>, offset: u64, mut to: Target<'_>) -> Result<usize, Errno> {
        let len = to.len();
        let is_sequential = self.stream.end.swap(offset + len as u64, Ordering::Relaxed) == offset;
        if !self.is_worth_mapping(offset, len, is_sequential) {
            return self.read_through(caller, offset, to);
        }
        let size = self.copied_size(caller)?;
        let (mut done, mut patience) = (0, Patience::default());
        while done < len {
            let at = offset + done as u64;
            let within = (at % RANGE_LEN) as usize;
            let wanted = (RANGE_LEN as usize - within).min(len - done);
            let inside = usize::try_from(size.saturating_sub(at)).unwrap_or(usize::MAX).min(wanted);
            let copied = if inside == 0 {
                None
            } else {
                let piece = to.part(done, inside);
                self.with_range(at, inside, is_sequential, Access::Read, |pin| pin.load_to(within, piece))
            };
            match copied {
                // The caller's memory is not present; the range is not pinned any more.
                Some(0) if patience.allows(to.rest(done).fault_in()) => continue,
                Some(0) if done == 0 => return Err(Errno::FAULT),
                Some(0) => break,
                Some(count) => {
                    (done, patience) = (done + count, Patience::default());
                    continue;
                }
                None => {}
            }
            // Up to the end of a range that is not mapped, or of the read if the file ends: then the server decides.
            let end = if inside < wanted { len } else { done + wanted };
            match self.read_through(caller, at, to.part(done, end - done)) {
                Ok(count) => {
                    done += count;
                    if done < end {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            if inside < wanted {
                self.inode().mapped.forget();
            }
        }
        Ok(done)
    }

    /// Writes by copying to what is in the window, and the rest by requests. The caller holds `size_lock`.
    pub(super) fn write_mapped(&self, caller: &Caller<'_>, offset: u64, mut from: Origin<'_>) -> Result<usize, Errno> {
        let end = offset + from.len() as u64;
        let is_sequential = self.stream.end.swap(end, Ordering::Relaxed) == offset;
        if from.len() == 0
            || self.flags() & O_DSYNC != 0
            || self.is_touch_due()
            || !self.is_worth_mapping(offset, from.len(), is_sequential)
            || end > self.copied_size(caller)?
        {
            return self.write_requested(caller, offset, from);
        }
        let mut done = 0;
        while done < from.len() {
            let at = offset + done as u64;
            let within = (at % RANGE_LEN) as usize;
            let len = (RANGE_LEN as usize - within).min(from.len() - done);
            let mut piece = from.part(done, len);
            let copied = self
                .with_range(at, len, is_sequential, Access::Write, |pin| pin.store_from(within, piece.rest(0)))
                .map_or_else(
                    || self.write_requested(caller, at, piece),
                    |count| {
                        if count == 0 {
                            return Err(Errno::FAULT);
                        }
                        self.inode().mapped.is_touched.store(true, Ordering::Relaxed);
                        Ok(count)
                    },
                );
            match copied {
                Ok(count) if count < len => return Ok(done + count),
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Returns whether a request is due, to inform the server that the file is being written.
    fn is_touch_due(&self) -> bool {
        let has_new_rights = &self.inode().mapped.has_new_rights;
        if has_new_rights.load(Ordering::Relaxed) && has_new_rights.swap(false, Ordering::Relaxed) {
            return true;
        }
        let wrote_at_ns = self.stream.wrote_at_ns.load(Ordering::Relaxed);
        wrote_at_ns == 0 || self.inode().now_ns().saturating_sub(wrote_at_ns) >= TOUCH_NS
    }

    fn write_requested(&self, caller: &Caller<'_>, offset: u64, from: Origin<'_>) -> Result<usize, Errno> {
        let inode = self.inode();
        let written = self.write_through(caller, offset, from)?;
        inode.mapped.is_touched.store(false, Ordering::Relaxed);
        inode.mapped.size.fetch_max(offset + written as u64, Ordering::Relaxed);
        self.stream.wrote_at_ns.store(inode.now_ns().max(1), Ordering::Relaxed);
        Ok(written)
    }

    /// Returns whether an access should use the window: the file is large, something of it is mapped, or that pays.
    fn is_worth_mapping(&self, offset: u64, len: usize, is_sequential: bool) -> bool {
        let inode = self.inode();
        let Some(ranges) = inode.ranges() else { return false };
        // Either may be out of date, and they say only what is likely.
        let size = inode.attributes.lock().last_size().max(inode.mapped.size.load(Ordering::Relaxed));
        if size >= SMALL_BYTES || !ranges.is_empty() {
            return true;
        }
        // A sequential reader will need all of it.
        let requests = if is_sequential { size.saturating_sub(offset).div_ceil(len.max(1) as u64).max(1) } else { 1 };
        ranges.window().pays_for(inode.nodeid(), requests as u32, inode.now_ns())
    }

    /// Runs `copy` on the range that `offset` lies in, and returns how much it has copied. Returns `None` without a
    /// range now, or without a page in it.
    fn with_range(
        &self,
        offset: u64,
        len: usize,
        is_sequential: bool,
        access: Access,
        copy: impl FnOnce(&Pin<'_, P>) -> Result<usize, Errno>,
    ) -> Option<usize> {
        let (index, within) = (offset / RANGE_LEN, offset % RANGE_LEN);
        // A sequential reader will need all of it.
        let worth = if is_sequential { (RANGE_LEN - within).div_ceil(len as u64) as u32 } else { 1 };
        let pin = self.inode().pin_worth(index, access, worth).ok()?;
        let copied = copy(&pin).ok();
        if is_sequential && within + len as u64 == RANGE_LEN {
            pin.leave();
        }
        copied
    }

    /// Returns the size below which bytes are copied. Requests attributes if the known ones have expired.
    fn copied_size(&self, caller: &Caller<'_>) -> Result<u64, Errno> {
        let inode = self.inode();
        if inode.shared.options.mode == CacheMode::Shared {
            return Ok(inode.getattr_without_times(caller, Some(self.handle()))?.size.get());
        }
        let until_ns = inode.mapped.size_until_ns.load(Ordering::Acquire);
        if until_ns != u64::MAX && (until_ns == 0 || inode.now_ns() >= until_ns) {
            inode.ask_attributes(caller, Some(self.handle()))?;
        }
        Ok(inode.mapped.size.load(Ordering::Relaxed))
    }

    /// Sets the modification time that copies have left out of date.
    pub(super) fn tell_touched(&self) {
        let inode = self.inode();
        if !self.is_mapped() || !inode.mapped.is_touched.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut arg = SetattrIn::new_zeroed();
        arg.fh = self.handle().into();
        arg.valid = (SetattrValid::FH | SetattrValid::MTIME | SetattrValid::MTIME_NOW).bits().into();
        inode.changed();
        // As with a kernel's write-back, an error is not reported.
        let _ = inode.session().setattr(&Caller::default(), inode.nodeid(), &arg);
        inode.changed();
    }
}

impl<P: Platform> Inode<P> {
    /// Records the size from attributes that no later change has made stale.
    pub(super) fn learn_size(&self, size: u64) {
        if self.ranges().is_none() {
            return;
        }
        let until_ns = match self.shared.options.mode {
            CacheMode::Always => u64::MAX,
            CacheMode::None | CacheMode::Auto | CacheMode::Shared => self.now_ns().saturating_add(SIZE_HOLDS_NS),
        };
        self.mapped.learn(size, until_ns);
    }

    /// Records that something was set that a write removes.
    pub(super) fn rights_are_set(&self) {
        self.mapped.has_new_rights.store(true, Ordering::Relaxed);
    }

    /// Records that the modification time was set explicitly, which overrides the effect of copies.
    pub(super) fn time_is_set(&self) {
        self.mapped.is_touched.store(false, Ordering::Relaxed);
    }
}
