//! The independent auditor: keeps books of its own, in plain maps and with none of the bank's rules,
//! and compares them with the store after every single write. The first finding ends the run, so a
//! failure shows the first wrong step and not its consequences.
//!
//! What it holds against the bank, by the number of the invariant:
//!
//! 1. An entry is of a transaction that was accepted and is not final; its row says the same.
//! 2. Whoever gets a promise has a row in the log, and work on a queue or in an open dead letter,
//!    until it is final. In the end everything promised is final.
//! 3. A final row never changes, and nobody is told another outcome.
//! 4. A row keeps the content that was asked for first; other content under its key is refused.
//! 5. Every version of an account has the sum of its entries as its balance; entries follow one
//!    another, pages are chained; a withdrawal goes no further than the limit, and is refused only
//!    where the account could not pay at that version.
//! 6. An order number is handed out once, and lies below what the register says is reserved.
//!
//! And of the gate: who started while it was held, or acknowledged the hold, does not receive.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use postonce_shared::domain::decision::AccountCommit;
use postonce_shared::domain::ids::{AccountKey, OrderNumber, PartnerId, TransactionKey};
use postonce_shared::domain::instruction::Instruction;
use postonce_shared::domain::transaction::Transaction;
use postonce_shared::ports::Store;
use postonce_shared::ports::dead_letters::DeadLetter;
use postonce_shared::ports::ledger::{NewTransaction, StoredTransaction};
use postonce_shared::ports::queue::{Message, QueueName};
use postonce_shared::protocol::accept::{Acceptance, Accepted};
use serde_json::Value;

use super::books::{Books, Content};
use super::network::now;
use super::scheduler::Life;

/// The gate as the auditor knows it.
#[derive(Debug, Default)]
struct GateNote {
    held: bool,
    epoch: u64,
    /// The youngest life when it was held.
    youngest: Option<Life>,
    acknowledged: BTreeMap<Life, u64>,
}

#[derive(Debug, Default)]
struct State {
    books: Books,
    gate: GateNote,
    youngest: Option<Life>,
    findings: Vec<String>,
}

/// Watches a store.
#[derive(Debug, Default)]
pub struct Auditor(Mutex<State>);

impl Auditor {
    /// What is wrong, if anything is.
    pub fn finding(&self) -> Option<String> {
        self.0.lock().findings.first().cloned()
    }

    /// Adds a finding of somebody else.
    pub fn find(&self, finding: String) {
        self.0.lock().findings.push(finding);
    }

    fn look(&self, look: impl FnOnce(&mut Books) -> Result<(), String>) {
        let mut state = self.0.lock();
        let State { books, findings, .. } = &mut *state;
        if let Err(finding) = look(books) {
            findings.push(finding);
        }
    }

    /// A client sends this, or will.
    pub fn asked(&self, key: &TransactionKey, instruction: &Instruction) {
        self.look(|books| {
            books.asked(key, Content::of(instruction));
            Ok(())
        });
    }

    /// A process gives this answer.
    pub fn answered(&self, key: &TransactionKey, instruction: &Instruction, answer: &Acceptance) {
        let content = Content::of(instruction);
        self.look(|books| match answer {
            Acceptance::Accepted(Accepted { transaction, .. }) => books.promised(key, &content, transaction),
            Acceptance::KeyReused => books.refused_as_reused(key, &content),
            // It may be opened at this moment.
            Acceptance::AccountUnknown => Ok(()),
            Acceptance::CurrencyMismatch { .. } => {
                Err(format!("{key} was refused for its currency, which is the account's"))
            }
        });
    }

    /// A process showed this transaction to a client.
    pub fn shown(&self, transaction: &Transaction) {
        self.look(|books| books.shown(transaction));
    }

    /// An accept took place.
    pub fn accepted(&self, raw: &Store, group: &[NewTransaction]) {
        self.look(|books| group.iter().try_for_each(|new| books.row(&new.key, row(raw, &new.key))));
    }

    /// A commit took place, or was refused.
    pub fn committed(&self, raw: &Store, commit: &AccountCommit) {
        self.look(|books| {
            books.account(raw, commit.account())?;
            commit.finalizations.iter().try_for_each(|one| books.row(&one.key, row(raw, &one.key)))
        });
    }

    /// A row was marked.
    pub fn marked(&self, raw: &Store, key: &TransactionKey) {
        self.look(|books| books.row(key, row(raw, key)));
    }

    /// The terms of an account were changed, or it was opened.
    pub fn changed(&self, raw: &Store, account: AccountKey) {
        self.look(|books| books.account(raw, account));
    }

    /// A message was put on a queue.
    pub fn sent(&self, body: &[u8]) {
        self.look(|books| {
            books.work.sent(keys_in(body));
            Ok(())
        });
    }

    /// The adversary has these transactions in its hands: their work need not be anywhere from now on, until
    /// repair sends it again. In the end they are final like all others.
    pub fn touched(&self, body: &[u8]) {
        self.look(|books| {
            books.touched(keys_in(body));
            Ok(())
        });
    }

    /// Somebody is about to receive.
    pub fn receives(&self, life: Life) {
        let mut state = self.0.lock();
        let State { gate, findings, .. } = &mut *state;
        let acknowledged = gate.acknowledged.get(&life).is_some_and(|epoch| *epoch >= gate.epoch);
        let started_later = gate.youngest.is_some_and(|youngest| life > youngest);
        if gate.held && (acknowledged || started_later) {
            findings.push(format!(
                "process {} receives while the gate is held (epoch {}; it {})",
                life.number(),
                gate.epoch,
                if acknowledged { "acknowledged that" } else { "started later" }
            ));
        }
    }

    /// A message was received.
    pub fn received(&self, message: &Message) {
        self.look(|books| {
            books.work.seen(&message.lease.message_id, keys_in(&message.body));
            Ok(())
        });
    }

    /// A message got another body.
    pub fn extended(&self, id: &str, body: &[u8]) {
        self.look(|books| {
            let gone = books.work.changed(id, keys_in(body));
            books.still_somewhere(&gone, "its message was changed")
        });
    }

    /// A message was deleted.
    pub fn deleted(&self, id: &str) {
        self.look(|books| {
            let gone = books.work.deleted(id);
            books.still_somewhere(&gone, "its message was deleted")
        });
    }

    /// A dead letter was kept.
    pub fn set_aside(&self, letter: &DeadLetter) {
        self.look(|books| {
            books.work.set_aside(&letter.id, keys_in(&letter.body));
            Ok(())
        });
    }

    /// A dead letter was taken out.
    pub fn resolved(&self, raw: &Store, id: &str) {
        let open = now(raw.dead_letters.find(id)).ok().flatten().is_some_and(|it| it.resolution.is_none());
        if open {
            return;
        }
        self.look(|books| {
            let gone = books.work.resolved(id);
            books.still_somewhere(&gone, "its dead letter was resolved")
        });
    }

    /// An order number was handed out.
    pub fn drawn(&self, number: OrderNumber) {
        self.look(|books| books.number(number.counter()));
    }

    /// A shared value was written, or was not.
    pub fn swapped(&self, raw: &Store, name: &str) {
        let value = now(raw.sync.get(name)).ok().flatten().map(|standing| standing.value);
        let Some(value) = value.and_then(|value| serde_json::from_str::<Value>(&value).ok()) else { return };
        let mut state = self.0.lock();
        let State { books, gate, youngest, .. } = &mut *state;
        match name {
            "gate" => {
                let held = value["state"] == "held";
                let epoch = value["epoch"].as_u64().unwrap_or(0);
                if epoch != gate.epoch {
                    (gate.held, gate.epoch, gate.youngest) = (held, epoch, *youngest);
                }
            }
            "order-numbers" => {
                let next = value["next"].as_str().and_then(|next| next.parse().ok());
                books.reserved_below = next.unwrap_or(books.reserved_below);
            }
            _ => {}
        }
    }

    /// A life begins.
    pub fn born(&self, life: Life) {
        self.0.lock().youngest = Some(life);
    }

    /// A process says which epoch of the gate it obeys.
    pub fn acknowledged(&self, life: Life, epoch: u64) {
        self.0.lock().gate.acknowledged.insert(life, epoch);
    }

    /// What was promised and is not final yet.
    pub fn owed(&self) -> Vec<TransactionKey> {
        self.0.lock().books.owed().cloned().collect()
    }

    /// Reads the whole store again, in the end.
    pub fn close(&self, raw: &Store, queues: &[QueueName]) {
        self.look(|books| {
            if let Some(key) = books.owed().next() {
                return Err(format!("{key} was promised and never became final"));
            }
            for account in books.accounts() {
                books.account(raw, account)?;
                books.whole_journal(raw, account)?;
            }
            for key in books.transactions() {
                books.row(&key, row(raw, &key))?;
            }
            for queue in queues {
                let depth = now(raw.queue.backlog(queue)).map_err(|fault| fault.to_string())?.depth;
                if depth > 0 {
                    return Err(format!("{depth} message(s) were never settled in {queue}"));
                }
            }
            Ok(())
        });
    }

    /// Transactions that were posted and rejected.
    pub fn outcomes(&self) -> (u64, u64) {
        self.0.lock().books.outcomes()
    }
}

fn row(raw: &Store, key: &TransactionKey) -> Option<StoredTransaction> {
    now(raw.ledger.transaction(key)).ok().flatten()
}

/// The transactions in the body of a message, read without the bank's own reader.
fn keys_in(body: &[u8]) -> Vec<TransactionKey> {
    let envelope: Value = serde_json::from_slice(body).unwrap_or_default();
    let items = envelope["items"].as_array().cloned().unwrap_or_default();
    let key = |item: &Value| {
        let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        Some(TransactionKey {
            account: AccountKey { user: text("u").parse().ok()?, account: text("c").parse().ok()? },
            partner: PartnerId::parse(&text("p")).ok()?,
            message: text("m").parse().ok()?,
        })
    };
    items.iter().filter_map(key).collect()
}
