//! `scripts/fuzz migration`: a state of any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| transom_fuzzing::migration::run(bytes));
