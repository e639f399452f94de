//! Set-id bits of files that change: they go as they would if the caller wrote on the host.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, Mode, StatxFlags};

use super::Passthrough;
use crate::{Errno, credentials::NoFsetid, sysfd::stat};

impl Passthrough {
    /// Lets the host clear the set-id bits of `file` with the next change, if it has any that are dangerous.
    ///
    /// Without CAP_FSETID the host would also clear set-group-id where the group may not execute, unless the thread is in
    /// the file's group; the caller usually is.
    pub(super) fn kill_set_id(&self, file: impl AsFd) -> Result<Option<NoFsetid<'_>>, Errno> {
        let stat = stat::statx(file, AtFlags::empty(), StatxFlags::MODE | StatxFlags::TYPE)?;
        let mode = Mode::from_raw_mode(stat.stx_mode.into());
        (mode != without_set_id(mode)).then(|| self.credentials.without_fsetid()).transpose()
    }
}

/// `mode` without set-user-id, and without set-group-id where the group may execute.
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
