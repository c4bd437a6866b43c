//! Opening, changing and listing accounts.

use std::sync::Arc;

use super::case::{Case, assert_chain, currency, forged_revisions, moment};
use crate::domain::account::{Account, AccountStatus, Holder, Versioned};
use crate::domain::ids::{AccountId, AccountKey, UserId};
use crate::domain::journal::PageHash;
use crate::domain::money::{Balance, OverdraftLimit};
use crate::ports::Store;
use crate::ports::ledger::{Committed, Opened};
use crate::ports::world::WorldExt as _;

/// Checks [`crate::ports::ledger::Accounts`].
pub async fn accounts_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    an_account_is_read_back_as_it_was_opened(&case().await).await;
    opening_twice_tells_the_first(&case().await).await;
    concurrent_openings_make_one_account(&case().await).await;
    the_same_account_id_of_another_user_is_another_account(&case().await).await;
    a_change_happens_under_its_guard(&case().await).await;
    a_change_keeps_balance_journal_and_holder(&case().await).await;
    a_change_makes_older_readings_stale(&case().await).await;
    of_a_change_and_a_commit_one_wins(&case().await).await;
    a_users_accounts_are_listed_page_by_page(&case().await).await;
}

fn limit(cents: i64) -> OverdraftLimit {
    OverdraftLimit::try_new(cents, currency("EUR")).unwrap()
}

async fn an_account_is_read_back_as_it_was_opened(case: &Case) {
    let holder = |given: &str, family: &str| {
        Some(Holder { given_name: given.to_owned(), family_name: family.to_owned() })
    };
    let holders =
        [None, holder("Zoë \"Z\"", "O'Neil-Ærø"), holder("山田", "👩‍👩‍👧"), holder("x", &"ß".repeat(140))];
    for (holder, code) in holders.into_iter().zip(["EUR", "JPY", "BHD", "CLF"]) {
        let currency = currency(code);
        let limit = OverdraftLimit::try_new(999_999_999_999_999_999, currency).unwrap();
        let account = Account::open(case.account_key(), currency, limit, holder, moment(7));
        let created = case.open(&account).await;
        assert_eq!(created.value, account, "opening tells the account that was made");
        assert_eq!(case.account(account.key).await, created, "it is read back as it was opened");
        let listed = case.store.accounts.list(account.key.user, None, 10).await.unwrap();
        assert_eq!(listed, [account], "it stands in the list of its user");
    }
}

async fn opening_twice_tells_the_first(case: &Case) {
    let first = case.opened().await;
    let key = first.value.key;
    let other = Account::open(key, currency("USD"), limit(500), None, moment(0));
    let answer = case.store.accounts.open(&other).await.unwrap();
    assert_eq!(answer, Opened::Existing(first), "the first content stands");
    case.settled(&[case.deposit(key, 100)]).await;
    let now = case.account(key).await;
    assert_eq!(now.value.balance.minor_units(), 100, "the account is in use");
    let answer = case.store.accounts.open(&other).await.unwrap();
    assert_eq!(answer, Opened::Existing(now.clone()), "an existing account is told as it now is");
    assert_eq!(case.account(key).await, now, "opening again changes nothing");
}

async fn concurrent_openings_make_one_account(case: &Case) {
    for _ in 0..10 {
        let key = case.account_key();
        let steps = (1..=5).map(|cents| {
            let accounts = Arc::clone(&case.store.accounts);
            let account = Account::open(key, currency("EUR"), limit(cents), None, moment(cents));
            async move { accounts.open(&account).await.unwrap() }
        });
        let answers = case.at_once(steps).await;
        let stored = case.account(key).await;
        let made = answers.iter().filter(|answer| matches!(answer, Opened::Created(_))).count();
        assert_eq!(made, 1, "of concurrent openings exactly one makes the account");
        for answer in answers {
            let (Opened::Created(told) | Opened::Existing(told)) = answer;
            assert_eq!(told, stored, "all are told the account that was made");
        }
    }
}

async fn the_same_account_id_of_another_user_is_another_account(case: &Case) {
    let one = case.opened().await;
    let user = UserId::from_uuid(case.world.uuid());
    let key = AccountKey { user, account: one.value.key.account };
    assert_eq!(case.store.ledger.account(key).await.unwrap(), None, "ids of accounts are the user's own");
    case.open(&Account::open(key, currency("USD"), limit(0), None, moment(1))).await;
    assert_eq!(case.account(one.value.key).await, one, "the other user's account is as it was");
}

async fn a_change_happens_under_its_guard(case: &Case) {
    let opened = case.opened().await;
    let after = opened.value.changed(limit(700), AccountStatus::Closed).unwrap();
    let revision = case.store.accounts.change(&opened.revision, &after).await.unwrap();
    let revision = revision.expect("the row was as the guard says");
    let changed = Versioned { value: after, revision };
    assert_eq!(case.account(opened.value.key).await, changed, "status, limit and version are replaced");
    assert_ne!(changed.revision, opened.revision, "a change moves the revision");

    let late = opened.value.changed(limit(1), AccountStatus::Open).unwrap();
    let answer = case.store.accounts.change(&opened.revision, &late).await.unwrap();
    assert_eq!(answer, None, "the row is no longer as the guard says");
    assert_eq!(case.account(opened.value.key).await, changed, "a refused change writes nothing");

    for forged in forged_revisions() {
        let answer = case.store.accounts.change(&forged, &late).await.unwrap();
        assert_eq!(answer, None, "{forged:?} is no revision");
    }
    assert_eq!(case.account(opened.value.key).await, changed, "a refused change writes nothing");

    let reopened = changed.value.changed(limit(0), AccountStatus::Open).unwrap();
    let answer = case.store.accounts.change(&changed.revision, &reopened).await.unwrap();
    assert!(answer.is_some(), "the revision of a change guards the next");

    let nobody = Account { key: case.account_key(), ..late };
    let answer = case.store.accounts.change(&opened.revision, &nobody).await.unwrap();
    assert_eq!(answer, None, "an account that was never opened cannot be changed");
    assert_eq!(case.store.ledger.account(nobody.key).await.unwrap(), None, "and is not made either");
}

async fn a_change_keeps_balance_journal_and_holder(case: &Case) {
    let key = case.opened().await.value.key;
    case.settled(&[case.deposit(key, 1_234)]).await;
    let before = case.account(key).await;
    // Whatever the caller believes about the rest of the row is not written.
    let believed = Account {
        balance: Balance::zero(currency("EUR")),
        sequence: 0,
        head: PageHash::GENESIS,
        holder: Some(Holder { given_name: "no".to_owned(), family_name: "body".to_owned() }),
        opened_at: moment(99),
        ..before.value.changed(limit(50), AccountStatus::Open).unwrap()
    };
    let answer = case.store.accounts.change(&before.revision, &believed).await.unwrap();
    assert!(answer.is_some(), "the row was as the guard says");
    let after = case.account(key).await.value;
    let expected =
        Account { overdraft_limit: limit(50), version: before.value.version + 1, ..before.value.clone() };
    assert_eq!(after, expected, "a change replaces status, limit and version, and nothing else");
    let next = case.settled(&[case.withdrawal(key, 1_284)]).await;
    assert_eq!(next.after.balance.minor_units(), -50, "the next decision sees both");
    assert_chain(&case.journal(key).await, &next.after);
}

async fn a_change_makes_older_readings_stale(case: &Case) {
    let opened = case.opened().await;
    let key = opened.value.key;
    let work = case.accepted(&[case.deposit(key, 1)]).await;
    let closed = opened.value.changed(limit(0), AccountStatus::Closed).unwrap();
    case.store.accounts.change(&opened.revision, &closed).await.unwrap().expect("the guard holds");
    let before = case.everything(key).await;
    let answer = case.store.ledger.commit(&case.decided(&opened, &work)).await.unwrap();
    assert_eq!(answer, Committed::Stale, "a commit must not miss a change of the account");
    assert_eq!(case.everything(key).await, before, "a stale commit writes nothing");
}

async fn of_a_change_and_a_commit_one_wins(case: &Case) {
    let key = case.opened().await.value.key;
    let mut balance = 0;
    for round in 1..=15 {
        let account = case.account(key).await;
        let work = case.accepted(&[case.deposit(key, 10)]).await;
        let commit = case.decided(&account, &work);
        let after = account.value.changed(limit(round), AccountStatus::Open).unwrap();
        let (accounts, ledger) = (Arc::clone(&case.store.accounts), Arc::clone(&case.store.ledger));
        let guard = account.revision.clone();
        let (changed, answer) = futures::join!(
            case.at_once([async move { accounts.change(&guard, &after).await.unwrap().is_some() }]),
            case.at_once([async move { ledger.commit(&commit).await.unwrap() }]),
        );
        let is_posted = matches!(answer[0], Committed::Done { .. });
        assert!(changed[0] != is_posted, "either the change or the commit finds the account as it was");
        balance += if is_posted { 10 } else { 0 };
        let now = case.account(key).await;
        assert_eq!(now.value.balance.minor_units(), balance, "a change never takes money with it");
        assert_eq!(now.value.overdraft_limit == limit(round), changed[0], "a lost change leaves no trace");
        assert_chain(&case.journal(key).await, &now.value);
        if !is_posted {
            case.committed(&case.decided(&now, &work)).await;
            balance += 10;
        }
    }
}

async fn a_users_accounts_are_listed_page_by_page(case: &Case) {
    let user = UserId::from_uuid(case.world.uuid());
    assert!(case.store.accounts.list(user, None, 5).await.unwrap().is_empty(), "nobody opened one yet");
    let mut keys = Vec::new();
    for _ in 0..7 {
        let key = AccountKey { user, account: AccountId::from_uuid(case.world.uuid()) };
        case.open(&Account::open(key, currency("EUR"), limit(0), None, case.world.now())).await;
        // Somebody else's account with the same id.
        let stranger = AccountKey { user: case.account_key().user, ..key };
        case.open(&Account::open(stranger, currency("EUR"), limit(0), None, case.world.now())).await;
        keys.push(key);
    }
    case.settled(&[case.deposit(keys[3], 42)]).await;
    keys.sort_unstable();
    let mut expected = Vec::new();
    for key in &keys {
        expected.push(case.account(*key).await.value);
    }
    for limit in [1, 2, 3, 7, 100] {
        let mut found: Vec<Account> = Vec::new();
        loop {
            let after = found.last().map(|account| account.key.account);
            let page = case.store.accounts.list(user, after, limit).await.unwrap();
            assert!(page.len() <= limit, "at most as many accounts as were asked for");
            if page.is_empty() {
                break;
            }
            found.extend(page);
            assert!(found.len() <= expected.len(), "each account once, but there were {}", found.len());
        }
        assert_eq!(found, expected, "each account once, by id, as it now is");
    }
}
