//! Sizes as a person writes and reads them: [`parse`] reads `4096`, `64K`, `256M` and `1GiB`, [`short`] writes `1.5M`.
//!
//! Units are powers of 1024. Not `parse-size`: 1.1 reads 184467440737095516155 as 0. Not `bytesize`: its K is 1000, and
//! it saturates on overflow.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod parse;
mod short;

pub use parse::{parse, parse_quota, parse_rate};
pub use short::short;
