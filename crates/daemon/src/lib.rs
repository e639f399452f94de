//! Transom: daemon.
