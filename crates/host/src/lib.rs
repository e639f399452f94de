//! Transom: host.
