//! `scripts/fuzz decode`: one message of any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| transom_testkit::fuzzing::decode::run(bytes));
