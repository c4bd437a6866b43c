use uuid::Uuid;

use super::*;
use crate::testing::prelude::*;

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
    let (decided, hash) = (Vec::new(), PageHash::GENESIS);
    let page =
        JournalPage { account, version: 4, first_sequence: 1, entries, decided, previous_hash, hash, nonce };
    hashed(page)
}

fn hashed(mut page: JournalPage) -> JournalPage {
    page.hash = page.content_hash();
    page
}

fn rejection(number: u128) -> Decided {
    let instruction = Instruction {
        kind: TransactionKind::Deposit,
        amount: Amount::try_new(100, Currency::parse("EUR").unwrap()).unwrap(),
        details: Details::default(),
    };
    Decided::Rejected(Rejection {
        partner: PartnerId::parse("shop").unwrap(),
        message: MessageId::from_uuid(Uuid::from_u128(number)),
        fingerprint: instruction.fingerprint(),
        accepted_at: Timestamp::from_unix_ms(1),
        reason: RejectReason::AccountClosed,
        rejected_at: Timestamp::from_unix_ms(2),
    })
}

fn with_decided(entries: Vec<Entry>, decided: Vec<Decided>) -> JournalPage {
    hashed(JournalPage { decided, ..page(entries) })
}

#[test]
fn a_page_contains_entries_and_other_decisions() {
    let mixed = with_decided(vec![entry(1, "EUR", 100)], vec![rejection(7)]);
    assert_eq!((mixed.check(), mixed.count(), mixed.last_sequence()), (Ok(()), 2, 1));
    let rejections = with_decided(Vec::new(), vec![rejection(7), rejection(8)]);
    assert_eq!((rejections.check(), rejections.last_sequence()), (Ok(()), 0));
    let empty = with_decided(Vec::new(), Vec::new());
    assert_eq!(empty.check(), Err(JournalPageError::Size { first_sequence: 1, count: 0 }));
}

#[test]
fn the_hash_covers_the_version_and_every_decision() {
    let before = with_decided(vec![entry(1, "EUR", 100)], vec![rejection(7), rejection(8)]);
    let Decided::Rejected(first) = rejection(7) else { panic!("it is a rejection") };
    let other = |rejection: Rejection| vec![Decided::Rejected(rejection), self::rejection(8)];
    let eur = Currency::parse("EUR").unwrap();
    let partner = PartnerId::parse("other").unwrap();
    let limit = OverdraftLimit::try_new(5, eur).unwrap();
    let terms = |status, names: Option<(&str, &str)>| {
        let holder = names
            .map(|(given, family)| Holder { given_name: given.to_owned(), family_name: family.to_owned() });
        vec![Decided::TermsChanged {
            status,
            overdraft_limit: limit,
            holder,
            changed_at: Timestamp::from_unix_ms(1),
        }]
    };
    let decided = [
        other(Rejection { partner, ..first.clone() }),
        other(Rejection { message: MessageId::from_uuid(Uuid::from_u128(9)), ..first.clone() }),
        other(Rejection { accepted_at: Timestamp::from_unix_ms(3), ..first.clone() }),
        other(Rejection { reason: RejectReason::Discarded, ..first.clone() }),
        other(Rejection { rejected_at: Timestamp::from_unix_ms(3), ..first }),
        vec![rejection(8), rejection(7)],
        vec![rejection(7)],
        terms(AccountStatus::Open, None),
        terms(AccountStatus::Frozen, None),
        terms(AccountStatus::Open, Some(("", ""))),
        terms(AccountStatus::Open, Some(("Ada", "Byron"))),
        terms(AccountStatus::Open, Some(("Ada", "B"))),
    ];
    let mut hashes: Vec<PageHash> =
        decided.into_iter().map(|decided| JournalPage { decided, ..before.clone() }.content_hash()).collect();
    hashes.push(JournalPage { version: 5, ..before.clone() }.content_hash());
    hashes.push(JournalPage { entries: vec![entry(1, "EUR", 200)], ..before.clone() }.content_hash());
    hashes.push(before.content_hash());
    let distinct: std::collections::BTreeSet<String> = hashes.iter().map(ToString::to_string).collect();
    assert_eq!(distinct.len(), hashes.len());
}

#[test]
fn a_valid_page_passes() {
    assert_eq!(page(vec![entry(1, "EUR", 100), entry(2, "EUR", 200)]).check(), Ok(()));
}

/// Reading such a page must return an error and not panic.
#[test]
fn a_page_in_two_currencies_is_a_flaw_and_does_not_panic() {
    let mixed = page(vec![entry(1, "EUR", 100), entry(2, "USD", 200)]);
    assert_eq!(mixed.check(), Err(JournalPageError::Balance { sequence: 2 }));
}

#[test]
fn every_flaw_is_found() {
    let check = |entries: Vec<Entry>, flaw| assert_eq!(page(entries).check(), Err(flaw));
    check(Vec::new(), JournalPageError::Size { first_sequence: 1, count: 0 });
    check(
        vec![entry(1, "EUR", 100), entry(3, "EUR", 200)],
        JournalPageError::Sequence { expected: 2, found: 3 },
    );
    check(vec![entry(1, "EUR", 100), entry(2, "EUR", 201)], JournalPageError::Balance { sequence: 2 });
    let mut changed = page(vec![entry(1, "EUR", 100)]);
    changed.previous_hash = PageHash::from_bytes([1; 32]);
    assert_eq!(changed.check(), Err(JournalPageError::Hash { first_sequence: 1 }));
}
