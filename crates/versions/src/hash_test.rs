use super::*;

const KEYS: Keys = Keys(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);

/// Linux, `lib/tests/siphash_kunit.c`, `test_vectors_hsiphash` for 64-bit machines: the hashes of 0, 1, 2, … bytes that
/// count from 0.
const VECTORS: [u32; 16] = [
    0x050f_c4dc,
    0x7d57_ca93,
    0x4dc7_d44d,
    0xe7dd_f7fb,
    0x88d3_8328,
    0x4953_3b67,
    0xc59f_22a7,
    0x9bb1_1140,
    0x8d29_9a8e,
    0x6c06_3de4,
    0x92ff_097f,
    0xf94d_c352,
    0x57b4_d9a2,
    0x1229_ffa7,
    0xc0f9_5d34,
    0x2a51_9956,
];

#[test]
fn the_hash_is_the_one_of_linux() {
    let bytes: [u8; 16] = core::array::from_fn(|at| at as u8);
    for (len, expected) in VECTORS.into_iter().enumerate() {
        assert_eq!(KEYS.hash(&bytes[..len]), expected, "{len} bytes");
    }
}

#[test]
fn the_slot_is_the_hash_of_the_number_as_eight_bytes_little_endian() {
    let ino = u64::from_le_bytes([0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(KEYS.slot(ino, u32::MAX).number(), VECTORS[8]);
    assert_eq!(KEYS.slot(ino, 0xffff).number(), VECTORS[8] & 0xffff);
    assert_ne!(KEYS.slot(ino, 0xffff), Keys(1, 2).slot(ino, 0xffff), "the keys matter");
}
