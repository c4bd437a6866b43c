//! The smaller ports across a restart: all their writes are in the file.

use std::time::Duration;

use postonce_shared::testing::prelude::*;
use uuid::Uuid;

use super::fixture::{Fixture, account_key, corrupt, refused, within_deadline, work_queue};

const EARLY: i64 = 1_795_248_000_000;

#[test]
fn accounts_change_under_their_revision() {
    within_deadline(async {
        let fixture = Fixture::new();
        let opened = fixture.open_account(&fixture.open()).await;
        let accounts = fixture.open().accounts;
        let closed = change_of_terms(&opened.value, opened.value.overdraft_limit, AccountStatus::Closed);
        let revision = accounts.change(&opened.revision, &closed).await.unwrap();
        assert!(revision.is_some_and(|revision| revision != opened.revision));
        assert_eq!(accounts.change(&opened.revision, &closed).await.unwrap(), None);
        assert_eq!(accounts.list(account_key().user, None, 10).await.unwrap(), vec![closed.after]);
        let after = Some(AccountId::from_uuid(Uuid::from_u128(2)));
        assert_eq!(accounts.list(account_key().user, after, 10).await.unwrap(), Vec::new());
    });
}

#[test]
fn dead_letters_survive_a_restart() {
    within_deadline(async {
        let fixture = Fixture::new();
        let letter = |id: &str| DeadLetter {
            id: id.to_owned(),
            queue: work_queue(),
            reason: "unreadable".to_owned(),
            body: vec![255; 64 * 1024],
            dequeue_count: 5,
            inserted_at: Timestamp::from_unix_ms(EARLY),
            dead_at: Timestamp::from_unix_ms(EARLY),
            resolution: None,
        };
        let (first, second, third) = (letter("1"), letter("2"), letter("3"));
        let resolution = Resolution {
            kind: ResolutionKind::Discarded,
            by: "ops".to_owned(),
            at: Timestamp::from_unix_ms(EARLY),
        };
        {
            let letters = fixture.open().dead_letters;
            for letter in [&first, &second, &third] {
                letters.add(letter).await.unwrap();
            }
            assert!(letters.resolve("2", &resolution).await.unwrap());
            assert!(!letters.resolve("2", &resolution).await.unwrap());
            letters.add(&second).await.unwrap();
        }
        let letters = fixture.open().dead_letters;
        let resolved = letters.find("2").await.unwrap().unwrap();
        assert_eq!(resolved, DeadLetter { resolution: Some(resolution), ..second });
        let page = letters.list(true, None, 1).await.unwrap();
        assert_eq!(page.items, vec![first.clone()]);
        let page = letters.list(true, page.next.as_deref(), 1).await.unwrap();
        assert_eq!((page.items, page.next), (vec![third.clone()], None));
        assert_eq!(letters.list(false, None, 10).await.unwrap().items, vec![first, resolved, third]);
        assert_eq!(letters.count_open().await.unwrap(), vec![(work_queue(), 2)]);
        fixture.sql().execute_batch("UPDATE dead_letters SET queue = 'Someone''s'").unwrap();
        assert!(corrupt(&letters.find("1").await));
    });
}

#[test]
fn a_shared_value_never_repeats_a_revision() {
    within_deadline(async {
        let fixture = Fixture::new();
        let (one, other) = (fixture.open().sync, fixture.open().sync);
        let Swapped::Done(first) = one.swap("gate", None, "held").await.unwrap() else { panic!("conflict") };
        assert_eq!(other.swap("gate", None, "open").await.unwrap(), Swapped::Conflict);
        let Swapped::Done(second) = other.swap("gate", Some(&first), "open").await.unwrap() else {
            panic!("the revision was current")
        };
        let Swapped::Done(third) = one.swap("gate", Some(&second), "held").await.unwrap() else {
            panic!("the revision was current")
        };
        assert!(first != third && second != third);
        assert_eq!(other.swap("gate", Some(&first), "open").await.unwrap(), Swapped::Conflict);
        assert!(refused(&one.swap("a/b", None, "x").await));
        assert!(refused(&one.swap("large", None, &"x".repeat(16 * 1024 + 1)).await));
    });
}

#[test]
fn a_payload_cannot_be_overwritten() {
    within_deadline(async {
        let fixture = Fixture::new();
        let large = vec![7; 3_000_000];
        fixture.open().payloads.put("p-1", &large).await.unwrap();
        let payloads = fixture.open().payloads;
        payloads.put("p-1", &large).await.unwrap();
        assert!(refused(&payloads.put("p-1", b"other").await));
        assert_eq!(payloads.get("p-1").await.unwrap(), Some(large));
        for _ in 0..2 {
            payloads.delete("p-1").await.unwrap();
        }
        assert_eq!(payloads.get("p-1").await.unwrap(), None);
    });
}

#[test]
fn a_revoked_key_stays_revoked_after_a_restart() {
    within_deadline(async {
        let fixture = Fixture::new();
        let record = ApiKeyRecord {
            id: "0123456789abcdef".to_owned(),
            hash: [3; 32],
            partner: PartnerId::parse("shop").unwrap(),
            scopes: vec!["submit".to_owned(), "read".to_owned()],
            created_at: Timestamp::from_unix_ms(EARLY),
            revoked_at: None,
            expires_at: None,
            last_used_at: None,
        };
        let early = Timestamp::from_unix_ms(EARLY);
        let keys = fixture.open().api_keys;
        keys.add(&record).await.unwrap();
        assert_eq!(keys.find(&record.id).await.unwrap(), Some(record.clone()));
        assert!(!keys.revoke("nobody", early).await.unwrap());
        for later in [Duration::ZERO, Duration::from_secs(1)] {
            assert!(keys.revoke(&record.id, early.after(later)).await.unwrap());
            keys.add(&record).await.unwrap();
        }
        let revoked = ApiKeyRecord { revoked_at: Some(early), ..record };
        assert_eq!(keys.list().await.unwrap(), vec![revoked]);
    });
}
