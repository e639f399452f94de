//! Whether memory holds one value everywhere.

/// Bytes that are compared at once.
const BLOCK_LEN: usize = 4096;

/// Returns whether every byte is `VALUE`. Compares blocks, because a fuzzer's build counts each branch that it
/// sees, and these tell it nothing.
pub(crate) fn is_filled<const VALUE: u8>(bytes: &[u8]) -> bool {
    let block = const { &[VALUE; BLOCK_LEN] };
    bytes.chunks(BLOCK_LEN).all(|chunk| *chunk == block[..chunk.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_other_byte_is_seen_wherever_it_is() {
        let mut bytes = vec![7; 2 * BLOCK_LEN + 1];
        assert!(is_filled::<7>(&bytes) && is_filled::<7>(&[]));
        for at in [0, BLOCK_LEN - 1, BLOCK_LEN, 2 * BLOCK_LEN] {
            bytes[at] = 8;
            assert!(!is_filled::<7>(&bytes), "{at}");
            bytes[at] = 7;
        }
    }
}
