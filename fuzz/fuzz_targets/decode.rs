//! `scripts/fuzz decode`: one message of any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| transom_fuzzing::decode::run(bytes));
