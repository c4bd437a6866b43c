//! What the smaller ports refuse in a file. The contract has the rest.

use postonce_shared::testing::prelude::*;

use super::fixture::{Fixture, corrupt, refused, within_deadline, work_queue};

#[test]
fn invalid_names_large_values_other_payloads_and_damaged_letters_are_refused() {
    within_deadline(async {
        let fixture = Fixture::new();
        let Store { sync, payloads, dead_letters, .. } = fixture.open();
        assert!(refused(&sync.swap("a/b", None, "x").await));
        assert!(refused(&sync.swap("large", None, &"x".repeat(16 * 1024 + 1)).await));
        let large = vec![7; 3_000_000];
        payloads.put("p-1", &large).await.unwrap();
        assert!(refused(&payloads.put("p-1", b"other").await));
        assert_eq!(fixture.open().payloads.get("p-1").await.unwrap(), Some(large));
        let letter = DeadLetter {
            id: "1".to_owned(),
            queue: work_queue(),
            reason: "unreadable".to_owned(),
            body: vec![255; 64 * 1024],
            dequeue_count: 5,
            inserted_at: fixture.world().now(),
            dead_at: fixture.world().now(),
            resolution: None,
        };
        dead_letters.add(&letter).await.unwrap();
        assert_eq!(fixture.open().dead_letters.find("1").await.unwrap(), Some(letter));
        fixture.sql().execute_batch("UPDATE dead_letters SET queue = 'Someone''s'").unwrap();
        assert!(corrupt(&dead_letters.find("1").await));
    });
}
