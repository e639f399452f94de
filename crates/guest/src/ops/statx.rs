//! STATX.

use transom_wire::{
    Handle, NodeId,
    attr::{Attr, AttrOut},
    device_number,
    linux::S_IFMT,
    operation,
    ops::{
        getattr::GETATTR_FH,
        statx::{Statx, StatxIn, StatxOut, SxTime},
    },
};

use crate::{
    Errno, Platform,
    session::{Caller, Plain, Session},
};

/// The fields of stat(2), as statx(2) numbers them.
const STATX_BASIC_STATS: u32 = 0x7ff;

impl<P: Platform> Session<P> {
    /// Returns those attributes of `node` in `mask` that the server knows. `flags` are the synchronisation flags of
    /// statx(2).
    ///
    /// If the server does not know STATX, returns the attributes of GETATTR, without a birth time.
    pub fn statx(
        &self,
        caller: &Caller<'_>,
        node: NodeId,
        fh: Option<Handle>,
        flags: u32,
        mask: u32,
    ) -> Result<StatxOut, Errno> {
        let getattr_flags = if fh.is_some() { GETATTR_FH } else { 0 };
        let arg = StatxIn {
            getattr_flags: getattr_flags.into(),
            reserved: 0.into(),
            fh: fh.unwrap_or_default().into(),
            sx_flags: flags.into(),
            sx_mask: mask.into(),
        };
        match self.ask_if_known(caller, &mut Plain::<operation::Statx>::new(node, caller, &arg))? {
            Some(out) => self.checked_statx(out),
            None => Ok(from_getattr(&self.getattr(caller, node, fh)?)),
        }
    }

    /// Checks the fields that every reply has like those of GETATTR.
    pub(crate) fn checked_statx(&self, mut out: StatxOut) -> Result<StatxOut, Errno> {
        let stat = &mut out.stat;
        for time in [&mut stat.atime, &mut stat.btime, &mut stat.ctime, &mut stat.mtime] {
            time.tv_nsec = time.tv_nsec.get().min(999_999_999).into();
        }
        let attr = Attr { mode: u32::from(out.stat.mode.get()).into(), size: out.stat.size, ..Attr::default() };
        let needed = AttrOut { attr, ..AttrOut::default() };
        self.attributes(needed).map(|_| out)
    }
}

fn from_getattr(out: &AttrOut) -> StatxOut {
    let attr = &out.attr;
    let time = |sec: u64, nsec: u32| SxTime { tv_sec: (sec as i64).into(), tv_nsec: nsec.into(), reserved: 0.into() };
    let (major, minor) = device_number::decode(attr.rdev.get());
    let stat = Statx {
        mask: STATX_BASIC_STATS.into(),
        blksize: attr.blksize,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: ((attr.mode.get() & (S_IFMT | 0o7777)) as u16).into(),
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime.get(), attr.atimensec.get()),
        mtime: time(attr.mtime.get(), attr.mtimensec.get()),
        ctime: time(attr.ctime.get(), attr.ctimensec.get()),
        rdev_major: major.into(),
        rdev_minor: minor.into(),
        ..Statx::default()
    };
    StatxOut { attr_valid: out.attr_valid, attr_valid_nsec: out.attr_valid_nsec, stat, ..StatxOut::default() }
}
