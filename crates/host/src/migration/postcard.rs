//! The primitives of postcard 1.x: integers in groups of seven bits, the lowest first; signed ones folded; lengths and
//! the variants of enumerations as integers; everything else as its parts in order.
//!
//! Source: the postcard wire format specification, version 1.0.

use super::Error;

/// The longest integer.
const VARINT_LEN_MAX: usize = 10;

/// Reads values off the front of a slice.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    len: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, len: bytes.len() }
    }

    /// Returns what was not read yet.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn truncated(&self) -> Error {
        Error::Truncated { len_bytes: self.len }
    }

    pub(super) fn byte(&mut self) -> Result<u8, Error> {
        let (&byte, rest) = self.rest.split_first().ok_or_else(|| self.truncated())?;
        self.rest = rest;
        Ok(byte)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for group in 0..VARINT_LEN_MAX {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            // The tenth group has one bit.
            if group == VARINT_LEN_MAX - 1 && byte > 1 {
                break;
            }
            value |= bits << (7 * group);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Error::Malformed("an integer of more than 64 bits"))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Error> {
        u32::try_from(self.u64()?).map_err(|_| Error::Malformed("an integer of more than 32 bits"))
    }

    pub(super) fn i32(&mut self) -> Result<i32, Error> {
        let folded = self.u32()?;
        Ok((folded >> 1).cast_signed() ^ -(folded & 1).cast_signed())
    }

    pub(super) fn bool(&mut self) -> Result<bool, Error> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Error::Malformed("a truth value other than 0 and 1")),
        }
    }

    /// Reads a length, then that many bytes. `what` names them if there are more than `max`.
    pub(super) fn bytes(&mut self, what: &'static str, max: usize) -> Result<&'a [u8], Error> {
        let len = self.u64()?;
        if len > max as u64 {
            return Err(Error::TooMany { what, count: len, limit: max as u64 });
        }
        let (bytes, rest) = self.rest.split_at_checked(len as usize).ok_or_else(|| self.truncated())?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads the number of items that follow, of which each has at least `item_len_min` bytes.
    pub(super) fn count(&mut self, what: &'static str, max: usize, item_len_min: usize) -> Result<usize, Error> {
        let count = self.u64()?;
        if count > max as u64 {
            return Err(Error::TooMany { what, count, limit: max as u64 });
        }
        if count as usize > self.rest.len() / item_len_min {
            return Err(self.truncated());
        }
        Ok(count as usize)
    }
}

/// Appends values to a vector.
#[derive(Debug, Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn u64(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    pub(super) fn i32(&mut self, value: i32) {
        self.u64(u64::from(((value << 1) ^ (value >> 31)).cast_unsigned()));
    }

    pub(super) fn bool(&mut self, value: bool) {
        self.0.push(value.into());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.u64(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }
}
