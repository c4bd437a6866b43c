//! Every posting to one account fails, and other accounts in the same envelopes are not affected.
//!
//! The rows of that account are missing: the worker finds work for it on the queue and nothing in the
//! ledger. The API cannot create such work, so the test adds it to the envelopes of the API before a worker
//! receives them.

use std::time::Duration;

use postonce_shared::messaging::envelope;
use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;
use serde_json::Value;

/// Number of healthy accounts; each has one item in every envelope.
const HEALTHY: usize = 4;
/// Number of envelopes.
const ROUNDS: usize = 3;
/// Number of items of the failing account in every envelope.
const FAILING: usize = 2;
/// Receipts after which failing work is split, and then set aside.
const DEQUEUE_COUNT_MAX: u32 = 2;
/// The visibility timeout of a message that is not released: healthy work must not wait for that.
const VISIBILITY_TIMEOUT_S: u32 = 40;
/// Longest time for healthy work, including the start of the worker, on a busy machine.
const ON_TIME: Duration = Duration::from_secs(20);

on_both_stores![an_account_that_always_fails_delays_nobody_and_ends_in_the_dead_letters];

async fn an_account_that_always_fails_delays_nobody_and_ends_in_the_dead_letters(store_kind: StoreKind) {
    let plan = Plan::on(store_kind).processes(1, 0).with("POSTONCE_QUEUE_COUNT", "1");
    let mut bank = plan.receipts(VISIBILITY_TIMEOUT_S, DEQUEUE_COUNT_MAX).start().await;
    let client = bank.client(0);
    let (accounts, lost): (Vec<AccountKey>, _) =
        ((0..HEALTHY).map(|_| fresh_account()).collect(), fresh_account());
    let mut healthy = Vec::new();
    for account in &accounts {
        client.open(*account).await;
        for _ in 0..ROUNDS {
            let id = fresh_id();
            drop(client.submit_until_accepted(*account, id, &Submission::deposit("1.00")).await);
            healthy.push((*account, id));
        }
    }
    mix_in(&bank, lost).await;

    let watch = Stopwatch::start();
    bank.start_worker();
    for (account, id) in &healthy {
        let left = ON_TIME.saturating_sub(watch.elapsed());
        let answer = client.until_final_within(*account, *id, left).await;
        assert_eq!(answer.transaction_status(), "posted");
    }
    // New work is posted at once while the failing work is retried.
    let account = *accounts.first().expect("there are accounts");
    let answer = client.submit_and_wait(account, fresh_id(), &Submission::deposit("1.00")).await;
    assert_eq!(answer.expect(200).transaction_status(), "posted");

    let letters = wait::until("each failing item has a dead letter", wait::TIMEOUT, async || {
        let letters = client.dead_letters().await;
        if letters.len() == ROUNDS * FAILING {
            Ok(letters)
        } else {
            Err(format!("{} letters", letters.len()))
        }
    })
    .await;
    for letter in &letters {
        let reason = letter.get("reason").and_then(Value::as_str).unwrap_or_default();
        assert!(reason.contains("account"), "the reason names the error: {letter}");
    }
    client.until_drained(wait::TIMEOUT).await;
    for account in &accounts[1..] {
        assert_eq!(client.balance(*account).await, format!("{ROUNDS}.00"));
    }
}

/// Repacks the waiting work: each envelope contains one item of each healthy account, and work of the
/// failing account at its start and in its middle.
async fn mix_in(bank: &Scenario, lost: AccountKey) {
    let (queue, seal) = (bank.store().await.queue, bank.seal().await);
    let name = envelope::queues(1).swap_remove(0);
    let mut works: Vec<Work> = Vec::new();
    loop {
        let messages = queue.receive(&name, RECEIVE_MAX, wait::TIMEOUT).await.expect("a queue answers");
        if messages.is_empty() {
            break;
        }
        for message in messages {
            let Ok(Body::Content(Content::Work(envelope))) = Body::decode(&message.body, &seal) else {
                panic!("a message that the web did not send");
            };
            works.extend(envelope.items);
            drop(queue.delete(&name, &message.lease).await.expect("a queue answers"));
        }
    }
    assert_eq!(works.len(), HEALTHY * ROUNDS, "everything that was accepted waited");
    works.sort_by_key(|work| work.submission.key.account);
    for round in 0..ROUNDS {
        let of_round: Vec<Work> = works.iter().skip(round).step_by(ROUNDS).cloned().collect();
        let like = of_round.first().expect("each envelope has healthy work").clone();
        let failing = || {
            let key = TransactionKey { account: lost, message: fresh_id(), ..like.key().clone() };
            let mut work = like.clone();
            work.submission.key = key;
            work
        };
        let (before, after) = of_round.split_at(HEALTHY / FAILING);
        let mut items = vec![failing()];
        items.extend_from_slice(before);
        items.push(failing());
        items.extend_from_slice(after);
        let body = Envelope::of(items).encode(&seal);
        queue.send(&name, &body, Duration::ZERO).await.expect("a queue takes an envelope");
    }
}
