//! What a guest repeats does not cost the daemon more each time.
//!
//! A hostile guest repeats something N times and 4N times, and never forgets, releases or waits. Memory, descriptors,
//! threads, requests in flight and the work that a stop waits for must not grow with the count beyond a stated bound.
//! [`repeated`] has the single requests of [`rows`], [`state`] what leaves something open or known, [`in_flight`] what
//! is not waited for; [`usage`] reads what the executable uses. [`complete`] compares the rows and tests with the table
//! of operations.
//!
//! `TRANSOM_SLOPES_SCALE` multiplies every count, for longer runs.

mod complete;
mod driver;
mod in_flight;
mod repeated;
mod rows;
mod state;
mod usage;

/// `count`, or as many times more as `TRANSOM_SLOPES_SCALE` says.
fn scaled(count: u64) -> u64 {
    let scale = std::env::var("TRANSOM_SLOPES_SCALE").ok().map(|scale| scale.parse().expect("a number"));
    count * scale.unwrap_or(1)
}
