//! A stored payload. It is compressed, so a small payload can expand to a very large one.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use postonce_shared::messaging::envelope::claim::PAYLOAD_BYTES_MAX;
use postonce_shared::messaging::envelope::{Claim, Content, Unreadable};
use postonce_shared::testing::prelude::*;

/// Maximum length of a text that is repeated. Longer texts compress less.
const SEED_BYTES_MAX: usize = 16;

/// Uses any bytes as a stored payload, as its decompressed content, and as a short text repeated beyond the maximum size.
pub fn check(input: &[u8]) {
    let claim = Claim::on("work-1".to_owned());
    check_opened(&claim, input);
    check_opened(&claim, &gzip(input));
    check_sealed(&claim, input);
    if (1..=SEED_BYTES_MAX).contains(&input.len()) {
        let times = PAYLOAD_BYTES_MAX.div_ceil(input.len()).saturating_add(1);
        let bomb = gzip(&input.repeat(times));
        assert!(
            matches!(claim.open(&bomb, &seal()), Err(Unreadable::Damaged { .. })),
            "{} bytes became more than {PAYLOAD_BYTES_MAX}",
            bomb.len()
        );
    }
}

fn check_opened(claim: &Claim, payload: &[u8]) {
    match claim.open(payload, &seal()) {
        Ok(Content::Work(_)) => panic!("work without a seal is trusted"),
        Ok(Content::Names(names)) => assert!(!names.items().is_empty()),
        Err(_) => {}
    }
}

/// Checks that content with a valid seal is trusted, and is read back unchanged.
fn check_sealed(claim: &Claim, input: &[u8]) {
    let purpose = Purpose::Payload(&claim.name);
    let content = seal().seal(purpose, input.to_vec());
    if !seal().verify(purpose, &content) {
        return;
    }
    let Ok(Content::Work(envelope)) = claim.open(&gzip(&content), &seal()) else { return };
    assert_eq!(envelope.payload.as_deref(), Some(claim.name.as_str()));
    let again = seal().seal(purpose, unsealed(&envelope.unclaimed().encode(&seal())));
    match claim.open(&gzip(&again), &seal()) {
        Ok(Content::Work(read)) => assert_eq!(read, envelope, "a payload is read back as it was written"),
        other => panic!("a payload became {other:?}"),
    }
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content).expect("a write to memory succeeds");
    encoder.finish().expect("a write to memory succeeds")
}
