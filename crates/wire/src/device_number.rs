//! The 32-bit form of a device number, as Linux passes it to FUSE (`new_encode_dev`): 12 bits of major, 20 of minor.

/// Encodes `major` and `minor`; bits beyond their widths are lost.
pub fn encode(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & 0xf_ff00) << 12)
}

/// Decodes major and minor.
pub fn decode(device: u32) -> (u32, u32) {
    ((device & 0xf_ff00) >> 8, (device & 0xff) | ((device >> 12) & 0xf_ff00))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_both_ways() {
        for (major, minor) in [(0, 0), (1, 3), (8, 255), (259, 0), (0xfff, 0xf_ffff)] {
            assert_eq!(decode(encode(major, minor)), (major, minor));
        }
        assert_eq!(encode(8, 0x123), 0x10_0823);
    }
}
