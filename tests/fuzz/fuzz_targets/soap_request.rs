#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| postonce_tests::hostile::soap_request::check(input));
