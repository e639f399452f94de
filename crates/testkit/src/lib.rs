//! Transom: testkit.
