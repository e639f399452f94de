//! The kernel inside a bzImage.
//!
//! A PC boots a bzImage by unpacking the kernel with code of its own, which takes more than a second under
//! emulation. QEMU can start the unpacked ELF file directly (the PVH entry), so it is unpacked here, and kept.
//! Source: the kernel's `Documentation/arch/x86/boot.rst`.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use super::unpack;
use crate::{Error, Result};

/// The number of 512-byte sectors of real-mode code, less one.
const SETUP_SECTORS: usize = 0x1f1;
/// How an ELF file begins.
const ELF: &[u8] = b"\x7fELF";
/// "HdrS".
const SIGNATURE: usize = 0x202;
/// Where the packed kernel is, from the end of the real-mode code; and how long it is.
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;

/// The unpacked kernel of `image` in the folder `cache`, made if it is not there yet.
///
/// What cannot be unpacked is returned as it is, for the VMM to judge; so is an image whose kernel cannot be kept.
/// Errors: the image cannot be read.
pub(crate) fn unpacked(image: &Path, cache: &Path) -> Result<PathBuf> {
    let reading = || format!("cannot read kernel {image:?}");
    let metadata = fs::metadata(image).map_err(Error::io(reading()))?;
    // Another image of the same name, size and second would be mistaken; nanoseconds make that a forgery.
    let key = format!(
        "{}-{:x}-{:x}.{:x}.vmlinux",
        image.file_name().unwrap_or_default().to_string_lossy(),
        metadata.len(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    );
    let kept = cache.join(key);
    if kept.is_file() {
        return Ok(kept);
    }
    let bytes = fs::read(image).map_err(Error::io(reading()))?;
    let Some(payload) = payload(&bytes) else { return Ok(image.to_owned()) };
    let Ok(vmlinux) = unpack::unpack(payload.to_vec()) else { return Ok(image.to_owned()) };
    if !vmlinux.starts_with(b"\x7fELF") {
        return Ok(image.to_owned());
    }
    match keep(&vmlinux, &kept) {
        Ok(()) => Ok(kept),
        Err(error) => {
            tracing::warn!(
                "cannot cache the unpacked kernel ({} bytes) at {kept:?}, starts are slower: {error}",
                vmlinux.len()
            );
            Ok(image.to_owned())
        }
    }
}

/// Returns whether the file `image` begins as a bzImage or an ELF file does.
pub(crate) fn is_kernel(image: &Path) -> io::Result<bool> {
    let mut head = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(fs::File::open(image)?, SIGNATURE as u64 + 4), &mut head)?;
    Ok(head.starts_with(ELF) || head.get(SIGNATURE..) == Some(b"HdrS"))
}

/// The packed kernel within a bzImage.
fn payload(image: &[u8]) -> Option<&[u8]> {
    if image.get(SIGNATURE..SIGNATURE + 4)? != b"HdrS" {
        return None;
    }
    // Zero stands for four in images of the first days.
    let sectors = match image[SETUP_SECTORS] {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = ((sectors + 1) * 512).checked_add(word(image, PAYLOAD_OFFSET)?)?;
    image.get(start..start.checked_add(word(image, PAYLOAD_LENGTH)?)?)
}

fn word(image: &[u8], at: usize) -> Option<usize> {
    let bytes = image.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
}

/// Writes beside `path` and renames, so that another run never meets half a kernel.
fn keep(bytes: &[u8], path: &Path) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let readable = fs::Permissions::from_mode(0o644);
    let mut file = tempfile::Builder::new().permissions(readable).tempfile_in(folder)?;
    io::Write::write_all(&mut file, bytes)?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bzImage with `payload` after one sector of real-mode code and eight bytes.
    fn bzimage(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 1024 + 8];
        image[SETUP_SECTORS] = 1;
        image[SIGNATURE..SIGNATURE + 4].copy_from_slice(b"HdrS");
        image[PAYLOAD_OFFSET..PAYLOAD_OFFSET + 4].copy_from_slice(&8_u32.to_le_bytes());
        image[PAYLOAD_LENGTH..PAYLOAD_LENGTH + 4].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend_from_slice(payload);
        image
    }

    #[test]
    fn a_kernel_is_unpacked_once_and_then_kept() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("vmlinuz");
        let cache = folder.path().join("cache");
        fs::write(&image, bzimage(b"\x7fELF kernel")).unwrap();

        let first = unpacked(&image, &cache).unwrap();
        assert_eq!(fs::read(&first).unwrap(), b"\x7fELF kernel");
        assert_eq!(unpacked(&image, &cache).unwrap(), first);
        assert_eq!(fs::read_dir(&cache).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_bzimage_is_left_to_the_vmm() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("vmlinuz");
        for content in [&b"\x7fELF"[..], b"", &bzimage(b"neither packed nor ELF")] {
            fs::write(&image, content).unwrap();
            assert_eq!(unpacked(&image, folder.path()).unwrap(), image);
        }
    }

    #[test]
    fn a_kernel_is_told_from_anything_else() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        for (content, expected) in [
            (bzimage(b""), true),
            (b"\x7fELF kernel".to_vec(), true),
            (vec![], false),
            (vec![1; 4096], false),
            (b"#!/bin/sh".to_vec(), false),
        ] {
            fs::write(&image, &content).unwrap();
            assert_eq!(is_kernel(&image).unwrap(), expected, "{} bytes", content.len());
        }
    }

    #[test]
    fn a_payload_past_the_end_is_no_payload() {
        let mut image = bzimage(b"\x7fELF");
        image[PAYLOAD_LENGTH + 2] = 1;
        assert_eq!(payload(&image), None);
    }
}
