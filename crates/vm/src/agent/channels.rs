//! The agent's ends of the channels: three streams of bytes, and messages in both directions.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::termios::{OptionalActions, isatty, tcgetattr, tcsetattr};

use super::while_doing;
use crate::{
    GuestChannels,
    protocol::{Beginning, FromGuest, ToGuest},
};

/// A port appears a moment after its driver; what is not there by then will not come.
const APPEAR_MAX: Duration = Duration::from_secs(20);

/// All of them, open.
pub(super) struct Channels {
    pub(super) streams: Streams,
    pub(super) reports: Reports,
    pub(super) requests: Requests,
}

/// The command's bytes.
pub(super) struct Streams {
    pub(super) stdin: File,
    pub(super) stdout: File,
    pub(super) stderr: File,
}

/// To the host. Threads send one message at a time.
#[derive(Clone)]
pub(super) struct Reports(Arc<Mutex<File>>);

/// From the host.
pub(super) struct Requests(BufReader<File>);

/// Opens the channels, waiting for their devices.
pub(super) fn open(paths: &GuestChannels) -> io::Result<Channels> {
    let control = open_one(&paths.control)?;
    let reports = Reports(Arc::new(Mutex::new(control.try_clone()?)));
    Ok(Channels {
        streams: Streams {
            stdin: open_one(&paths.stdin)?,
            stdout: open_one(&paths.stdout)?,
            stderr: open_one(&paths.stderr)?,
        },
        reports,
        requests: Requests(BufReader::new(control)),
    })
}

/// Opens one channel, waiting for its device.
pub(super) fn open_one(path: &str) -> io::Result<File> {
    let deadline = Instant::now() + APPEAR_MAX;
    let file = loop {
        match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if absent(&error) && Instant::now() < deadline => thread::sleep(Duration::from_millis(1)),
            opened => break opened.map_err(while_doing(format!("cannot open {path}")))?,
        }
    };
    if isatty(&file) {
        let mut line = tcgetattr(&file)?;
        line.make_raw();
        tcsetattr(&file, OptionalActions::Now, &line)?;
    }
    Ok(file)
}

/// The node is not made yet, or its device not ready.
fn absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENXIO | libc::ENODEV))
}

impl Reports {
    /// Sends one message.
    pub(super) fn send(&self, message: &FromGuest) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
    }
}

impl Requests {
    /// The task and what comes with it; blocks.
    pub(super) fn beginning(&mut self) -> io::Result<Beginning> {
        match self.next()? {
            Some(ToGuest::Begin(beginning)) => Ok(*beginning),
            other => Err(io::Error::other(format!("expected a task, got {other:?}"))),
        }
    }

    /// Waits until the host says that the task may begin; blocks.
    pub(super) fn go(&mut self) -> io::Result<()> {
        match self.next()? {
            Some(ToGuest::Go) => Ok(()),
            other => Err(io::Error::other(format!("expected leave to begin, got {other:?}"))),
        }
    }

    /// The next message; blocks. `None` once the host has gone.
    pub(super) fn next(&mut self) -> io::Result<Option<ToGuest>> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => Ok(None),
            _ => Ok(Some(serde_json::from_str(&line)?)),
        }
    }
}
