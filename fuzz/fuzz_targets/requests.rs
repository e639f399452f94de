//! `scripts/fuzz requests`: a sequence of whole requests.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| transom_testkit::fuzzing::requests::run(bytes));
