//! The limit of what a guest adds to its shares.

use clap::Args;
use transom_vm::{Error, Result, Share};

/// The option.
#[derive(Debug, Args)]
pub(super) struct DiskArgs {
    /// Limit what the guest may add to each writable share: SIZE bytes, and N files
    ///
    /// Overlays included. Beyond that, programs in the guest see a full disk; what they free can be used again, and
    /// what is there at the start does not count. The daemon must be transomd. Excludes shares with `dax`.
    #[arg(long, value_name = "SIZE[,files=N]", value_parser = checked)]
    disk: Option<String>,
}

fn checked(words: &str) -> std::result::Result<String, String> {
    transom_size::parse_quota(words).map(|_| words.to_owned())
}

impl DiskArgs {
    /// Tells the daemons of the writable shares.
    ///
    /// # Errors
    ///
    /// No share is writable, or one has a DAX window.
    pub(super) fn apply(&self, shares: &mut [Share]) -> Result<()> {
        let Some(limit) = &self.disk else { return Ok(()) };
        if let Some(share) = shares.iter().find(|share| share.dax.is_some()) {
            return Err(Error::Usage(format!(
                "--disk: the guest can fill files of {:?} that it maps through the DAX window without asking; leave \
                 out --disk or dax",
                share.host
            )));
        }
        if shares.iter().all(|share| share.is_read_only) {
            return Err(Error::Usage("--disk: no share is writable; leave it out, or share something writable".into()));
        }
        for share in shares.iter_mut().filter(|share| !share.is_read_only) {
            share.daemon_args.push(format!("--quota={limit}").into());
        }
        Ok(())
    }
}
