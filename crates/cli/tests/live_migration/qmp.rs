//! Commands to QEMU (QMP): a line of JSON each, and a line for the answer.

use std::{
    ffi::OsString,
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::Path,
};

use serde_json::{Value, json};

use crate::{STEP_MAX, wait_for};

/// Returns the value of `-qmp` for a QEMU that listens at `path`.
pub(crate) fn listening(path: &Path) -> OsString {
    format!("unix:{},server=on,wait=off", path.display()).into()
}

/// A connection to QEMU.
pub(crate) struct Qmp(BufReader<UnixStream>);

impl Qmp {
    /// Connects to a QEMU that listens at `path`, or will soon.
    pub(crate) fn connect(path: &Path) -> Self {
        let stream = wait_for("QEMU's socket for commands", || UnixStream::connect(path).ok());
        stream.set_read_timeout(Some(STEP_MAX)).unwrap();
        let mut qmp = Self(BufReader::new(stream));
        qmp.line();
        qmp.ask("qmp_capabilities", json!({}));
        qmp
    }

    /// Sends a command and returns what it returns.
    #[track_caller]
    pub(crate) fn ask(&mut self, command: &str, arguments: Value) -> Value {
        self.try_ask(command, arguments).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Sends a command and returns what it returns, or why it is refused.
    pub(crate) fn try_ask(&mut self, command: &str, arguments: Value) -> Result<Value, String> {
        self.send(command, arguments);
        loop {
            let mut line = self.line();
            if let Some(answer) = line.get_mut("return") {
                return Ok(answer.take());
            }
            if let Some(error) = line.get("error") {
                return Err(error.to_string());
            }
        }
    }

    /// Ends QEMU, which may not answer any more.
    pub(crate) fn quit(&mut self) {
        let message = json!({ "execute": "quit" });
        let _ = writeln!(self.0.get_mut(), "{message}");
    }

    fn send(&mut self, command: &str, arguments: Value) {
        let message = json!({ "execute": command, "arguments": arguments });
        writeln!(self.0.get_mut(), "{message}").unwrap();
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "QEMU has closed the connection for commands");
        serde_json::from_str(&line).unwrap()
    }
}
