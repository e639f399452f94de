//! Shares that a machine gets, or loses, while it runs.

use std::{
    ffi::OsStr,
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, Sender},
    },
    thread,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Machine, frame::Frame, frame::START_MAX, messages::Request, messages::SharedDirectory};
use crate::{Error, Result, Share};

/// How long the process that keeps a machine may take beyond the guest's part: QEMU may be slow, and a device is
/// released afterwards.
const KEEPER_MAX: Duration = Duration::from_secs(60);

/// Makes a share of what a caller writes, as the options of the machine ask for.
pub trait ParseShare: fmt::Debug + Send + Sync {
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
    pub(crate) change: Change,
    /// How long the guest may take.
    pub(crate) timeout: Duration,
    pub(crate) answer: Sender<ShareAnswer>,
}

/// What is to change, so that the session does not have to look at the host's directories, which may hang.
#[derive(Debug)]
pub(crate) enum Change {
    Add {
        share: Share,
        /// The directories that the guest could write when the share was opened.
        writable: Vec<PathBuf>,
    },
    Remove {
        path: PathBuf,
        is_forced: bool,
    },
}

impl Change {
    /// Opens the directory of a share that is to be added; the guest can write the directories `writable`. Blocks as
    /// long as its file system does, but no longer than `timeout`.
    pub(crate) fn of(
        request: ShareRequest,
        parse: &Arc<dyn ParseShare>,
        writable: Vec<PathBuf>,
        timeout: Duration,
    ) -> std::result::Result<Self, String> {
        let words = match request {
            ShareRequest::Remove { path, is_forced } => return Ok(Self::Remove { path, is_forced }),
            ShareRequest::Add(words) => words,
        };
        let shown = format!("{}", words.display());
        let (sender, parsed) = mpsc::channel();
        let parse = Arc::clone(parse);
        thread::spawn(move || {
            let directories: Vec<&Path> = writable.iter().map(PathBuf::as_path).collect();
            let share = parse.parse(&words, &directories);
            // Whoever waits may have given up.
            let _ = sender.send(share.map(|share| Self::Add { share, writable }));
        });
        match parsed.recv_timeout(timeout) {
            Ok(change) => change.map_err(|error| error.to_string()),
            Err(_) => Err(format!(
                "{shown} cannot be opened within {} s: its file system on this host does not answer",
                timeout.as_secs_f32()
            )),
        }
    }
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// A directory whose file system answers when it is told to.
    #[derive(Debug)]
    struct Hanging(Mutex<mpsc::Receiver<()>>);

    impl ParseShare for Hanging {
        fn parse(&self, _: &OsStr, _: &[&Path]) -> Result<Share> {
            let _ = self.0.lock().unwrap().recv();
            Ok(Share::default())
        }
    }

    #[test]
    fn a_directory_that_does_not_answer_is_not_waited_for() {
        let (answer, hangs) = mpsc::channel();
        let parse: Arc<dyn ParseShare> = Arc::new(Hanging(Mutex::new(hangs)));
        let add = |timeout| Change::of(ShareRequest::Add("/dead".into()), &parse, vec!["/w".into()], timeout);
        let error = add(Duration::from_millis(1)).unwrap_err();
        assert!(error.contains("/dead cannot be opened within 0.001 s"), "{error}");
        drop(answer);
        let change = add(Duration::MAX).unwrap();
        assert!(matches!(change, Change::Add { writable, .. } if writable == [Path::new("/w")]));
    }
}
