//! The state of a session of arbitrary bytes.

use transom_host::migration::{Limits, decode, encode};

/// Few, so that the limits are reached.
const LIMITS: Limits = Limits { inodes: 100, handles: 50 };

/// Reads a state. Panics if what was read cannot be written and read again.
pub fn run(bytes: &[u8]) {
    if let Ok(state) = decode(bytes, LIMITS) {
        assert!(state.inodes.len() <= LIMITS.inodes + 1 && state.handles.len() <= LIMITS.handles);
        let written = encode(&state);
        let again = decode(&written, LIMITS).unwrap_or_else(|error| panic!("{state:?}: {error}"));
        assert_eq!(again, state);
    }
}
