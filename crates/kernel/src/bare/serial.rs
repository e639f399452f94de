//! The first serial port, to which the kernel reports what it does.

use core::fmt;

use super::ports;

const DATA: u16 = 0x3f8;
const LINE_STATUS: u16 = 0x3fd;
const MAY_SEND: u8 = 1 << 5;

/// The port as a text sink.
pub(super) struct Serial;

impl fmt::Write for Serial {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            while ports::read_u8(LINE_STATUS) & MAY_SEND == 0 {
                core::hint::spin_loop();
            }
            ports::write_u8(DATA, byte);
        }
        Ok(())
    }
}

/// Writes a line.
macro_rules! say {
    ($($words:tt)*) => {{
        use core::fmt::Write as _;
        // Writes to the port cannot fail.
        let _ = writeln!($crate::bare::serial::Serial, $($words)*);
    }};
}
pub(super) use say;
