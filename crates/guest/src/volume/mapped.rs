//! Reading and writing through the window.
//!
//! What lies below the size that is known is copied; the rest, and what has no range now, goes by requests, which see
//! the same pages on the server. Nothing of a file that is mapped is kept beside that.
//!
//! A copy changes neither times nor set-id bits. So the first write of an open file is a request, and then one every
//! [`TOUCH_NS`]: the server then does both. Copies behind the last of these are told by a SETATTR before the file is
//! closed or made durable, unless somebody has set the time meanwhile.

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
    session::Caller,
};

/// How exact times are: about as exact as those of a kernel that counts ticks, for half a percent of the requests'
/// speed.
const TOUCH_NS: u64 = 10_000_000;
/// How long the size of a file holds for copies where attributes are not kept, as Linux keeps it: by default's second.
const SIZE_HOLDS_NS: u64 = 1_000_000_000;

/// What a mapped file's copies have to know.
#[derive(Default)]
pub(super) struct Mapped {
    /// In bytes; only what lies below is copied.
    size: AtomicU64,
    /// Until when the size holds, in nanoseconds of the platform's clock; 0 where it is to be asked for.
    size_until_ns: AtomicU64,
    /// Copies changed the file after the last request that did.
    is_touched: AtomicBool,
    /// Set-id bits, or attributes that go with a write, may be there again.
    has_new_rights: AtomicBool,
}

/// What an open file's copies have to know.
#[derive(Default)]
pub(super) struct Stream {
    /// Where the last access ended.
    end: AtomicU64,
    /// When the last request wrote; 0 for never.
    wrote_at_ns: AtomicU64,
}

impl Mapped {
    /// Takes the size of a reply.
    pub(super) fn learn(&self, size: u64, until_ns: u64) {
        self.size.store(size, Ordering::Relaxed);
        self.size_until_ns.store(until_ns, Ordering::Release);
    }

    /// Lets the size be asked for anew.
    pub(super) fn forget(&self) {
        self.size_until_ns.store(0, Ordering::Release);
    }
}

impl<P: Platform> OpenFile<P> {
    /// Whether the file is mapped.
    pub(super) fn is_mapped(&self) -> bool {
        self.inode().ranges().is_some()
    }

    /// Reads what is in the window from there, and the rest by requests.
    pub(super) fn read_mapped(&self, caller: &Caller<'_>, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        let size = self.copied_size(caller)?;
        let is_sequential = self.stream.end.swap(offset + bytes.len() as u64, Ordering::Relaxed) == offset;
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = (at % RANGE_LEN) as usize;
            let len = (RANGE_LEN as usize - within).min(bytes.len() - done);
            let copied = usize::try_from(size.saturating_sub(at)).unwrap_or(usize::MAX).min(len);
            let is_copied = copied > 0
                && self.with_range(at, copied, is_sequential, Access::Read, |pin| {
                    pin.load(within, &mut bytes[done..done + copied])
                });
            if is_copied {
                done += copied;
                continue;
            }
            // To the end of the range where it has no place, of the read where the file ends: then the server has a
            // say.
            let end = if copied < len { bytes.len() } else { done + len };
            match self.read_through(caller, at, &mut bytes[done..end]) {
                Ok(count) => {
                    done += count;
                    if done < end {
                        break;
                    }
                }
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            if copied < len {
                self.inode().mapped.forget();
            }
        }
        Ok(done)
    }

    /// Writes what is in the window there, and the rest by requests. The caller holds `size_lock`.
    pub(super) fn write_mapped(&self, caller: &Caller<'_>, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let end = offset + bytes.len() as u64;
        let is_sequential = self.stream.end.swap(end, Ordering::Relaxed) == offset;
        if bytes.is_empty() || self.flags() & O_DSYNC != 0 || self.is_touch_due() || end > self.copied_size(caller)? {
            return self.write_requested(caller, offset, bytes);
        }
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let within = (at % RANGE_LEN) as usize;
            let len = (RANGE_LEN as usize - within).min(bytes.len() - done);
            let piece = &bytes[done..done + len];
            if self.with_range(at, len, is_sequential, Access::Write, |pin| pin.store(within, piece)) {
                self.inode().mapped.is_touched.store(true, Ordering::Relaxed);
                done += len;
                continue;
            }
            match self.write_requested(caller, at, piece) {
                Ok(count) if count < len => return Ok(done + count),
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// Whether a request has to tell the server that the file is written.
    fn is_touch_due(&self) -> bool {
        let has_new_rights = &self.inode().mapped.has_new_rights;
        if has_new_rights.load(Ordering::Relaxed) && has_new_rights.swap(false, Ordering::Relaxed) {
            return true;
        }
        let wrote_at_ns = self.stream.wrote_at_ns.load(Ordering::Relaxed);
        wrote_at_ns == 0 || self.inode().now_ns().saturating_sub(wrote_at_ns) >= TOUCH_NS
    }

    fn write_requested(&self, caller: &Caller<'_>, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let inode = self.inode();
        let written = self.write_through(caller, offset, bytes)?;
        inode.mapped.is_touched.store(false, Ordering::Relaxed);
        inode.mapped.size.fetch_max(offset + written as u64, Ordering::Relaxed);
        self.stream.wrote_at_ns.store(inode.now_ns().max(1), Ordering::Relaxed);
        Ok(written)
    }

    /// Runs `copy` on the range that `offset` lies in. False where there is none now, or no page in it.
    fn with_range(
        &self,
        offset: u64,
        len: usize,
        is_sequential: bool,
        access: Access,
        copy: impl FnOnce(&Pin<'_, P>) -> Result<(), Errno>,
    ) -> bool {
        let (index, within) = (offset / RANGE_LEN, offset % RANGE_LEN);
        // A sequential reader will ask for all of it.
        let worth = if is_sequential { (RANGE_LEN - within).div_ceil(len as u64) as u32 } else { 1 };
        let Ok(pin) = self.inode().pin_worth(index, access, worth) else { return false };
        let is_copied = copy(&pin).is_ok();
        if is_sequential && within + len as u64 == RANGE_LEN {
            pin.leave();
        }
        is_copied
    }

    /// The size below which bytes are copied. Asks for attributes where those that are known hold no longer.
    fn copied_size(&self, caller: &Caller<'_>) -> Result<u64, Errno> {
        let inode = self.inode();
        let until_ns = inode.mapped.size_until_ns.load(Ordering::Acquire);
        if until_ns != u64::MAX && (until_ns == 0 || inode.now_ns() >= until_ns) {
            inode.ask_attributes(caller, Some(self.handle()))?;
        }
        Ok(inode.mapped.size.load(Ordering::Relaxed))
    }

    /// Sets the time that copies have left behind.
    pub(super) fn tell_touched(&self) {
        let inode = self.inode();
        if !self.is_mapped() || !inode.mapped.is_touched.swap(false, Ordering::Relaxed) {
            return;
        }
        let mut arg = SetattrIn::new_zeroed();
        arg.fh = self.handle().into();
        arg.valid = (SetattrValid::FH | SetattrValid::MTIME | SetattrValid::MTIME_NOW).bits().into();
        inode.changed();
        // As with the write-back of a kernel, nobody is told where a server has it otherwise.
        let _ = inode.session().setattr(&Caller::default(), inode.nodeid(), &arg);
        inode.changed();
    }
}

impl<P: Platform> Inode<P> {
    /// Takes the size from attributes that were not overtaken.
    pub(super) fn learn_size(&self, size: u64) {
        if self.ranges().is_none() {
            return;
        }
        let until_ns = match self.shared.options.mode {
            CacheMode::Always => u64::MAX,
            CacheMode::None | CacheMode::Auto => self.now_ns().saturating_add(SIZE_HOLDS_NS),
        };
        self.mapped.learn(size, until_ns);
    }

    /// Something was set that a write takes away again.
    pub(super) fn rights_are_set(&self) {
        self.mapped.has_new_rights.store(true, Ordering::Relaxed);
    }

    /// Whoever sets the time of modification overrules what copies have done to it.
    pub(super) fn time_is_set(&self) {
        self.mapped.is_touched.store(false, Ordering::Relaxed);
    }
}
