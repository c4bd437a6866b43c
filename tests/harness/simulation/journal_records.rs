//! Checks of journals: pages form one chain, and their decisions agree with the records.

use postonce_shared::testing::prelude::*;

use super::network::now;
use super::records::{AccountRecord, AuditRecords, Checked, ENTRIES_MAX, check, key_of};

impl AuditRecords {
    /// Checks the pages of the last change of the account.
    pub(super) fn new_pages(
        &mut self,
        raw: &Store,
        row: &Account,
        account: &mut AccountRecord,
        is_changed: bool,
    ) -> Checked {
        let from = account.sequence.saturating_add(1);
        let mut pages = now(raw.log.pages(row.key, from, ENTRIES_MAX)).map_err(|fault| fault.to_string())?;
        let later = decision_pages(raw, row.key)?
            .into_iter()
            .filter(|page| page.version > account.version || (is_changed && page.version == row.version));
        pages.extend(later);
        check(!is_changed || pages.len() == 1, || {
            format!("version {} of {} has {} pages", row.version, row.key, pages.len())
        })?;
        for page in &pages {
            check(is_changed && page.version == row.version, || {
                format!("{} has a new page of version {}, and version {}", row.key, page.version, row.version)
            })?;
            self.page(page, row, account)?;
        }
        Ok(())
    }

    fn page(&mut self, page: &JournalPage, row: &Account, account: &mut AccountRecord) -> Checked {
        let key = row.key;
        check(page.account == key && page.previous_hash == account.head, || {
            format!("the page from {} does not continue the journal of {key}", page.first_sequence)
        })?;
        for entry in &page.entries {
            self.entry(entry, key, account)?;
        }
        for decided in &page.decided {
            self.decided(decided, row)?;
        }
        account.head = page.hash;
        Ok(())
    }

    fn entry(&mut self, entry: &Entry, key: AccountKey, account: &mut AccountRecord) -> Checked {
        let transaction = key_of(key, &entry.partner, entry.message);
        let next = account.sequence.saturating_add(1);
        check(entry.sequence == next, || format!("entry {} of {key} is at position {next}", entry.sequence))?;
        let Some(record) = self.transactions.get_mut(&transaction) else {
            return Err(format!("{transaction} was posted, and was never accepted"));
        };
        check(record.entry.is_none(), || format!("{transaction} was posted twice"))?;
        check(record.outcome.is_none(), || format!("{transaction} was rejected and then posted"))?;
        let same = record.content.cents == entry.amount.minor_units()
            && record.content.deposit == (entry.kind == TransactionKind::Deposit)
            && record.content.reference.as_deref() == entry.details.reference();
        check(same, || {
            format!("{transaction} was accepted with {:?} and posted as {entry:?}", record.content)
        })?;
        let balance = account.balance.checked_add(record.content.signed()).expect("small sums");
        let after = entry.balance_after.minor_units();
        check(after == balance, || {
            format!("{transaction} gives the balance {balance}, and its entry has {after}")
        })?;
        let floor = account.overdraft.saturating_neg();
        check(record.content.deposit || balance >= floor, || {
            format!("{transaction} was posted with the balance {balance}, and the limit is {floor}")
        })?;
        let counter = entry.order_number.counter();
        check(!self.refused.contains(&counter), || {
            format!("the commit of {transaction} was answered as not written, and is written now")
        })?;
        record.entry = Some((entry.sequence, balance, counter));
        self.number(counter)?;
        account.balance = balance;
        account.sequence = next;
        account.balances.push(balance);
        Ok(())
    }

    fn decided(&mut self, decided: &Decided, row: &Account) -> Checked {
        match decided {
            Decided::Rejected(rejection) => {
                let key = key_of(row.key, &rejection.partner, rejection.message);
                let Some(record) = self.transactions.get_mut(&key) else {
                    return Err(format!("{key} is rejected in the journal, and was never accepted"));
                };
                let is_open =
                    record.entry.is_none() && record.rejection.is_none() && record.outcome.is_none();
                check(is_open, || format!("{key} is rejected in the journal, and was final: {record:?}"))?;
                record.rejection = Some((row.version, rejection.reason));
                Ok(())
            }
            Decided::Opened { currency, overdraft_limit, .. } => {
                let opened = (*currency, *overdraft_limit, 1);
                check(opened == (row.currency, row.overdraft_limit, row.version), || {
                    format!("{} was opened as {decided:?}, and is {row:?}", row.key)
                })
            }
            Decided::TermsChanged { status, overdraft_limit, holder, .. } => {
                let has_holder = holder.is_none() || *holder == row.holder;
                check(has_holder && (*status, *overdraft_limit) == (row.status, row.overdraft_limit), || {
                    format!("the terms of {} were changed to {decided:?}, and are {row:?}", row.key)
                })
            }
        }
    }

    /// Checks a journal from its start.
    pub fn whole_journal(&self, raw: &Store, account: AccountKey) -> Checked {
        let mut pages = now(raw.log.pages(account, 1, ENTRIES_MAX)).map_err(|fault| fault.to_string())?;
        pages.extend(decision_pages(raw, account)?);
        pages.sort_by_key(|page| page.version);
        let (mut head, mut count) = (PageHash::GENESIS, 0_u64);
        for page in &pages {
            check(page.previous_hash == head, || format!("the journal of {account} is not one chain"))?;
            head = page.hash;
            for entry in &page.entries {
                count = count.saturating_add(1);
                let record = self.transactions.get(&key_of(account, &entry.partner, entry.message));
                let position = record.and_then(|record| record.entry).map(|(sequence, _, _)| sequence);
                check(position == Some(entry.sequence) && entry.sequence == count, || {
                    format!("entry {} of {account} changed its position", entry.sequence)
                })?;
            }
        }
        let record = self.accounts.get(&account);
        check(record.is_some_and(|record| record.head == head && record.sequence == count), || {
            format!("the journal of {account} has another end than before")
        })
    }
}

/// Reads the pages of an account that have no entries.
fn decision_pages(raw: &Store, account: AccountKey) -> Result<Vec<JournalPage>, String> {
    let pages = now(raw.archive.stored_decision_pages(account, None, ENTRIES_MAX));
    let pages = pages.map_err(|fault| fault.to_string())?.items;
    pages.into_iter().map(|stored| stored.page.map_err(|damaged| damaged.to_string())).collect()
}
