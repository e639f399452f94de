//! Decompression of kernels and modules, by what the first bytes say.

use std::io::{self, Read};

const XZ: &[u8] = b"\xfd7zXZ\0";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
const GZIP: &[u8] = b"\x1f\x8b";
const LZ4_LEGACY: &[u8] = b"\x02\x21\x4c\x18";

/// No kernel or module is larger; a broken length in a compressed file must not eat the memory.
const UNPACKED_LEN_MAX: u64 = 1 << 30;
/// The size of every block of the legacy LZ4 format but the last.
const LZ4_BLOCK_LEN: usize = 8 << 20;

/// The content of `packed`, which is returned as it is where it has no known compression.
pub(super) fn unpack(packed: Vec<u8>) -> io::Result<Vec<u8>> {
    let bytes = packed.as_slice();
    if bytes.starts_with(XZ) {
        read(lzma_rust2::XzReader::new(bytes, false))
    } else if bytes.starts_with(ZSTD) {
        read(ruzstd::decoding::StreamingDecoder::new(bytes).map_err(io::Error::other)?)
    } else if bytes.starts_with(GZIP) {
        read(flate2::read::GzDecoder::new(bytes))
    } else if bytes.starts_with(LZ4_LEGACY) {
        lz4_legacy(&bytes[LZ4_LEGACY.len()..])
    } else {
        Ok(packed)
    }
}

fn read(reader: impl Read) -> io::Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    reader.take(UNPACKED_LEN_MAX).read_to_end(&mut unpacked)?;
    Ok(unpacked)
}

/// Blocks, each after its length; a kernel's payload is followed by the length of the whole, which ends it.
fn lz4_legacy(mut rest: &[u8]) -> io::Result<Vec<u8>> {
    let mut unpacked = Vec::new();
    let mut block = vec![0; LZ4_BLOCK_LEN];
    while let Some((len, after)) = rest.split_first_chunk::<4>() {
        let len = u32::from_le_bytes(*len) as usize;
        if len == 0 || len > after.len() || unpacked.len() % LZ4_BLOCK_LEN != 0 {
            break;
        }
        let written = lz4_flex::block::decompress_into(&after[..len], &mut block).map_err(io::Error::other)?;
        unpacked.extend_from_slice(&block[..written]);
        rest = &after[len..];
    }
    if unpacked.is_empty() { Err(io::Error::other("no LZ4 block")) } else { Ok(unpacked) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_has_no_compression_stays() {
        assert_eq!(unpack(b"\x7fELF plain".to_vec()).unwrap(), b"\x7fELF plain");
    }

    #[test]
    fn gzip_and_lz4_give_back_what_went_in() {
        let plain: Vec<u8> = (0..20_000_000_u32).map(|n| (n / 77) as u8).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&plain).unwrap();
        assert!(unpack(gzip.finish().unwrap()).unwrap() == plain);

        let mut lz4 = LZ4_LEGACY.to_vec();
        for block in plain.chunks(LZ4_BLOCK_LEN) {
            let packed = lz4_flex::block::compress(block);
            lz4.extend_from_slice(&(packed.len() as u32).to_le_bytes());
            lz4.extend_from_slice(&packed);
        }
        lz4.extend_from_slice(&(plain.len() as u32).to_le_bytes());
        assert!(unpack(lz4).unwrap() == plain);
    }

    #[test]
    fn a_truncated_file_is_an_error() {
        assert!(unpack([XZ, b"abc"].concat()).is_err());
        assert!(unpack([LZ4_LEGACY, b"\xff\xff\xff\xffabc"].concat()).is_err());
    }
}
