//! The console, to which the kernel reports what it does.

use core::fmt;

use super::arch;

/// The machine's first serial port as a text sink.
pub(super) struct Console;

impl fmt::Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.bytes().for_each(arch::put);
        Ok(())
    }
}

/// Writes a line.
macro_rules! say {
    ($($words:tt)*) => {{
        use core::fmt::Write as _;
        // Writes to the port cannot fail.
        let _ = writeln!($crate::bare::console::Console, $($words)*);
    }};
}
pub(super) use say;
