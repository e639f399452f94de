//! Two mounts of one directory, on this machine, as the two guests.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{PAUSE, Split};
use crate::client::Client;
use crate::runner::{Directory, Subject};

/// How long a mount that follows the other within some time may need for it.
///
/// What it is waited for takes hundredths of a second in a coherence group, and a second where names and attributes
/// expire.
const PATIENCE: Duration = Duration::from_secs(20);

/// Two mounts of one directory.
pub struct Mounts {
    acting: Directory,
    looking: PathBuf,
    patience: Option<Duration>,
}

impl Mounts {
    /// Cases act under `acting` and look under `looking`, which is the same directory by another way.
    ///
    /// If `is_strict`, what has been done must be seen at once.
    pub fn new(acting: &Path, looking: &Path, is_strict: bool) -> anyhow::Result<Self> {
        let (acting, looking) = (Directory::new(acting)?, looking.to_owned());
        Ok(Self { acting, looking, patience: (!is_strict).then_some(PATIENCE) })
    }

    /// Opens a directory that the acting mount has just made.
    fn open(&self, name: &str) -> anyhow::Result<File> {
        let path = self.looking.join(name.replace('/', "."));
        let begun = Instant::now();
        loop {
            match File::open(&path) {
                Err(error)
                    if error.kind() == ErrorKind::NotFound
                        && self.patience.is_some_and(|patience| begun.elapsed() < patience) =>
                {
                    thread::sleep(PAUSE);
                }
                result => return result.with_context(|| path.display().to_string()),
            }
        }
    }
}

impl Subject for Mounts {
    fn run_in(&self, name: &str, body: &mut dyn FnMut(&dyn Client)) -> anyhow::Result<()> {
        let mut second = Ok(());
        self.acting.run_in(name, &mut |client| match self.open(name) {
            Ok(looking) => {
                // The kernel has one current directory for both, which is that of the mount that acts. A descriptor
                // leads to the other, whoever the process becomes.
                let beneath = format!("/proc/thread-self/fd/{}/", looking.as_raw_fd());
                body(&Split::new(client, client, beneath.as_bytes(), self.patience));
            }
            Err(error) => second = Err(error),
        })?;
        second
    }
}
