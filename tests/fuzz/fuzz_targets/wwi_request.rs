#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| postonce_tests::hostile::wwi_request::check(input));
