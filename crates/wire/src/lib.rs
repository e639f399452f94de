//! Transom: wire.
