//! One component of a path, checked once when it is parsed from a message.

use core::fmt;

use crate::limits::NAME_LEN_MAX;

/// A file name: 1 to 255 bytes, without `/` and NUL, and neither `.` nor `..`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(&'a [u8]);

/// Why bytes are not a [`Name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameError {
    /// The name has no bytes.
    Empty,
    /// The name has more than 255 bytes; the number is its length.
    TooLong(usize),
    /// The name holds `/` or NUL.
    ForbiddenByte(u8),
    /// The name is `.` or `..`.
    Dots,
}

impl<'a> Name<'a> {
    /// Checks `bytes`, which hold no terminating NUL.
    pub fn new(bytes: &'a [u8]) -> Result<Self, NameError> {
        match bytes {
            [] => Err(NameError::Empty),
            b"." | b".." => Err(NameError::Dots),
            _ if bytes.len() > NAME_LEN_MAX => Err(NameError::TooLong(bytes.len())),
            _ => match bytes.iter().find(|&&byte| byte == b'/' || byte == 0) {
                Some(&byte) => Err(NameError::ForbiddenByte(byte)),
                None => Ok(Self(bytes)),
            },
        }
    }

    /// Returns the bytes of the name, without a terminating NUL.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the name is empty"),
            Self::TooLong(len) => write!(f, "the name has {len} bytes, the limit is {NAME_LEN_MAX}"),
            Self::ForbiddenByte(byte) => write!(f, "the name holds the byte {byte:#04x}"),
            Self::Dots => write!(f, "the name is . or .."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_component() {
        assert_eq!(Name::new(b"a b\n\xff").map(Name::as_bytes), Ok(&b"a b\n\xff"[..]));
        assert_eq!(Name::new(b""), Err(NameError::Empty));
        assert_eq!(Name::new(b"a/b"), Err(NameError::ForbiddenByte(b'/')));
        assert_eq!(Name::new(b"a\0"), Err(NameError::ForbiddenByte(0)));
        assert_eq!(Name::new(b"."), Err(NameError::Dots));
        assert_eq!(Name::new(b".."), Err(NameError::Dots));
        assert!(Name::new(b"...").is_ok());
        assert!(Name::new(&[b'x'; 255]).is_ok());
        assert_eq!(Name::new(&[b'x'; 256]), Err(NameError::TooLong(256)));
    }
}
