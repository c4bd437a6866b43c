//! Books of the tests' own: what was asked for and what was answered, kept in plain maps, and held
//! against what the bank says in the end.
//!
//! The auditor repeats the invariants of the bank without using its rules:
//!
//! 1. Each transaction is final, once: on the statement or among the rejected, never both.
//! 2. What was promised is there, with the content that was asked for, and nothing else is.
//! 3. A final answer never changes.
//! 4. Sequences have no gap, balances add up from zero, and the journal is one chain of hashes.
//! 5. Order numbers are unique over all accounts, and their check digits are right.
//! 6. No withdrawal went further than the overdraft limit, and none was refused that the account
//!    could pay at that moment.

mod books;

use std::collections::{BTreeMap, BTreeSet};

use postonce_shared::domain::ids::{AccountKey, MessageId, OrderNumber};
use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::domain::journal::{JournalPage, PageHash};
use postonce_shared::ports::Store;
use serde_json::Value;

use crate::client::{Answer, Client, Wish};
use books::{Line, Refusal};

/// Findings that are printed.
const FINDINGS_PRINTED_MAX: usize = 20;
/// Lines asked for at once, so that listings of any length are paged.
const LISTING_LIMIT: u32 = 250;

/// What was asked for under one id, and what was heard about it.
#[derive(Debug)]
struct Noted {
    kind: TransactionKind,
    cents: i64,
    /// Some process answered 202 or 200.
    promised: bool,
    /// The first final answer.
    told: Option<Value>,
}

#[derive(Debug, Default)]
struct Tally {
    overdraft_cents: i64,
    wishes: BTreeMap<MessageId, Noted>,
}

/// Keeps the books of accounts in euro that one partner uses.
#[derive(Debug, Default)]
pub struct Auditor {
    accounts: BTreeMap<AccountKey, Tally>,
    contradictions: Vec<String>,
}

/// What an audit counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Audited {
    /// Transactions that moved money.
    pub posted: usize,
    /// Transactions that were refused for good.
    pub rejected: usize,
}

impl Auditor {
    /// Notes an account and how far it may be overdrawn.
    pub fn account(&mut self, account: AccountKey, overdraft_limit: &str) {
        let overdraft_cents = cents(overdraft_limit);
        drop(self.accounts.insert(account, Tally { overdraft_cents, wishes: BTreeMap::new() }));
    }

    /// Notes a wish, before it is sent: it may be done even if no answer ever comes.
    pub fn sent(&mut self, account: AccountKey, id: MessageId, wish: &Wish) {
        let amount = wish.body.get("amount").and_then(Value::as_str).expect("a wish with an amount");
        let tally = self.accounts.get_mut(&account).expect("an account that was noted");
        let noted = Noted { kind: wish.kind, cents: cents(amount), promised: false, told: None };
        let noted = tally.wishes.entry(id).or_insert(noted);
        assert!(noted.kind == wish.kind && noted.cents == cents(amount), "the id {id} was used twice");
    }

    /// Notes an answer about a wish. Answers other than 200 and 202 promise nothing. True when this is the
    /// first promise.
    pub fn heard(&mut self, account: AccountKey, id: MessageId, answer: &Answer) -> bool {
        if ![200, 202].contains(&answer.status) {
            return false;
        }
        let tally = self.accounts.get_mut(&account).expect("an account that was noted");
        let noted = tally.wishes.get_mut(&id).expect("a wish that was noted");
        let first = !std::mem::replace(&mut noted.promised, true);
        if !answer.is_final() {
            // Reads from different processes may overtake each other, but a final status stays.
            return first;
        }
        match &noted.told {
            None => noted.told = Some(answer.body.clone()),
            Some(told) if *told == answer.body => {}
            Some(told) => {
                self.contradictions.push(format!("transaction {id}: told {told}, then {}", answer.body));
            }
        }
        first
    }

    /// Whether a final answer was heard about a wish. Whoever asks after that must hear it again.
    pub fn was_told(&self, account: AccountKey, id: MessageId) -> bool {
        let noted = self.accounts.get(&account).and_then(|tally| tally.wishes.get(&id));
        noted.is_some_and(|noted| noted.told.is_some())
    }

    /// Sends a wish and notes both the wish and the answer.
    pub async fn submit(
        &mut self,
        client: &Client,
        account: AccountKey,
        id: MessageId,
        wish: &Wish,
    ) -> Answer {
        self.sent(account, id, wish);
        let answer = client.submit(account, id, wish).await;
        self.heard(account, id, &answer);
        answer
    }

    /// The accounts, in order.
    pub fn accounts(&self) -> Vec<AccountKey> {
        self.accounts.keys().copied().collect()
    }

    /// Compares everything. All work must be final by now.
    ///
    /// # Panics
    /// When bank and books disagree, with what was found.
    pub async fn audit(&self, client: &Client, store: &Store) -> Audited {
        let (audited, mut findings) = self.compare(client, store).await;
        let count = findings.len();
        findings.truncate(FINDINGS_PRINTED_MAX);
        assert!(count == 0, "the auditor has {count} findings:\n{}", findings.join("\n"));
        audited
    }

    /// Compares everything; says what was counted and what was found.
    pub async fn compare(&self, client: &Client, store: &Store) -> (Audited, Vec<String>) {
        let mut audited = Audited::default();
        let mut findings = self.contradictions.clone();
        let mut numbers = BTreeSet::new();
        for (account, tally) in &self.accounts {
            let book = Book::read(client, store, *account).await;
            book.check(tally, &mut numbers, &mut findings);
            audited.posted = audited.posted.saturating_add(book.lines.len());
            audited.rejected = audited.rejected.saturating_add(book.refusals.len());
        }
        (audited, findings)
    }
}

/// What the bank says about one account.
struct Book {
    account: AccountKey,
    balance: i64,
    lines: Vec<Line>,
    refusals: Vec<Refusal>,
    open: usize,
    pages: Vec<JournalPage>,
    head: PageHash,
}

impl Book {
    async fn read(client: &Client, store: &Store, account: AccountKey) -> Self {
        let statement = client.listing(account, None, LISTING_LIMIT).await;
        let rejected = client.listing(account, Some("rejected"), LISTING_LIMIT).await;
        let open = client.listing(account, Some("accepted"), LISTING_LIMIT).await.len();
        let balance = cents(&client.balance(account).await);
        let lines: Vec<Line> = statement.iter().map(Line::read).collect();
        let pages = store.log.pages(account, 1, lines.len()).await.expect("the journal can be read");
        let stored = store.ledger.account(account).await.expect("the account can be read");
        let head = stored.expect("the account exists").value.head;
        let refusals = rejected.iter().map(Refusal::read).collect();
        Self { account, balance, lines, refusals, open, pages, head }
    }

    fn check(&self, tally: &Tally, numbers: &mut BTreeSet<OrderNumber>, findings: &mut Vec<String>) {
        let mut find = |finding: String| findings.push(format!("account {}: {finding}", self.account));
        if self.open > 0 {
            find(format!("{} transactions are still only accepted", self.open));
        }
        self.check_wishes(tally, &mut find);
        self.check_sums(tally, &mut find);
        self.check_refusals(tally, &mut find);
        self.check_chain(&mut find);
        for line in &self.lines {
            if !numbers.insert(line.order_number) {
                find(format!("order number {} was issued twice", line.order_number));
            }
        }
    }

    /// Invariants 1, 2 and 3.
    fn check_wishes(&self, tally: &Tally, find: &mut impl FnMut(String)) {
        let mut seen = BTreeSet::new();
        let lines = self.lines.iter().map(|line| (line.id, line.kind, line.cents, &line.body));
        let refusals =
            self.refusals.iter().map(|refusal| (refusal.id, refusal.kind, refusal.cents, &refusal.body));
        for (id, kind, cents, body) in lines.chain(refusals) {
            if !seen.insert(id) {
                find(format!("transaction {id} is final more than once"));
            }
            match tally.wishes.get(&id) {
                None => find(format!("nobody asked for transaction {id}")),
                Some(noted) if (noted.kind, noted.cents) != (kind, cents) => {
                    find(format!("transaction {id} is {kind:?} {cents}, asked for was {noted:?}"));
                }
                Some(Noted { told: Some(told), .. }) if told != body => {
                    find(format!("transaction {id} was told as {told} and is {body}"));
                }
                Some(_) => {}
            }
        }
        for (id, noted) in &tally.wishes {
            if noted.promised && !seen.contains(id) {
                find(format!("transaction {id} was promised and is nowhere"));
            }
        }
    }

    /// Invariants 4 (sums) and 6 (limits).
    fn check_sums(&self, tally: &Tally, find: &mut impl FnMut(String)) {
        let mut running: i64 = 0;
        for (line, sequence) in self.lines.iter().zip(1_u64..) {
            running = line.apply_to(running);
            if line.sequence != sequence {
                find(format!("entry {} stands at place {sequence}", line.sequence));
            }
            if line.balance_after != running {
                find(format!("after entry {sequence} the balance is {}, not {running}", line.balance_after));
            }
            if line.kind == TransactionKind::Withdrawal && overdrawn(running, tally) {
                find(format!("entry {sequence} overdraws the account to {running}"));
            }
        }
        if self.balance != running {
            find(format!("the balance is {}, the entries make {running}", self.balance));
        }
    }

    /// Invariant 6: a refusal was decided between two entries, or at the moment of one; in at least
    /// one of the balances around it the account could not pay.
    fn check_refusals(&self, tally: &Tally, find: &mut impl FnMut(String)) {
        for refusal in self.refusals.iter().filter(|refusal| refusal.reason == "insufficient_funds") {
            let before = std::iter::once((0, i64::MIN));
            let states = before.chain(self.lines.iter().map(|line| (line.balance_after, line.posted_at_ms)));
            let ends = self.lines.iter().map(|line| line.posted_at_ms).chain(std::iter::once(i64::MAX));
            let mut around = states
                .zip(ends)
                .filter(|((_, from), until)| (*from..=*until).contains(&refusal.rejected_at_ms))
                .map(|((balance, _), _)| balance);
            let after = |balance: i64| balance.checked_sub(refusal.cents).expect("small sums");
            if !around.any(|balance| overdrawn(after(balance), tally)) {
                find(format!("withdrawal {} was refused, but could be paid", refusal.id));
            }
        }
    }

    /// Invariant 4: the chain, read past the API.
    fn check_chain(&self, find: &mut impl FnMut(String)) {
        let mut previous = PageHash::GENESIS;
        let mut entries = 0;
        for page in &self.pages {
            if let Err(flaw) = page.check() {
                find(flaw.to_string());
            }
            if page.account != self.account || page.previous_hash != previous {
                find(format!("the page from {} does not continue the chain", page.first_sequence));
            }
            previous = page.hash;
            for entry in &page.entries {
                let line = self.lines.get(entries);
                if line.is_none_or(|line| !line.is(entry)) {
                    find(format!("the statement has {line:?} where the journal has {entry:?}"));
                }
                entries = entries.saturating_add(1);
            }
        }
        if entries != self.lines.len() {
            find(format!("the journal has {entries} entries, the statement {}", self.lines.len()));
        }
        if previous != self.head {
            find("the account does not name the last page of its journal".to_owned());
        }
    }
}

fn overdrawn(balance: i64, tally: &Tally) -> bool {
    balance.checked_add(tally.overdraft_cents).expect("small sums") < 0
}

/// An amount in euro, read without the code under test.
pub fn cents(amount: &str) -> i64 {
    let (whole, decimals) = amount.split_once('.').unwrap_or((amount, ""));
    assert!(decimals.len() <= 2, "{amount} is not in euro");
    let digits = format!("{whole}{decimals:0<2}");
    digits.parse().unwrap_or_else(|_| panic!("{amount} is not an amount"))
}

#[cfg(test)]
mod tests;
