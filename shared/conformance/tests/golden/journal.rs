//! The journal of one account with each kind of decision.

use std::collections::BTreeMap;

use postonce_shared::adapters::page_body;
use postonce_shared::domain::decision::{Submission, decide, discard, open};
use postonce_shared::testing::prelude::*;
use uuid::Uuid;

use super::{Lines, at};

fn nonce(number: u128) -> Nonce {
    Nonce::from_uuid(Uuid::from_u128(number))
}

pub fn euro() -> Currency {
    Currency::parse("EUR").unwrap()
}

pub fn account_key() -> AccountKey {
    AccountKey {
        user: UserId::from_uuid(Uuid::from_u128(0x11)),
        account: AccountId::from_uuid(Uuid::from_u128(0x22)),
    }
}

/// Work with each optional member, or with none.
pub fn work(number: u128, kind: TransactionKind, cents: i64, details: Details) -> Work {
    Work {
        submission: Submission {
            key: TransactionKey {
                account: account_key(),
                partner: PartnerId::parse("shop").unwrap(),
                message: MessageId::from_uuid(Uuid::from_u128(number)),
            },
            instruction: Instruction { kind, amount: Amount::try_new(cents, euro()).unwrap(), details },
            accepted_at: at(1),
            origin: Origin::default(),
            batch_line: None,
        },
        row: Revision::new("W/\"7\""),
        delivered: None,
    }
}

pub fn full_details() -> Details {
    let metadata = BTreeMap::from([("invoice".to_owned(), "R-1 \u{e9}".to_owned())]);
    Details::from_stored(Some("rent \"May\"".to_owned()), metadata, r#"{"purpose":[1.50]}"#.to_owned())
}

/// Decides one page after the other, and adds the content and the hash of each.
struct Journal<'a> {
    account: Account,
    lines: &'a mut Lines,
}

impl Journal<'_> {
    fn versioned(&self) -> Versioned<Account> {
        Versioned { value: self.account.clone(), revision: Revision::new("1") }
    }

    fn add(&mut self, after: Account, page: &JournalPage) {
        let name = format!("page {}", after.version);
        assert_eq!((page.check(), page.hash), (Ok(()), after.head));
        self.lines.add(&name, page_body::encode(page));
        self.lines.add(&format!("hash of {name}"), page.hash);
        self.account = after;
    }

    fn commit(&mut self, commit: AccountCommit) {
        self.add(commit.after, &commit.page);
    }

    fn decision(&mut self, decision: AccountDecision) {
        self.add(decision.after, &decision.page);
    }

    fn change(&mut self, status: AccountStatus, holder: Option<Holder>) {
        let overdraft_limit = OverdraftLimit::try_new(700, euro()).unwrap();
        let terms = NewTerms { overdraft_limit, status, holder };
        let context = context_of_terms(self.account.version.into());
        self.decision(change_terms(&self.account, terms, &context).unwrap());
    }
}

fn context_of_terms(number: u128) -> TermsContext {
    TermsContext { nonce: nonce(number), now: at(3) }
}

fn context(number: u128, numbers: &[OrderNumber]) -> DecisionContext<'_> {
    DecisionContext { nonce: nonce(number), now: at(4), numbers }
}

fn holder(given: &str) -> Option<Holder> {
    Some(Holder { given_name: given.to_owned(), family_name: "Byron".to_owned() })
}

/// Returns the account after its last page.
pub fn add(lines: &mut Lines) -> Account {
    let limit = OverdraftLimit::try_new(500, euro()).unwrap();
    let account = Account::open(account_key(), euro(), limit, holder("Ada"), at(0));
    let mut journal = Journal { account: account.clone(), lines };
    journal.decision(open(account, &context_of_terms(1)));
    let numbers = [1_000_000, 1_000_001, 1_000_002, 1_000_003].map(OrderNumber::from_counter);
    let accepted = [
        work(1, TransactionKind::Deposit, 1250, full_details()),
        work(2, TransactionKind::Withdrawal, 999_999, Details::default()),
    ];
    let new = [work(3, TransactionKind::Withdrawal, 1300, Details::default()).submission];
    let context = context(2, &numbers);
    let decided = decide(&journal.versioned(), pending(&accepted, &new), &context);
    journal.commit(decided);
    let refused = [work(4, TransactionKind::Withdrawal, 999_999, full_details())];
    let decided = decide(&journal.versioned(), pending(&refused, &[]), &context);
    journal.commit(decided);
    let discarded = [work(5, TransactionKind::Deposit, 1, Details::default())];
    let decided = discard(&journal.versioned(), pending(&discarded, &[]), &context);
    journal.commit(decided);
    journal.change(AccountStatus::Frozen, None);
    journal.change(AccountStatus::Open, holder("Augusta"));
    journal.account
}
