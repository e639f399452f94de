//! Shares that a machine gets, or loses, while it runs.

use std::{
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
    sync::mpsc::Sender,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Machine, frame::Frame, frame::START_MAX, messages::Request, messages::SharedDirectory};
use crate::{Error, Result, Share};

/// How long the process that keeps a machine may take beyond the guest's part: QEMU may be slow, and a device is
/// released afterwards.
const KEEPER_MAX: Duration = Duration::from_secs(60);

/// Makes a share of what a caller writes, as the options of the machine ask for.
pub trait ParseShare: fmt::Debug {
    /// Returns the share of `HOST[:GUEST][,OPTION]...`. The guest can write the directories `writable`.
    ///
    /// # Errors
    ///
    /// Returns an error if it cannot be a share of this machine, or if a link that the guest can have made leads to it.
    fn parse(&self, words: &OsStr, writable: &[&Path]) -> Result<Share>;
}

/// What is to change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ShareRequest {
    /// Adds `HOST[:GUEST][,OPTION]...`; the host's path is absolute.
    Add(std::ffi::OsString),
    /// Removes a share.
    Remove {
        /// Where it is mounted in the guest.
        path: PathBuf,
        /// Even if programs in the guest use it, or the guest does not answer.
        is_forced: bool,
    },
}

/// What has changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShareChanged {
    /// The share that was added or removed.
    pub share: SharedDirectory,
    /// What did not go as it should.
    pub warning: Option<String>,
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) request: ShareRequest,
    /// How long the guest may take.
    pub(crate) timeout: Duration,
    pub(crate) answer: Sender<ShareAnswer>,
}

/// What has changed, or why nothing has.
pub(crate) type ShareAnswer = std::result::Result<ShareChanged, String>;

impl Machine {
    /// Adds or removes a share. Blocks until the guest has mounted or unmounted it, but not for much longer than
    /// `timeout`.
    ///
    /// # Errors
    ///
    /// Returns an error if the machine refuses, with the reason, or if the guest does not do it in time.
    pub fn change_share(mut self, request: ShareRequest, timeout: Duration) -> Result<ShareChanged> {
        let limit = self.connection.set_read_timeout(Some(timeout.saturating_add(KEEPER_MAX)));
        limit.map_err(Error::io("cannot limit the time"))?;
        self.ask(&Request::Share { request, timeout })?;
        let frame = Frame::read(&mut self.connection, START_MAX).and_then(|frame| match frame {
            Some(frame) => frame.parse::<ShareAnswer>(),
            None => Err(std::io::ErrorKind::UnexpectedEof.into()),
        });
        let answer = frame.map_err(Error::io(format!("the machine {} does not answer", self.name)))?;
        answer.map_err(|why| Error::Usage(format!("the machine {}: {why}", self.name)))
    }
}
