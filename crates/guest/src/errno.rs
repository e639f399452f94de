//! The errors of file-system operations, by their Linux numbers, which FUSE sends.

use core::fmt;

macro_rules! errnos {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        /// Why an operation failed: a Linux `errno`, 1 to 4095.
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct Errno(u16);

        #[allow(missing_docs, reason = "the names are those of errno(3)")]
        impl Errno {
            $(pub const $name: Self = Self($number);)*

            /// Returns the name of a common error.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some(stringify!($name)),)*
                    _ => None,
                }
            }

            const fn text(self) -> &'static str {
                match self.0 {
                    $($number => $text,)*
                    _ => "unknown error",
                }
            }
        }
    };
}

errnos! {
    PERM = 1, "operation not permitted";
    NOENT = 2, "no such file or directory";
    INTR = 4, "interrupted";
    IO = 5, "input or output error";
    NXIO = 6, "no such device or address";
    TOOBIG = 7, "argument list too long";
    BADF = 9, "bad file handle";
    AGAIN = 11, "try again";
    NOMEM = 12, "out of memory";
    ACCESS = 13, "permission denied";
    FAULT = 14, "bad address";
    BUSY = 16, "device or resource busy";
    EXIST = 17, "file exists";
    XDEV = 18, "link across file systems";
    NODEV = 19, "no such device";
    NOTDIR = 20, "not a directory";
    ISDIR = 21, "is a directory";
    INVAL = 22, "invalid argument";
    NFILE = 23, "too many open files in the system";
    MFILE = 24, "too many open files";
    NOTTY = 25, "not supported by this file";
    TXTBSY = 26, "file is being executed";
    FBIG = 27, "file too large";
    NOSPC = 28, "no space left";
    SPIPE = 29, "illegal seek";
    ROFS = 30, "read-only file system";
    MLINK = 31, "too many links";
    RANGE = 34, "result out of range";
    DEADLK = 35, "deadlock avoided";
    NAMETOOLONG = 36, "name too long";
    NOSYS = 38, "not implemented by the server";
    NOTEMPTY = 39, "directory not empty";
    LOOP = 40, "too many symbolic links";
    NODATA = 61, "no such attribute";
    PROTO = 71, "protocol error";
    OVERFLOW = 75, "value too large";
    OPNOTSUPP = 95, "operation not supported";
    NOTCONN = 107, "the device is gone";
    TIMEDOUT = 110, "timed out";
    STALE = 116, "stale file handle";
    DQUOT = 122, "quota exceeded";
}

impl Errno {
    /// Returns the error with this number. Returns EIO if the number is invalid, so that a server's nonsense is an
    /// error too.
    pub const fn from_raw(number: i32) -> Self {
        if number >= 1 && number <= 4095 { Self(number as u16) } else { Self::IO }
    }

    /// Returns the number.
    pub const fn raw(self) -> i32 {
        self.0 as i32
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "E{name}"),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (errno {})", self.text(), self.0)
    }
}

impl core::error::Error for Errno {}
