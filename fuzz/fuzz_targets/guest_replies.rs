//! `scripts/fuzz guest_replies`: a server that answers anything, under the guest library's sessions and paths.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| transom_fuzzing::guest::replies::run(bytes));
