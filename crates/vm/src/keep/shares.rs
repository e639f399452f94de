//! Shares that a machine gets, or loses, while it runs.

use std::{
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
    sync::mpsc::Sender,
};

use serde::{Deserialize, Serialize};

use super::{Machine, frame::Frame, frame::START_MAX, messages::Request, messages::SharedDirectory};
use crate::{Error, Result, Share};

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
    /// Removes the share that is mounted at this path in the guest.
    Remove(PathBuf),
}

/// A request that waits for its answer.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) request: ShareRequest,
    pub(crate) answer: Sender<ShareAnswer>,
}

/// The share that was added or removed, or why it was not.
pub(crate) type ShareAnswer = std::result::Result<SharedDirectory, String>;

impl Machine {
    /// Adds or removes a share, and returns it. Blocks until the guest has mounted or unmounted it.
    ///
    /// # Errors
    ///
    /// Returns an error if the machine refuses, with the reason.
    pub fn change_share(mut self, request: ShareRequest) -> Result<SharedDirectory> {
        self.ask(&Request::Share(request))?;
        let frame = Frame::read(&mut self.connection, START_MAX).and_then(|frame| match frame {
            Some(frame) => frame.parse::<ShareAnswer>(),
            None => Err(std::io::ErrorKind::UnexpectedEof.into()),
        });
        let answer = frame.map_err(Error::io(format!("the machine {} does not answer", self.name)))?;
        answer.map_err(|why| Error::Usage(format!("the machine {}: {why}", self.name)))
    }
}
