//! `transomd --upgrade`: a socket beside the daemon's own, through which an upgrade is asked for and its outcome told.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};

use crate::listen::{self, ListenError, Traces};

/// The beginning of the answer after an upgrade.
const UPGRADED: &str = "upgraded";
/// The longest answer that is read.
const ANSWER_LEN_MAX: u64 = 64 << 10;

/// Where upgrades are asked for.
#[derive(Debug)]
pub(super) struct Commands {
    pub(super) listener: UnixListener,
}

impl Commands {
    /// Opens the socket that belongs to the daemon's `socket`, for the daemon's user only.
    pub(super) fn open(socket: &Path, traces: &mut Traces) -> Result<Self, ListenError> {
        Ok(Self { listener: listen::open_private(&beside(socket), traces)? })
    }

    /// Returns the next one who asks, if there is one.
    pub(super) fn next(&self) -> Option<UnixStream> {
        self.listener.accept().ok().map(|(stream, _)| stream)
    }
}

/// Tells one who asked what has come of it.
pub(super) fn tell(mut stream: UnixStream, outcome: Result<Duration, &str>) {
    let answer = match outcome {
        Ok(pause) => format!("{UPGRADED}: the guest had to wait for {:.1} ms\n", pause.as_secs_f64() * 1e3),
        Err(reason) => format!("not upgraded, and the present daemon goes on: {reason}\n"),
    };
    // A new socket has room for it. Nobody may be there any more.
    let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(answer.as_bytes()));
}

/// Asks the daemon that serves `socket` for an upgrade, and prints the outcome.
///
/// # Errors
///
/// If the daemon was not upgraded.
pub fn ask(socket: &Path) -> anyhow::Result<()> {
    let path = beside(socket);
    let mut stream = UnixStream::connect(&path)
        .with_context(|| format!("cannot reach {}: only a daemon with --upgradable can be upgraded", path.display()))?;
    let mut answer = String::new();
    (&mut stream).take(ANSWER_LEN_MAX).read_to_string(&mut answer).context("the daemon does not answer")?;
    let answer = answer.trim();
    if answer.is_empty() {
        bail!("the daemon has ended");
    }
    if !answer.starts_with(UPGRADED) {
        bail!("{answer}");
    }
    println!("{answer}");
    Ok(())
}

fn beside(socket: &Path) -> PathBuf {
    let mut name = OsString::from(socket);
    name.push(".upgrade");
    name.into()
}

/// Returns the path of a listening socket that was inherited, if it has one.
pub(super) fn path_of(listener: &UnixListener) -> Option<PathBuf> {
    let path = listener.local_addr().ok()?.as_pathname()?.to_owned();
    fs::symlink_metadata(&path).is_ok().then_some(path)
}

/// Lets `accept` return at once if nobody asks.
pub(super) fn never_block(listener: &UnixListener) -> io::Result<()> {
    listener.set_nonblocking(true)
}
