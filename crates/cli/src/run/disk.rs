//! Limits of what a guest adds to its shares, and of how fast it uses them.

use clap::Args;
use transom_vm::{Error, Result, Share};

/// The options.
#[derive(Clone, Debug, Args)]
pub(super) struct DiskArgs {
    /// Limit what the guest may add to each writable share: SIZE bytes, and N files
    ///
    /// Overlays included. Beyond that, programs in the guest see a full disk; what they free can be used again, and
    /// what is there at the start does not count. The daemon must be transomd. Excludes shares with `dax`.
    #[arg(long, value_name = "SIZE[,files=N]", value_parser = checked)]
    disk: Option<String>,

    /// Limit what the guest may do with each share in a second: SIZE bytes, N requests, or both
    ///
    /// Reading and writing count together, for the root too. Beyond that, the guest waits; nothing fails. The daemon
    /// must be transomd. Excludes shares with `dax`.
    #[arg(long, value_name = "SIZE[,requests=N]|requests=N", value_parser = checked_rate)]
    rate: Option<String>,
}

fn checked_rate(words: &str) -> std::result::Result<String, String> {
    transom_size::parse_rate(words).map(|_| words.to_owned())
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

    /// Tells the daemons how fast the guest may be.
    ///
    /// # Errors
    ///
    /// A share has a DAX window.
    pub(super) fn limit_rate<'a>(&self, shares: impl IntoIterator<Item = &'a mut Share>) -> Result<()> {
        let Some(rate) = &self.rate else { return Ok(()) };
        for share in shares {
            if share.dax.is_some() {
                return Err(Error::Usage(format!(
                    "--rate: what the guest maps of {:?} through the DAX window passes without a request; leave out \
                     --rate or dax",
                    share.host
                )));
            }
            share.daemon_args.push(format!("--rate={rate}").into());
        }
        Ok(())
    }
}
