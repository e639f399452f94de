//! Decompression of archives: gzip and zstd, which are what images have, recognised by their first bytes.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{
    BlockDecodingStrategy, FrameDecoder,
    errors::{FrameDecoderError, ReadFrameHeaderError},
};

use crate::{Watch, stoppable::Stoppable};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The magic numbers of frames that decoders skip begin with 0x5_; zstd:chunked layers have some at their end.
const ZSTD_SKIPPED: [u8; 3] = [0x2a, 0x4d, 0x18];
/// What other programs have to decompress first.
const OTHERS: [(&[u8], &str); 3] = [(b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2"), (b"\x04\x22\x4d\x18", "lz4")];

/// How a stream is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// Recognises the compression of a stream that begins with `head`.
    ///
    /// # Errors
    /// Returns the name of a compression that is not supported.
    pub(crate) fn of(head: &[u8]) -> Result<Self, &'static str> {
        if let Some((_, name)) = OTHERS.iter().find(|(magic, _)| head.starts_with(magic)) {
            return Err(name);
        }
        Ok(if head.starts_with(&GZIP) {
            Self::Gzip
        } else if head.starts_with(&ZSTD) || is_skipped(head) {
            Self::Zstd
        } else {
            Self::None
        })
    }
}

/// Returns the decompressed stream. Both sides of it end when `watch` is cancelled: a few bytes can become many.
///
/// # Errors
/// Returns an error if it cannot be read, or if its compression is not supported.
pub(crate) fn decompressed<'a>(
    from: impl Read + 'a,
    watch: &'a dyn Watch,
) -> io::Result<Stoppable<'a, Box<dyn Read + 'a>>> {
    let mut from = BufReader::with_capacity(256 << 10, Stoppable { from, watch });
    let plain: Box<dyn Read + 'a> = match Compression::of(from.fill_buf()?) {
        Ok(Compression::None) => Box::new(from),
        Ok(Compression::Gzip) => Box::new(MultiGzDecoder::new(from)),
        Ok(Compression::Zstd) => Box::new(ZstdFrames { from, decoder: FrameDecoder::new(), is_in_frame: false }),
        Err(name) => {
            return Err(io::Error::other(format!("it is compressed with {name}, which is not read; decompress it")));
        }
    };
    Ok(Stoppable { from: plain, watch })
}

fn is_skipped(head: &[u8]) -> bool {
    head.len() >= 4 && head[0] & 0xf0 == 0x50 && head[1..4] == ZSTD_SKIPPED
}

/// Decompresses a sequence of zstd frames.
struct ZstdFrames<R: BufRead> {
    from: R,
    decoder: FrameDecoder,
    is_in_frame: bool,
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let invalid = |error: FrameDecoderError| io::Error::new(io::ErrorKind::InvalidData, error);
        loop {
            if self.is_in_frame {
                while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                    self.decoder
                        .decode_blocks(&mut self.from, BlockDecodingStrategy::UptoBlocks(1))
                        .map_err(invalid)?;
                }
                let len = self.decoder.read(buffer)?;
                if len > 0 || buffer.is_empty() {
                    return Ok(len);
                }
                self.is_in_frame = false;
            }
            if self.from.fill_buf()?.is_empty() {
                return Ok(0);
            }
            match self.decoder.reset(&mut self.from) {
                Ok(()) => self.is_in_frame = true,
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut (&mut self.from).take(length.into()), &mut io::sink())?;
                    if skipped < u64::from(length) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(invalid(error)),
            }
        }
    }
}
