//! `scripts/fuzz announcement`: what a daemon sends to the agent in a guest.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| transom_fuzzing::announcement::run(bytes));
