//! `scripts/fuzz requests`: a sequence of whole requests.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| transom_fuzzing::requests::run(bytes));
