//! The frames of the channel `network`, the same in both directions. Integers are little-endian.
//!
//! ```text
//! kind u8 | reserved u8, 0 | length of the payload u16 | stream u32 | payload
//! ```
//!
//! The guest opens a stream for each connection; both send data within the credit that they have
//! ([`stream`](super::stream)), and `End` when no more data follows. The host sends `Closed` once it holds nothing of
//! the stream any more.

use std::io::{self, Read};

/// Length of a header in bytes.
const HEADER_LEN: usize = 8;
/// The longest payload: large enough that a header costs nothing, small enough that streams take turns.
pub(crate) const PAYLOAD_MAX: usize = 16 << 10;
/// The longest name of a host, as DNS has it.
pub(crate) const NAME_MAX: usize = 253;

/// A frame, whose bytes are borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    /// The guest wants a connection to this host and port.
    Open { stream: u32, port: u16, host: &'a str },
    /// Bytes of a connection.
    Data { stream: u32, bytes: &'a [u8] },
    /// The peer may send this many bytes more.
    Credit { stream: u32, bytes: u32 },
    /// No data follows. If it `is_reset`, the sender does not take any either.
    End { stream: u32, is_reset: bool },
    /// The host holds nothing of the stream any more.
    Closed { stream: u32 },
    /// A program in the guest asked for a name that is not allowed. The host only counts it.
    Denied { host: &'a str },
}

const OPEN: u8 = 1;
const DATA: u8 = 2;
const CREDIT: u8 = 3;
const END: u8 = 4;
const CLOSED: u8 = 5;
const DENIED: u8 = 6;

impl Frame<'_> {
    /// Returns the frame's bytes.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let port;
        let amount;
        let (kind, stream, parts): (u8, u32, [&[u8]; 2]) = match self {
            Self::Open { stream, port: number, host } => {
                port = number.to_le_bytes();
                (OPEN, stream, [&port, host.as_bytes()])
            }
            Self::Data { stream, bytes } => (DATA, stream, [bytes, &[]]),
            Self::Credit { stream, bytes } => {
                amount = bytes.to_le_bytes();
                (CREDIT, stream, [&amount, &[]])
            }
            Self::End { stream, is_reset: false } => (END, stream, [&[0], &[]]),
            Self::End { stream, is_reset: true } => (END, stream, [&[1], &[]]),
            Self::Closed { stream } => (CLOSED, stream, [&[], &[]]),
            Self::Denied { host } => (DENIED, 0, [host.as_bytes(), &[]]),
        };
        let len = parts.iter().map(|part| part.len()).sum::<usize>();
        let len = u16::try_from(len).expect("a payload has at most PAYLOAD_MAX bytes");
        let mut bytes = Vec::with_capacity(HEADER_LEN + usize::from(len));
        bytes.extend_from_slice(&[kind, 0]);
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(&stream.to_le_bytes());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes
    }
}

/// Reads the next frame; `buffer` takes its payload. Returns `None` if the channel ends between two frames. Blocks.
///
/// # Errors
///
/// Returns the channel's error, or one of the kind `InvalidData` for bytes that are no frame.
pub(crate) fn read<'a>(channel: &mut impl Read, buffer: &'a mut Vec<u8>) -> io::Result<Option<Frame<'a>>> {
    let mut header = [0; HEADER_LEN];
    let first = loop {
        match channel.read(&mut header) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => break read?,
        }
    };
    if first == 0 {
        return Ok(None);
    }
    channel.read_exact(&mut header[first..])?;
    let [kind, reserved, l0, l1, s0, s1, s2, s3] = header;
    let len = usize::from(u16::from_le_bytes([l0, l1]));
    if len > PAYLOAD_MAX || reserved != 0 {
        return Err(invalid(format!(
            "a frame has a payload of {len} bytes, more than {PAYLOAD_MAX}, or a wrong header"
        )));
    }
    buffer.resize(len, 0);
    channel.read_exact(buffer)?;
    parse(kind, u32::from_le_bytes([s0, s1, s2, s3]), buffer).map(Some)
}

fn parse(kind: u8, stream: u32, payload: &[u8]) -> io::Result<Frame<'_>> {
    match (kind, payload) {
        (OPEN, [p0, p1, host @ ..]) => {
            Ok(Frame::Open { stream, port: u16::from_le_bytes([*p0, *p1]), host: name(host)? })
        }
        (DATA, bytes) => Ok(Frame::Data { stream, bytes }),
        (CREDIT, &[a, b, c, d]) => Ok(Frame::Credit { stream, bytes: u32::from_le_bytes([a, b, c, d]) }),
        (END, [is_reset @ (0 | 1)]) => Ok(Frame::End { stream, is_reset: *is_reset == 1 }),
        (CLOSED, []) => Ok(Frame::Closed { stream }),
        (DENIED, host) => Ok(Frame::Denied { host: name(host)? }),
        _ => Err(invalid(format!("a frame of the kind {kind} has a payload of {} bytes", payload.len()))),
    }
}

fn name(bytes: &[u8]) -> io::Result<&str> {
    match str::from_utf8(bytes) {
        Ok(name) if (1..=NAME_MAX).contains(&bytes.len()) => Ok(name),
        _ => Err(invalid(format!("a frame names a host with {} bytes, or with bytes that are no text", bytes.len()))),
    }
}

/// Returns the error for what the protocol does not allow.
pub(crate) fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_frame_is_read_as_it_was_written() {
        let long = vec![7; PAYLOAD_MAX];
        let frames = [
            Frame::Open { stream: 1, port: 443, host: "example.org" },
            Frame::Data { stream: u32::MAX, bytes: &long },
            Frame::Data { stream: 3, bytes: b"" },
            Frame::Credit { stream: 3, bytes: 65536 },
            Frame::End { stream: 3, is_reset: true },
            Frame::End { stream: 3, is_reset: false },
            Frame::Closed { stream: 3 },
            Frame::Denied { host: "other.org" },
        ];
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| frame.to_bytes()).collect();
        let mut rest = bytes.as_slice();
        let mut buffer = Vec::new();
        for frame in frames {
            assert_eq!(read(&mut rest, &mut buffer).unwrap(), Some(frame));
        }
        assert_eq!(read(&mut rest, &mut buffer).unwrap(), None);
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        let long_name = "a".repeat(NAME_MAX + 1);
        let mut long = Frame::Open { stream: 1, port: 1, host: &long_name }.to_bytes();
        let invalid = [
            &[9, 0, 0, 0, 0, 0, 0, 0][..],
            &[DATA, 1, 0, 0, 0, 0, 0, 0],
            &[DATA, 0, 255, 255, 0, 0, 0, 0],
            &[OPEN, 0, 1, 0, 0, 0, 0, 0, 5],
            &[OPEN, 0, 2, 0, 0, 0, 0, 0, 5, 5],
            &[OPEN, 0, 3, 0, 0, 0, 0, 0, 5, 5, 0xff],
            &[CREDIT, 0, 1, 0, 0, 0, 0, 0, 1],
            &[END, 0, 1, 0, 0, 0, 0, 0, 2],
            &[CLOSED, 0, 1, 0, 0, 0, 0, 0, 0],
            long.as_mut_slice(),
        ];
        for bytes in invalid {
            let error = read(&mut &*bytes, &mut Vec::new()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{bytes:?}");
        }
        let cut = read(&mut &[DATA, 0, 4, 0, 0, 0, 0, 0, 1][..], &mut Vec::new()).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }
}
