//! Large bodies by reference.

use super::case::Case;
use crate::ports::Store;

/// Checks [`crate::ports::payload_store::PayloadStore`].
pub async fn payload_store_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    a_payload_is_kept_until_it_is_deleted(&case().await).await;
    the_same_content_can_be_written_again(&case().await).await;
    payloads_survive_byte_for_byte(&case().await).await;
}

async fn get(case: &Case, name: &str) -> Option<Vec<u8>> {
    case.store.payloads.get(name).await.unwrap()
}

async fn a_payload_is_kept_until_it_is_deleted(case: &Case) {
    let (name, neighbor) = (case.name(), case.name());
    let payloads = &case.store.payloads;
    assert_eq!(get(case, &name).await, None, "nobody wrote it");
    payloads.delete(&name).await.expect("removing what is not there is fine");
    payloads.put(&name, b"one").await.unwrap();
    payloads.put(&neighbor, b"two").await.unwrap();
    assert_eq!(get(case, &name).await.as_deref(), Some(&b"one"[..]), "a confirmed body is read back");
    for _ in 0..2 {
        payloads.delete(&name).await.expect("removing twice is fine");
        assert_eq!(get(case, &name).await, None, "what was removed is gone");
    }
    assert_eq!(get(case, &neighbor).await.as_deref(), Some(&b"two"[..]), "its neighbor is not");
}

async fn the_same_content_can_be_written_again(case: &Case) {
    let name = case.name();
    for _ in 0..3 {
        case.store.payloads.put(&name, b"the same").await.expect("the same content is allowed");
        assert_eq!(get(case, &name).await.as_deref(), Some(&b"the same"[..]), "and nothing changes");
    }
    case.store.payloads.delete(&name).await.unwrap();
    assert_eq!(get(case, &name).await, None, "however often it was written");
}

async fn payloads_survive_byte_for_byte(case: &Case) {
    let any_bytes: Vec<u8> = (0..=u8::MAX).cycle().take(1024 * 1024).collect();
    let bodies = [any_bytes, Vec::new(), vec![0], "{\"text\":\"Grüße\"}".as_bytes().to_vec()];
    let name = case.name();
    let names = [format!("{name}-{}", "n".repeat(199 - name.len())), case.name(), case.name(), case.name()];
    assert_eq!(names[0].len(), 200, "the longest name that is allowed");
    for (name, body) in names.iter().zip(&bodies) {
        case.store.payloads.put(name, body).await.unwrap();
    }
    for (name, body) in names.iter().zip(&bodies) {
        assert!(get(case, name).await.as_ref() == Some(body), "a body of {} bytes survives", body.len());
        case.store.payloads.delete(name).await.unwrap();
    }
}
