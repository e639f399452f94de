use std::{os::unix::fs::MetadataExt as _, process::Command};

use super::*;

#[test]
fn a_checksum_is_that_of_the_catalogue() {
    // CRC-16/MODBUS has these parameters, and this check value.
    assert_eq!(crc16(b"123456789"), 0x4b37);
}

#[test]
fn file_systems_of_all_sizes_are_clean_and_take_little_of_the_disk() {
    if Command::new("e2fsck").arg("-V").output().is_err() {
        return println!("SKIPPED: e2fsck (e2fsprogs) is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    // One group, a full one, one with a remainder that is too short, more descriptors than a block has.
    for len_bytes in [LEN_MIN, 128 << 20, (128 << 20) + (1 << 20), (300 << 20) + 4096 + 1, 40 << 30] {
        let file = File::create(&path).unwrap();
        format(&file, len_bytes).unwrap();
        let metadata = file.metadata().unwrap();
        assert!(metadata.len() <= len_bytes && metadata.len() > len_bytes - (4 << 20), "{len_bytes}");
        assert!(metadata.blocks() * 512 < 256 << 10, "{len_bytes}: {} blocks", metadata.blocks());
        let checked = Command::new("e2fsck").args(["-f", "-n"]).arg(&path).env("LC_ALL", "C").output().unwrap();
        assert!(checked.status.success(), "{len_bytes}: {checked:?}");
    }
}
