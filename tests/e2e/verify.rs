//! `postonce-web verify`: an operator audits the ledger while it is in use. The audit finds every change
//! that bypassed the bank, and never reports work in progress.

use std::cell::Cell;

use futures::future::{join, join_all};
use postonce_shared::testing::prelude::*;
use postonce_tests::journal::whole_journal;
use postonce_tests::prelude::*;
use postonce_tests::tamper::Tamper;
use postonce_tests::verify::{verify, verify_with};

on_both_stores![
    a_ledger_under_load_gives_no_finding,
    every_change_is_found_and_named,
    an_audit_of_the_wrong_store_fails,
];

async fn a_ledger_under_load_gives_no_finding(store_kind: StoreKind) {
    const ROUNDS: usize = 3;
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let accounts: Vec<AccountKey> = (0..4).map(|_| fresh_account()).collect();
    for account in &accounts {
        client.open(*account).await;
    }
    let (auditing, sent) = (Cell::new(true), Cell::new(0_u64));
    let load = async {
        while auditing.get() {
            let submissions = accounts.iter().flat_map(|account| {
                let submissions = [
                    Submission::deposit("2.00"),
                    Submission::withdrawal("1.50"),
                    Submission::withdrawal("9999.00"),
                ];
                submissions.map(|submission| (*account, submission))
            });
            let client = &client;
            let submissions = submissions.map(async |(account, submission)| {
                let answer = client.submit(account, fresh_id(), &submission).await;
                assert!([200, 202].contains(&answer.status), "{answer:?}");
                sent.set(sent.get().saturating_add(1));
            });
            drop(join_all(submissions).await);
        }
    };
    let audits = async {
        // Only audits during which money moved count; on a busy machine nothing may have moved.
        let mut under_load = 0_usize;
        for round in 0..ROUNDS.saturating_mul(10) {
            let before = sent.get();
            let verified = verify(&bank, &[]).await;
            assert_eq!(verified.code, Some(0), "round {round}: {:#?}", verified.lines);
            assert_eq!(verified.findings, Vec::<serde_json::Value>::new());
            assert_eq!(verified.count("accounts"), 4);
            under_load = under_load.saturating_add(usize::from(sent.get() > before));
            if under_load == ROUNDS {
                break;
            }
        }
        assert_eq!(under_load, ROUNDS, "money moved during the audits");
        auditing.set(false);
    };
    join(load, audits).await;
    client.until_drained(wait::TIMEOUT).await;
    let verified = verify(&bank, &["--concurrency", "1"]).await;
    assert_eq!(verified.code, Some(0), "{:#?}", verified.lines);
    assert_eq!(verified.count("transactions"), sent.get(), "everything is read");
}

/// An account with four deposits, each on its own page after that of the opening, and a rejected withdrawal.
struct Subject {
    account: Account,
    pages: Vec<JournalPage>,
}

impl Subject {
    async fn new(client: &Client, store: &Store) -> Self {
        let key = fresh_account();
        client.open(key).await;
        for amount in ["1.00", "2.00", "3.00", "4.00"] {
            drop(client.submit_and_wait(key, fresh_id(), &Submission::deposit(amount)).await.expect(200));
        }
        drop(client.submit_and_wait(key, fresh_id(), &Submission::withdrawal("99.00")).await);
        let pages = whole_journal(store, key).await;
        assert_eq!(pages.len(), 6, "each decision has a page, and the opening is the first");
        let account = store.ledger.account(key).await.expect("the account can be read");
        Self { account: account.expect("it was opened").value, pages }
    }

    const fn key(&self) -> AccountKey {
        self.account.key
    }

    /// The transaction of an entry.
    fn transaction(&self, page: usize) -> TransactionKey {
        let entry = &self.pages[page].entries[0];
        TransactionKey { account: self.key(), partner: entry.partner.clone(), message: entry.message }
    }

    /// Writes all pages with matching hashes, and a matching account.
    async fn write_resealed(mut self, tamper: &Tamper) {
        let mut previous = PageHash::GENESIS;
        for page in &mut self.pages {
            page.previous_hash = previous;
            page.hash = page.content_hash();
            previous = page.hash;
            tamper.write_page(page).await;
        }
        self.account.head = previous;
        tamper.write_account(&self.account).await;
    }
}

/// An account, the first entry that must be named, and the kinds of all expected findings.
type Expected = (AccountKey, u64, Vec<&'static str>);

/// Changes several accounts, each in another way.
async fn change_accounts(client: &Client, store: &Store, tamper: &Tamper) -> Vec<Expected> {
    let subject = async || Subject::new(client, store).await;
    let mut expected: Vec<Expected> = Vec::new();

    let changed = subject().await;
    let mut page = changed.pages[2].clone();
    let euro = page.entries[0].amount.currency();
    page.entries[0].amount = Amount::try_new(201, euro).expect("an amount");
    tamper.write_page(&page).await;
    expected.push((changed.key(), 2, vec!["content_differs", "entry_balance", "page_hash"]));

    let removed = subject().await;
    tamper.remove_page(removed.key(), 3).await;
    expected.push((removed.key(), 3, vec!["decisions_missing", "entries_missing"]));

    let garbled = subject().await;
    tamper.garble_page(garbled.key(), 2).await;
    expected.push((garbled.key(), 2, vec!["page_unreadable"]));

    for reseal in [false, true] {
        let mut swapped = subject().await;
        let (one, other) = (swapped.pages[2].entries.clone(), swapped.pages[3].entries.clone());
        (swapped.pages[2].entries, swapped.pages[3].entries) = (other, one);
        let key = swapped.key();
        let mut kinds =
            vec!["entry_balance", "entry_balance", "entry_balance", "entry_sequence", "entry_sequence"];
        if reseal {
            swapped.write_resealed(tamper).await;
        } else {
            tamper.write_page(&swapped.pages[2]).await;
            tamper.write_page(&swapped.pages[3]).await;
            kinds.extend(["page_hash", "page_hash"]);
        }
        expected.push((key, 2, kinds));
    }

    let mut off_by_one = subject().await;
    let balance = off_by_one.account.balance.minor_units().saturating_add(1);
    off_by_one.account.balance = Balance::try_new(balance, euro).expect("a balance");
    tamper.write_account(&off_by_one.account).await;
    expected.push((off_by_one.key(), 0, vec!["account_balance"]));

    let rejected = subject().await;
    tamper.reject(&rejected.transaction(3)).await;
    expected.push((rejected.key(), 3, vec!["rejection_unchained", "transaction_not_posted"]));

    let deleted = subject().await;
    tamper.remove_transaction(&deleted.transaction(4)).await;
    expected.push((deleted.key(), 4, vec!["transaction_missing"]));
    expected
}

/// Gives two accounts the same order number, and keeps everything else consistent, so that only an audit of
/// the whole ledger can find it.
async fn repeat_a_number(client: &Client, store: &Store, tamper: &Tamper) -> ([AccountKey; 2], OrderNumber) {
    let (first, mut repeated) = (Subject::new(client, store).await, Subject::new(client, store).await);
    let number = first.pages[1].entries[0].order_number;
    repeated.pages[4].entries[0].order_number = number;
    let keys = [first.key(), repeated.key()];
    tamper.number(&repeated.transaction(4), number).await;
    repeated.write_resealed(tamper).await;
    (keys, number)
}

async fn every_change_is_found_and_named(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let (client, store, tamper) = (bank.client(0), bank.store().await, bank.tamper());
    let untouched = Subject::new(&client, &store).await.key();
    let expected = change_accounts(&client, &store, &tamper).await;
    let (keys, number) = repeat_a_number(&client, &store, &tamper).await;

    let verified = verify(&bank, &[]).await;
    assert_eq!(verified.code, Some(1), "{:#?}", verified.lines);
    for (account, sequence, kinds) in &expected {
        assert_eq!(verified.kinds(*account), *kinds, "{:#?}", verified.on(*account).collect::<Vec<_>>());
        let names_it = |finding: &serde_json::Value| {
            let message = finding.get("message").and_then(serde_json::Value::as_str).unwrap_or_default();
            let place = finding.get("sequence").and_then(serde_json::Value::as_u64).unwrap_or(0);
            message.contains(&account.to_string()) && place == *sequence
        };
        assert!(verified.on(*account).any(names_it), "entry {sequence}: {:#?}", verified.lines);
    }
    assert_eq!(verified.kinds(untouched), Vec::<&str>::new());
    let repeated: Vec<&serde_json::Value> = keys.iter().flat_map(|account| verified.on(*account)).collect();
    let [repeated] = repeated.as_slice() else { panic!("one finding about the number, not {repeated:#?}") };
    assert_eq!(repeated.get("kind"), Some(&"order_number_repeated".into()));
    let message = repeated.get("message").and_then(serde_json::Value::as_str).unwrap_or_default();
    for part in [keys[0].to_string(), keys[1].to_string(), number.to_string()] {
        assert!(message.contains(&part), "{message} has no {part}");
    }
    let found: usize = expected.iter().map(|(_, _, kinds)| kinds.len()).sum();
    assert_eq!(verified.findings.len(), found.saturating_add(1), "and nothing else: {:#?}", verified.lines);

    // The audit of one account alone has the same findings.
    let (account, _, kinds) = &expected[0];
    let one = verify(&bank, &["--account", &account.to_string()]).await;
    assert_eq!((one.code, one.kinds(*account)), (Some(1), kinds.clone()), "{:#?}", one.lines);
    let one = verify(&bank, &["--account", &untouched.to_string()]).await;
    assert_eq!((one.code, one.findings.len()), (Some(0), 0), "{:#?}", one.lines);
}

async fn an_audit_of_the_wrong_store_fails(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let unknown = verify(&bank, &["--account", &fresh_account().to_string()]).await;
    assert_eq!(unknown.code, Some(2), "{:#?}", unknown.lines);
    assert!(unknown.lines.iter().any(|line| line.contains("there is no account")), "{:#?}", unknown.lines);
    let elsewhere = match store_kind {
        StoreKind::Sqlite => bank.settings.clone().with("POSTONCE_STORAGE", "sqlite:nowhere.db"),
        StoreKind::Azurite => bank.settings.clone().with("POSTONCE_NAME_PREFIX", "nowhere"),
    };
    let verified = verify_with(&elsewhere, &bank, &[]).await;
    assert_eq!(verified.code, Some(2), "{:#?}", verified.lines);
    assert!(!bank.directory().join("nowhere.db").exists(), "an audit creates no store");
    let unusable = bank.settings.clone().with("POSTONCE_STORAGE", "what:ever");
    assert_eq!(verify_with(&unusable, &bank, &[]).await.code, Some(2));
}
