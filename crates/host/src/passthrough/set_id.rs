//! Set-id bits of files that change: cleared as if the caller wrote on the host.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Mode, StatxFlags};

use super::Passthrough;
use crate::{Errno, credentials::NoFsetid, idmap::HostGid, sysfd::stat};

impl Passthrough {
    /// Lets the host clear the set-id bits of `file` with the next change, if it has any dangerous ones.
    ///
    /// Set-group-id stays if the group may not execute the file: without CAP_FSETID the host would clear it too,
    /// unless the thread is in the file's group. The caller usually is.
    pub(super) fn kill_set_id(&self, file: impl AsFd) -> Result<Option<NoFsetid<'_>>, Errno> {
        let stat = stat::statx(file, AtFlags::empty(), StatxFlags::MODE | StatxFlags::TYPE | StatxFlags::GID)?;
        let mode = Mode::from_raw_mode(stat.stx_mode.into());
        let cleared = without_set_id(mode);
        if cleared == mode {
            return Ok(None);
        }
        let group = cleared.contains(Mode::SGID).then_some(HostGid(stat.stx_gid));
        self.credentials.without_fsetid(group).map(Some)
    }
}

/// Returns `mode` without set-user-id, and without set-group-id if the group may execute.
pub(super) fn without_set_id(mode: Mode) -> Mode {
    let is_executable = mode.contains(Mode::XGRP);
    mode - Mode::SUID - if is_executable { Mode::SGID } else { Mode::empty() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dangerous_bits_go_and_the_others_stay() {
        for (before, after) in [(0o6755, 0o755), (0o2745, 0o2745), (0o6745, 0o2745), (0o1777, 0o1777), (0o4000, 0)] {
            assert_eq!(without_set_id(Mode::from_raw_mode(before)), Mode::from_raw_mode(after));
        }
    }
}
