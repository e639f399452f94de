//! This process's terminal: its size, and raw mode while a guest has it.

use std::io;

use rustix::{
    stdio::stdin,
    termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr},
};

use crate::protocol::Size;

/// What a terminal has that does not say.
const USUAL: Size = Size { rows: 24, columns: 80 };

/// The size of the terminal on standard input.
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
    /// Every key goes to whoever reads, Ctrl-C too. Errors: standard input is no terminal.
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
