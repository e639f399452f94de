//! This process's terminal: its size, and raw mode while a guest uses it.

use std::io;

use rustix::{
    stdio::stdin,
    termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr},
};

use crate::protocol::Size;

/// The assumed size of a terminal that reports none.
const USUAL: Size = Size { rows: 24, columns: 80 };

/// Returns the size of the terminal on standard input.
pub(crate) fn size() -> Size {
    match tcgetwinsize(stdin()) {
        Ok(size) if size.ws_row > 0 && size.ws_col > 0 => Size { rows: size.ws_row, columns: size.ws_col },
        _ => USUAL,
    }
}

/// Raw mode of the terminal on standard input, until dropped.
#[derive(Debug)]
pub(crate) struct RawMode {
    before: Termios,
}

impl RawMode {
    /// Enters raw mode, in which every key, including Ctrl-C, is passed on as a byte.
    ///
    /// # Errors
    ///
    /// Returns an error if standard input is not a terminal.
    pub(crate) fn enter() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(stdin(), OptionalActions::Now, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}
