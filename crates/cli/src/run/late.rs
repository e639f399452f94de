//! Shares that are added to a machine that stays: the options with which it was started apply to them.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
};

use transom_vm::{Error, Result, Share, ShareArg, keep::ParseShare};

use super::{Run, disk::DiskArgs, hidden, is_host, values::guest_path};

/// The options of a machine, for its later shares.
#[derive(Debug)]
pub(super) struct LateShares {
    hide: Vec<PathBuf>,
    disk: DiskArgs,
    daemon_args: Vec<std::ffi::OsString>,
    has_host_root: bool,
}

impl LateShares {
    pub(super) fn of(run: &Run) -> Self {
        Self {
            // A machine that stays leaves this directory. What has no absolute path is refused at its start.
            hide: run.hide.iter().filter_map(|path| std::path::absolute(path).ok()).collect(),
            disk: run.disk.clone(),
            daemon_args: run.daemon_args.clone(),
            has_host_root: run
                .root
                .as_ref()
                .is_some_and(|words| ShareArg::parse(words).is_ok_and(|root| is_host(&root.host))),
        }
    }
}

impl ParseShare for LateShares {
    fn parse(&self, words: &OsStr) -> Result<Share> {
        let parsed = ShareArg::parse(words)?;
        if parsed.is_overlay || parsed.dax.is_some() || parsed.image.is_some() {
            return Err(Error::Usage(format!(
                "share {words:?}: overlay and dax are for the shares of `transom run --keep`; stop the machine, and \
                 start it with this share"
            )));
        }
        let mut share = parsed.resolve(|host: &Path| guest_path(host, self.has_host_root))?;
        share.daemon_args.extend(self.daemon_args.iter().cloned());
        hidden::hide_in(&mut share, &self.hide)?;
        self.disk.limit_rate([&mut share])?;
        if !share.is_read_only {
            self.disk.apply(std::slice::from_mut(&mut share))?;
        }
        Ok(share)
    }
}
