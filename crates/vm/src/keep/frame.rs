//! The frames in which the streams and messages of several commands share one connection.
//!
//! A header of eight bytes has the command's number and, in one word, the length of what follows and its [`Kind`]:
//! bytes of a stream, or a message as JSON. Who sends bytes of a stream needs [`Credit`](super::credit::Credit) for the
//! whole frame, so that no receiver has to keep more than [`WINDOW`] of a stream that nobody reads.

use std::io::{self, Read, Write};

use serde::{Serialize, de::DeserializeOwned};

/// A port of virtio-serial takes 32 KiB at once.
pub(crate) const DATA_MAX: usize = (32 << 10) - HEADER_LEN;
/// The longest message with a command: its arguments and environment.
pub(crate) const START_MAX: usize = 4 << 20;
/// The longest other message.
pub(crate) const MESSAGE_MAX: usize = 64 << 10;
/// Bytes of frames of one stream that may be on their way: enough that a copy is not kept waiting.
pub(crate) const WINDOW: usize = 256 << 10;

pub(crate) const HEADER_LEN: usize = 8;
/// Bits of the second word that are the length.
const LEN_BITS: u32 = 24;

/// What a frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// JSON.
    Message,
    /// Bytes of standard input; no bytes are its end.
    Stdin,
    Stdout,
    Stderr,
}

/// A part of a stream, or a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    /// The number of the command.
    pub(crate) command: u32,
    pub(crate) kind: Kind,
    pub(crate) payload: Vec<u8>,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Message, Self::Stdin, Self::Stdout, Self::Stderr];
}

impl Frame {
    /// Returns a frame with a message.
    pub(crate) fn message(command: u32, message: &impl Serialize) -> io::Result<Self> {
        let payload = serde_json::to_vec(message)?;
        if payload.len() > START_MAX {
            let len = payload.len();
            return Err(io::Error::other(format!("{len} bytes of arguments and environment exceed {START_MAX}")));
        }
        Ok(Self { command, kind: Kind::Message, payload })
    }

    /// Returns a frame with bytes of a stream, at most [`DATA_MAX`].
    pub(crate) fn data(command: u32, kind: Kind, bytes: &[u8]) -> Self {
        Self { command, kind, payload: bytes.to_vec() }
    }

    /// Returns the message.
    ///
    /// # Errors
    ///
    /// Returns an error if the frame holds something else.
    pub(crate) fn parse<T: DeserializeOwned>(&self) -> io::Result<T> {
        match self.kind {
            Kind::Message => Ok(serde_json::from_slice(&self.payload)?),
            _ => Err(io::Error::other(format!("expected a message, got {:?}", self.kind))),
        }
    }

    /// Returns the length of the frame in bytes, which is what it costs of the credit.
    pub(crate) fn len(&self) -> usize {
        HEADER_LEN + self.payload.len()
    }

    /// Reads a frame; blocks. Returns `None` at the end.
    ///
    /// # Errors
    ///
    /// Returns an error if the frame is invalid, or is a message of more than `message_max` bytes.
    pub(crate) fn read(from: &mut impl Read, message_max: usize) -> io::Result<Option<Self>> {
        let mut header = [0; HEADER_LEN];
        match from.read_exact(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let (command, word) = header.split_at(4);
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
        let (command, word) = (number(command), number(word));
        let len = (word & ((1 << LEN_BITS) - 1)) as usize;
        let kind = *Kind::ALL
            .get((word >> LEN_BITS) as usize)
            .ok_or_else(|| io::Error::other(format!("unknown kind of frame {}", word >> LEN_BITS)))?;
        let max = if kind == Kind::Message { message_max } else { DATA_MAX };
        if len > max {
            return Err(io::Error::other(format!("a frame of {len} bytes exceeds the limit of {max}")));
        }
        let mut payload = vec![0; len];
        from.read_exact(&mut payload)?;
        Ok(Some(Self { command, kind, payload }))
    }

    /// Returns the bytes of the frame.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let word = (self.kind as u32) << LEN_BITS | self.payload.len() as u32;
        [&self.command.to_le_bytes()[..], &word.to_le_bytes(), &self.payload].concat()
    }

    /// Writes the frame; blocks.
    pub(crate) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written() {
        let frames = [
            Frame::data(7, Kind::Stdin, b""),
            Frame::data(u32::MAX, Kind::Stderr, &[0xff; DATA_MAX]),
            Frame::message(1, &"words").unwrap(),
        ];
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::to_bytes).collect();
        let mut from = &bytes[..];
        for frame in &frames {
            assert_eq!(Frame::read(&mut from, MESSAGE_MAX).unwrap().as_ref(), Some(frame));
        }
        assert_eq!(Frame::read(&mut from, MESSAGE_MAX).unwrap(), None);
        assert_eq!(frames[2].parse::<String>().unwrap(), "words");
        assert!(frames[1].parse::<String>().is_err());
    }

    /// The layout that the documentation of this file has.
    #[test]
    fn the_header_is_the_number_the_length_and_the_kind() {
        assert_eq!(Frame::data(0x0102, Kind::Stdout, b"ab").to_bytes(), [2, 1, 0, 0, 2, 0, 0, 2, b'a', b'b']);
    }

    #[test]
    fn what_is_too_long_or_unknown_is_refused_before_memory_is_taken() {
        for (header, reason) in [
            ([0, 0, 0, 0, 0xff, 0xff, 0xff, 0], "exceeds the limit of 65536"),
            ([0, 0, 0, 0, 0, 0x80, 0, 2], "exceeds the limit of 32760"),
            ([0, 0, 0, 0, 0, 0, 0, 4], "unknown kind of frame 4"),
        ] {
            let error = Frame::read(&mut &header[..], MESSAGE_MAX).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
        assert!(Frame::read(&mut &[0, 0, 0, 0, 1, 0, 0, 1][..], MESSAGE_MAX).is_err());
        assert_eq!(Frame::read(&mut &[0, 0, 0][..], MESSAGE_MAX).unwrap(), None);
    }
}
