//! Tests of opening, changing and listing accounts.

use std::sync::Arc;

use super::case::{Case, currency, forged_revisions, moment};
use postonce_shared::testing::prelude::*;

/// Tests an implementation of [`postonce_shared::ports::ledger::Accounts`].
pub async fn accounts_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    an_account_is_read_as_it_was_opened(&case().await).await;
    opening_twice_returns_the_first(&case().await).await;
    concurrent_calls_create_one_account(&case().await).await;
    the_same_account_id_of_another_user_is_another_account(&case().await).await;
    a_change_needs_its_guard(&case().await).await;
    a_change_keeps_balance_and_journal(&case().await).await;
    a_change_of_the_holder_replaces_it_and_others_keep_it(&case().await).await;
    a_change_makes_earlier_reads_stale(&case().await).await;
    a_change_and_a_commit_exclude_each_other(&case().await).await;
    the_accounts_of_a_user_are_listed_page_by_page(&case().await).await;
}

fn limit(cents: i64) -> OverdraftLimit {
    OverdraftLimit::try_new(cents, currency("EUR")).unwrap()
}

async fn an_account_is_read_as_it_was_opened(case: &Case) {
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
        let opened = Account { head: created.value.head, ..account };
        assert_eq!(created.value, opened, "open returns the created account");
        case.assert_chain(&created.value).await;
        let account = opened;
        assert_eq!(case.account(account.key).await, created, "the account is read as it was opened");
        let listed = case.store.accounts.list(account.key.user, None, 10).await.unwrap();
        assert_eq!(listed, [account], "the account is in the list of its user");
    }
}

async fn opening_twice_returns_the_first(case: &Case) {
    let first = case.opened().await;
    let key = first.value.key;
    let other = Account::open(key, currency("USD"), limit(500), None, moment(0));
    let answer = case.store.accounts.open(&opening(other.clone())).await.unwrap();
    assert_eq!(answer, Opened::Existing(first), "the first content is kept");
    case.settled(&[case.deposit(key, 100)]).await;
    let now = case.account(key).await;
    assert_eq!(now.value.balance.minor_units(), 100, "the account is in use");
    let answer = case.store.accounts.open(&opening(other.clone())).await.unwrap();
    assert_eq!(answer, Opened::Existing(now.clone()), "the current state of an existing account is returned");
    assert_eq!(case.account(key).await, now, "opening again changes nothing");
}

async fn concurrent_calls_create_one_account(case: &Case) {
    for _ in 0..10 {
        let key = case.account_key();
        let steps = (1..=5).map(|cents| {
            let accounts = Arc::clone(&case.store.accounts);
            let account = Account::open(key, currency("EUR"), limit(cents), None, moment(cents));
            async move { accounts.open(&opening(account)).await.unwrap() }
        });
        let answers = case.concurrently(steps).await;
        let stored = case.account(key).await;
        let made = answers.iter().filter(|answer| matches!(answer, Opened::Created(_))).count();
        assert_eq!(made, 1, "exactly one of several concurrent calls creates the account");
        for answer in answers {
            let (Opened::Created(returned) | Opened::Existing(returned)) = answer;
            assert_eq!(returned, stored, "all calls return the created account");
        }
    }
}

async fn the_same_account_id_of_another_user_is_another_account(case: &Case) {
    let one = case.opened().await;
    let user = UserId::from_uuid(case.world.uuid());
    let key = AccountKey { user, account: one.value.key.account };
    assert_eq!(case.store.ledger.account(key).await.unwrap(), None, "account ids are unique per user only");
    case.open(&Account::open(key, currency("USD"), limit(0), None, moment(1))).await;
    assert_eq!(case.account(one.value.key).await, one, "the account of the other user is unchanged");
}

async fn a_change_needs_its_guard(case: &Case) {
    let opened = case.opened().await;
    let after = case.changed(&opened.value, limit(700), AccountStatus::Closed);
    let revision = case.store.accounts.change(&opened.revision, &after).await.unwrap();
    let revision = revision.expect("the guard holds");
    let changed = Versioned { value: after.after, revision };
    assert_eq!(case.account(opened.value.key).await, changed, "status, limit and version are replaced");
    assert_ne!(changed.revision, opened.revision, "a change has a new revision");

    let late = case.changed(&opened.value, limit(1), AccountStatus::Open);
    let answer = case.store.accounts.change(&opened.revision, &late).await.unwrap();
    assert_eq!(answer, None, "the guard does not hold any more");
    assert_eq!(case.account(opened.value.key).await, changed, "a refused change writes nothing");

    for forged in forged_revisions() {
        let answer = case.store.accounts.change(&forged, &late).await.unwrap();
        assert_eq!(answer, None, "{forged:?} is not a revision");
    }
    assert_eq!(case.account(opened.value.key).await, changed, "a refused change writes nothing");

    let reopened = case.changed(&changed.value, limit(0), AccountStatus::Open);
    let answer = case.store.accounts.change(&changed.revision, &reopened).await.unwrap();
    assert!(answer.is_some(), "the revision of a change is the guard of the next one");

    let unknown = Account { key: case.account_key(), ..late.after };
    let unknown = case.changed(&unknown, limit(1), AccountStatus::Open);
    let answer = case.store.accounts.change(&opened.revision, &unknown).await.unwrap();
    assert_eq!(answer, None, "an account that was never opened cannot be changed");
    assert_eq!(
        case.store.ledger.account(unknown.after.key).await.unwrap(),
        None,
        "a refused change creates no account"
    );
}

async fn a_change_keeps_balance_and_journal(case: &Case) {
    let key = case.opened().await.value.key;
    case.settled(&[case.deposit(key, 1_234)]).await;
    let before = case.account(key).await;
    // Other fields of the argument are not written.
    let change = case.changed(&before.value, limit(50), AccountStatus::Open);
    let believed = Account {
        balance: Balance::zero(currency("EUR")),
        sequence: 0,
        head: PageHash::GENESIS,
        opened_at: moment(99),
        ..change.after.clone()
    };
    let believed = AccountDecision { after: believed, page: change.page };
    let answer = case.store.accounts.change(&before.revision, &believed).await.unwrap();
    assert!(answer.is_some(), "the guard holds");
    let after = case.account(key).await.value;
    let expected =
        Account { overdraft_limit: limit(50), version: before.value.version + 1, ..before.value.clone() };
    let expected = Account { head: change.after.head, ..expected };
    assert_eq!(after, expected, "a change replaces status, limit, version and head, and nothing else");
    let next = case.settled(&[case.withdrawal(key, 1_284)]).await;
    assert_eq!(next.after.balance.minor_units(), -50, "the next decision uses the balance and the new limit");
    case.assert_chain(&next.after).await;
}

async fn a_change_of_the_holder_replaces_it_and_others_keep_it(case: &Case) {
    let opened = case.opened().await;
    let key = opened.value.key;
    for name in ["Ada", "Grace"] {
        let before = case.account(key).await;
        let holder = Holder { given_name: name.to_owned(), family_name: "Ünïcode O'Neil".to_owned() };
        let terms = NewTerms {
            overdraft_limit: before.value.overdraft_limit,
            status: AccountStatus::Frozen,
            holder: Some(holder),
        };
        let change = change_terms(&before.value, terms, &case.terms_context()).unwrap();
        case.store.accounts.change(&before.revision, &change).await.unwrap().expect("the guard holds");
        let after = case.account(key).await;
        assert_eq!(after.value, change.after, "a new holder");
        let change = case.changed(&after.value, limit(7), AccountStatus::Open);
        case.store.accounts.change(&after.revision, &change).await.unwrap().expect("the guard holds");
        assert_eq!(case.account(key).await.value, change.after, "the holder stays");
        let commit = case.settled(&[case.deposit(key, 1)]).await;
        case.assert_chain(&commit.after).await;
        assert_eq!(case.account(key).await.value.holder, change.after.holder, "also after a commit");
    }
}

async fn a_change_makes_earlier_reads_stale(case: &Case) {
    let opened = case.opened().await;
    let key = opened.value.key;
    let work = case.accepted(&[case.deposit(key, 1)]).await;
    let closed = case.changed(&opened.value, limit(0), AccountStatus::Closed);
    case.store.accounts.change(&opened.revision, &closed).await.unwrap().expect("the guard holds");
    let before = case.all_rows(key).await;
    let answer = case.store.ledger.commit(&case.decided(&opened, &work)).await.unwrap();
    assert_eq!(answer, Committed::Stale, "a change of the account makes earlier commits stale");
    assert_eq!(case.all_rows(key).await, before, "a stale commit writes nothing");
}

async fn a_change_and_a_commit_exclude_each_other(case: &Case) {
    let key = case.opened().await.value.key;
    let mut balance = 0;
    for round in 1..=15 {
        let account = case.account(key).await;
        let work = case.accepted(&[case.deposit(key, 10)]).await;
        let commit = case.decided(&account, &work);
        let after = case.changed(&account.value, limit(round), AccountStatus::Open);
        let (accounts, ledger) = (Arc::clone(&case.store.accounts), Arc::clone(&case.store.ledger));
        let guard = account.revision.clone();
        let (changed, answer) = futures::join!(
            case.concurrently([async move { accounts.change(&guard, &after).await.unwrap().is_some() }]),
            case.concurrently([async move { ledger.commit(&commit).await.unwrap() }]),
        );
        let is_posted = matches!(answer[0], Committed::Done { .. });
        assert!(changed[0] != is_posted, "exactly one of change and commit succeeds");
        balance += if is_posted { 10 } else { 0 };
        let now = case.account(key).await;
        assert_eq!(now.value.balance.minor_units(), balance, "a change does not affect the balance");
        assert_eq!(now.value.overdraft_limit == limit(round), changed[0], "a refused change has no effect");
        case.assert_chain(&now.value).await;
        if !is_posted {
            case.committed(&case.decided(&now, &work)).await;
            balance += 10;
        }
    }
}

async fn the_accounts_of_a_user_are_listed_page_by_page(case: &Case) {
    let user = UserId::from_uuid(case.world.uuid());
    assert!(case.store.accounts.list(user, None, 5).await.unwrap().is_empty(), "the user has no account");
    let mut keys = Vec::new();
    for _ in 0..7 {
        let key = AccountKey { user, account: AccountId::from_uuid(case.world.uuid()) };
        case.open(&Account::open(key, currency("EUR"), limit(0), None, case.world.now())).await;
        // An account of another user with the same id.
        let other_account = AccountKey { user: case.account_key().user, ..key };
        case.open(&Account::open(other_account, currency("EUR"), limit(0), None, case.world.now())).await;
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
            assert!(page.len() <= limit, "a page has at most `limit` accounts");
            if page.is_empty() {
                break;
            }
            found.extend(page);
            assert!(
                found.len() <= expected.len(),
                "each account is listed once, but there were {}",
                found.len()
            );
        }
        assert_eq!(found, expected, "each account is listed once, by id, in its current state");
    }
}
