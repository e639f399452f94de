//! The console, to which the kernel reports what it does.

use core::fmt::{self, Write as _};

use super::{arch, lock::Lock};

/// The machine's first serial port as a text sink.
struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(arch::put);
        Ok(())
    }
}

/// Held while a line is written.
static LINE: Lock<()> = Lock::new(());

/// Writes a line.
pub(super) fn line(words: fmt::Arguments<'_>) {
    let _line = LINE.lock();
    last_words(words);
}

/// Writes a line even if this processor panicked while it wrote one.
pub(super) fn last_words(words: fmt::Arguments<'_>) {
    // Writes to the port cannot fail.
    let _ = writeln!(Console, "{words}");
}

/// Writes a line.
macro_rules! say {
    ($($words:tt)*) => { $crate::bare::console::line(format_args!($($words)*)) };
}
pub(super) use say;
