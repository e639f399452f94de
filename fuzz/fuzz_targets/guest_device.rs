//! `scripts/fuzz guest_device`: a device that does anything, under the guest library's driver.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| transom_fuzzing::guest::device::run(bytes));
