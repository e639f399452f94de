//! STATFS.

use transom_wire::{operation::Statfs, ops::statfs::StatfsOut};

use crate::{
    Errno,
    passthrough::Passthrough,
    server::{Call, Serve},
};

impl Serve<Statfs> for Passthrough {
    fn serve(&self, call: Call<'_, Statfs>) -> Result<StatfsOut, Errno> {
        let stat = rustix::fs::fstatvfs(&*self.inodes.get(call.nodeid)?.fd)?;
        // Block sizes and name lengths always fit 32 bits.
        let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Ok(self.limit_statfs(StatfsOut {
            blocks: stat.f_blocks.into(),
            bfree: stat.f_bfree.into(),
            bavail: stat.f_bavail.into(),
            files: stat.f_files.into(),
            ffree: stat.f_ffree.into(),
            bsize: narrow(stat.f_bsize).into(),
            namelen: narrow(stat.f_namemax).into(),
            frsize: narrow(stat.f_frsize).into(),
            padding: 0.into(),
            spare: [0.into(); 6],
        }))
    }
}
