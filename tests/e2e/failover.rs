//! The storage goes back in time, as after a failover to a region to which not everything was copied: the written
//! procedure (web/OPERATIONS.md, "When the storage went back in time") with tables of Azurite that are replaced by older copies.

use std::collections::BTreeSet;

use futures::future::join_all;
use postonce_shared::domain::ids::{AccountKey, MessageId};
use postonce_tests::prelude::*;
use postonce_tests::verify::verify;
use serde_json::{Value, json};

use super::backup::{Ended, run};

/// Number of accounts.
const ACCOUNTS: usize = 12;
/// Deposits to each account, before the copies and after them.
const DEPOSITS: usize = 5;
/// The web process and the worker.
const LISTENERS: usize = 2;
/// What the operator gives to the command, besides its confirmations.
const ADVANCE: [&str; 8] =
    ["order-numbers", "advance", "--window-s", "60", "--postings-per-second", "1000", "--processes", "4"];

/// The tables whose rows are older than the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Older {
    /// The register of order numbers and the gate.
    State,
    /// These, and the ledger.
    StateAndLedger,
    /// The register is missing.
    NoRegister,
}

#[tokio::test]
async fn an_older_register_and_gate_repeat_no_order_number() {
    goes_back(Older::State).await;
}

#[tokio::test]
async fn an_older_ledger_repeats_no_order_number() {
    goes_back(Older::StateAndLedger).await;
}

#[tokio::test]
async fn a_missing_register_stops_posting_until_it_is_advanced() {
    goes_back(Older::NoRegister).await;
}

async fn goes_back(older: Older) {
    let mut bank = Plan::on(StoreKind::Azurite).processes(1, 1).start().await;
    bank.until_workers_ready().await;
    let accounts: Vec<AccountKey> = (0..ACCOUNTS).map(|_| fresh_account()).collect();
    let client = bank.client(0);
    join_all(accounts.iter().map(|account| client.open(*account))).await;
    let before = deposit_to_all(&client, &accounts).await;
    let (state, ledger) = copies(&bank).await;
    drop(client.hold(LISTENERS).await);
    drop(client.release(LISTENERS).await);
    let lost_window = deposit_to_all(&client, &accounts).await;
    kill_all(&mut bank).await;
    put_back(&bank, older, &state, &ledger).await;

    let stopped = match older {
        Older::NoRegister => Some(posting_is_stopped(&mut bank, accounts[0]).await),
        Older::State | Older::StateAndLedger => None,
    };
    advance(&bank).await;
    start(&mut bank).await;
    let client = bank.client(0);
    let gate = client.get("/v1/admin/gate").await.expect(200);
    assert_eq!(gate.text_at("/state"), "held", "{gate:?}");
    assert!(gate.number_at("/epoch") >= 1_000_000, "{gate:?}");
    let audit = verify(&bank, &[]).await;
    assert_eq!(audit.code, Some(0), "{older:?}: {:#?}", audit.lines);
    drop(bank.operate(&["recover"]));
    drop(client.release(LISTENERS).await);

    // Partners repeat what was acknowledged in the lost window, and send new requests.
    let repeated = join_all(lost_window.iter().map(async |(account, id, _)| {
        let answer = client.submit_and_wait(*account, *id, &Submission::deposit("1.00")).await;
        (*account, *id, number_of(&answer))
    }));
    let repeated = repeated.await;
    let after = deposit_to_all(&client, &accounts).await;
    let numbers =
        |posted: &[Posted]| posted.iter().map(|(.., number)| number.clone()).collect::<BTreeSet<_>>();
    let told: BTreeSet<String> =
        [&before, &lost_window].into_iter().flat_map(|posted| numbers(posted)).collect();
    assert_eq!(told.len(), 2 * ACCOUNTS * DEPOSITS);
    assert!(numbers(&after).is_disjoint(&told), "a number is issued again");
    if older == Older::StateAndLedger {
        assert!(numbers(&repeated).is_disjoint(&told), "a number of the lost window is issued again");
    } else {
        assert_eq!(numbers(&repeated), numbers(&lost_window), "the ledger has them");
    }
    if let Some(id) = stopped {
        // After a visibility timeout: the worker that had its message was killed.
        assert_eq!(client.until_final(accounts[0], id).await.transaction_status(), "posted");
    }
    for (number, account) in accounts.iter().enumerate() {
        let expected = if stopped.is_some() && number == 0 { "16.00" } else { "15.00" };
        assert_eq!(client.balance(*account).await, expected, "each deposit once");
    }
    let audit = verify(&bank, &[]).await;
    assert_eq!(audit.code, Some(0), "{older:?}: {:#?}", audit.lines);
}

/// A posted deposit and its order number.
type Posted = (AccountKey, MessageId, String);

async fn deposit_to_all(client: &Client, accounts: &[AccountKey]) -> Vec<Posted> {
    let deposits = accounts.iter().flat_map(|account| std::iter::repeat_n(*account, DEPOSITS));
    join_all(deposits.map(async |account| {
        let id = fresh_id();
        let answer = client.submit_and_wait(account, id, &Submission::deposit("1.00")).await;
        (account, id, number_of(&answer))
    }))
    .await
}

fn number_of(answer: &Answer) -> String {
    assert_eq!(answer.transaction_status(), "posted", "{answer:?}");
    answer.text_at("/order_number").to_owned()
}

/// Copies of the rows of both tables.
async fn copies(bank: &Scenario) -> (Vec<Value>, Vec<Value>) {
    let (tables, state) = bank.tables("state");
    let (_, ledger) = bank.tables("ledger");
    (tables.rows(&state).await, tables.rows(&ledger).await)
}

async fn put_back(bank: &Scenario, older: Older, old_state: &[Value], old_ledger: &[Value]) {
    let (tables, state) = bank.tables("state");
    let (_, ledger) = bank.tables("ledger");
    match older {
        Older::State => tables.replace(&state, old_state).await,
        Older::StateAndLedger => {
            tables.replace(&state, old_state).await;
            tables.replace(&ledger, old_ledger).await;
        }
        Older::NoRegister => {
            let is_register = |row: &&Value| row.to_string().contains("order-numbers");
            let rest: Vec<Value> =
                tables.rows(&state).await.iter().filter(|row| !is_register(row)).cloned().collect();
            assert!(rest.len() < tables.rows(&state).await.len(), "there is a register");
            tables.replace(&state, &rest).await;
        }
    }
}

/// Without their clean end, the processes stay registered. What they sent to the storage last is done when this returns: it would
/// change tables that are put back.
async fn kill_all(bank: &mut Scenario) {
    for mut process in bank.webs.drain(..).chain(bank.workers.drain(..)) {
        process.kill();
    }
    bank.storage_proxies().until_idle().await;
}

async fn start(bank: &mut Scenario) {
    bank.start_web();
    bank.start_worker();
    bank.client(0).until_ready().await;
    bank.until_workers_ready().await;
}

/// Starts the processes without a register. Returns the deposit that they accept, but do not post.
async fn posting_is_stopped(bank: &mut Scenario, account: AccountKey) -> MessageId {
    start(bank).await;
    let (client, id) = (bank.client(0), fresh_id());
    let accepted = client.submit_until_accepted(account, id, &Submission::deposit("1.00")).await;
    let advice = "order-numbers advance";
    wait::until("the log says what to do", wait::TIMEOUT, async || {
        let logs = bank.webs.iter().chain(&bank.workers).flat_map(|process| process.log().lines());
        if logs.into_iter().any(|line| line.contains(advice)) { Ok(()) } else { Err("no advice".to_owned()) }
    })
    .await;
    assert_eq!(accepted.transaction_status(), "accepted", "nothing is posted: {accepted:?}");
    kill_all(bank).await;
    id
}

/// Runs the command as an operator who forgets something first.
async fn advance(bank: &Scenario) {
    let command = async |more: &[&str]| -> Ended { run(bank, &[&ADVANCE[..], more].concat()).await };
    let running = command(&["--yes"]).await;
    assert!(!running.status.success() && running.printed.contains("--all-stopped"), "{running:?}");
    let plan = command(&["--all-stopped"]).await;
    assert!(!plan.status.success() && plan.printed.contains("nothing was changed: use --yes"), "{plan:?}");
    let done = command(&["--all-stopped", "--yes"]).await;
    assert!(done.status.success() && done.printed.contains("the gate is held"), "{done:?}");
    let known = json!(done.printed).to_string();
    assert!(known.contains("order_numbers.advance"), "the act is in the audit trail: {known}");
}
