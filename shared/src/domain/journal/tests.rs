use uuid::Uuid;

use super::*;
use crate::domain::ids::{AccountId, UserId};
use crate::domain::money::Currency;

fn entry(sequence: u64, code: &str, balance_after: i64) -> Entry {
    let currency = Currency::parse(code).unwrap();
    Entry {
        sequence,
        partner: PartnerId::parse("shop").unwrap(),
        message: MessageId::from_uuid(Uuid::from_u128(sequence.into())),
        kind: TransactionKind::Deposit,
        amount: Amount::try_new(100, currency).unwrap(),
        details: Details::default(),
        order_number: OrderNumber::from_counter(sequence),
        balance_after: Balance::try_new(balance_after, currency).unwrap(),
        accepted_at: Timestamp::from_unix_ms(1),
        posted_at: Timestamp::from_unix_ms(2),
    }
}

fn page(entries: Vec<Entry>) -> JournalPage {
    let account = AccountKey {
        user: UserId::from_uuid(Uuid::from_u128(1)),
        account: AccountId::from_uuid(Uuid::from_u128(2)),
    };
    let nonce = Nonce::from_uuid(Uuid::from_u128(3));
    let previous_hash = PageHash::GENESIS;
    let mut page =
        JournalPage { account, first_sequence: 1, entries, previous_hash, hash: PageHash::GENESIS, nonce };
    page.hash = page.content_hash();
    page
}

#[test]
fn a_valid_page_passes() {
    assert_eq!(page(vec![entry(1, "EUR", 100), entry(2, "EUR", 200)]).check(), Ok(()));
}

/// The reader of such a page must get an error and must not panic.
#[test]
fn a_page_in_two_currencies_is_a_flaw_and_does_not_panic() {
    let mixed = page(vec![entry(1, "EUR", 100), entry(2, "USD", 200)]);
    assert_eq!(mixed.check(), Err(PageFlaw::Balance { sequence: 2 }));
}

#[test]
fn every_flaw_is_found() {
    let check = |entries: Vec<Entry>, flaw| assert_eq!(page(entries).check(), Err(flaw));
    check(Vec::new(), PageFlaw::Size { first_sequence: 1, count: 0 });
    check(vec![entry(1, "EUR", 100), entry(3, "EUR", 200)], PageFlaw::Sequence { expected: 2, found: 3 });
    check(vec![entry(1, "EUR", 100), entry(2, "EUR", 201)], PageFlaw::Balance { sequence: 2 });
    let mut changed = page(vec![entry(1, "EUR", 100)]);
    changed.previous_hash = PageHash::from_bytes([1; 32]);
    assert_eq!(changed.check(), Err(PageFlaw::Hash { first_sequence: 1 }));
}
