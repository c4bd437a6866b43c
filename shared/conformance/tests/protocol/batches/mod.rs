//! Batches: every item is posted once and reported as its row says, whatever fails and however often a step is repeated.

mod audit;
mod counts;
mod faults;
pub mod rig;
mod stop;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use postonce_shared::batches::intake::{Cancelled, Submitted};
use postonce_shared::batches::messages::{BatchMessageError, ChunkOutcome, Named};
use postonce_shared::batches::open::{BatchBacklog, OpenBatches};
use postonce_shared::domain::batch::{HindranceReason, ItemStatus, OperationCounts, Phase, Totals};
use postonce_shared::protocol::dead_letters::ResolveOutcome;
use postonce_shared::testing::prelude::*;

use self::rig::{ACCOUNTS, OneFault, RepeatedWrites, Rig, batch_key, item, queues};
use crate::protocol::fixture::{apply_gate, deposit, withdrawal};

/// Deposits and withdrawals of several accounts; some accounts do not exist, and some withdrawals cannot be paid.
fn payroll(count: u32) -> Vec<Item> {
    let items = (1..=count).map(|line| {
        let instruction = if line % 4 == 3 { withdrawal("2.00") } else { deposit("1.00") };
        item(line, u128::from(line) % (ACCOUNTS + 2), 1000 + u128::from(line), instruction)
    });
    items.collect()
}

fn statuses(results: &[ItemResult]) -> Vec<ItemStatus> {
    results.iter().map(|result| result.status).collect()
}

#[tokio::test]
async fn a_batch_is_posted_and_reported() {
    let rig = Rig::new().await;
    let bank = rig.process();
    let (key, items) = (batch_key(1), payroll(2500));
    assert!(matches!(rig.submit(&bank, &key, &items).await.unwrap(), Submitted::New(_)));
    assert_eq!(rig.open_batches().await, 1);
    rig.run(&bank).await;
    rig.check(&key, &items).await;
    assert_eq!(rig.open_batches().await, 0);
    let reasons: Vec<_> = rig.results(&key).await.iter().map(|result| result.outcome).collect();
    for reason in [RejectReason::AccountUnknown, RejectReason::InsufficientFunds] {
        assert!(reasons.contains(&ItemOutcome::Rejected(reason)), "{reason}");
    }
    // Only the results are kept.
    let payloads = rig.fixture.store.ports().payloads.list("batch-", None, 100).await.unwrap().items;
    assert!(payloads.iter().all(|it| it.name.contains("-o") || it.name.contains("-pages-")), "{payloads:?}");
}

#[tokio::test]
async fn the_same_batch_again_is_the_same_and_another_one_is_refused() {
    let rig = Rig::new().await;
    let bank = rig.process();
    let (key, items) = (batch_key(1), payroll(50));
    for _ in 0..2 {
        let _ = rig.submit(&bank, &key, &items).await.unwrap();
    }
    rig.run(&bank).await;
    rig.check(&key, &items).await;
    let again = rig.submit(&bank, &key, &items).await.unwrap();
    let Submitted::Existing(batch) = again else { panic!("{again:?}") };
    assert_eq!(batch.phase.code(), "completed");
    let other = rig.submit(&bank, &key, &payroll(49)).await.unwrap();
    assert_eq!(other, Submitted::KeyReused);
    rig.run(&bank).await;
    rig.check(&key, &items).await;
    assert_eq!(rig.open_batches().await, 0);
}

#[tokio::test]
async fn a_client_that_waits_is_answered_when_its_batch_ends() {
    let rig = Rig::new().await;
    let bank = rig.process();
    for (number, phase) in [(1, "completed"), (2, "cancelled"), (3, "received")] {
        let key = batch_key(number);
        let _ = rig.submit(&bank, &key, &payroll(50)).await.unwrap();
        let mut waiting = std::pin::pin!(bank.batches.find(&key, Some(Duration::from_secs(30))));
        assert!(futures::poll!(&mut waiting).is_pending());
        match phase {
            "completed" => rig.run(&bank).await,
            "cancelled" => drop(bank.batches.cancel(&key).await.unwrap()),
            // The process drains.
            _ => bank.completions.end_waits(),
        }
        // The time of its next read has not come.
        let found = waiting.now_or_never().expect("the client is answered at once");
        assert_eq!(found.unwrap().unwrap().phase.code(), phase);
    }
}

#[tokio::test]
async fn a_fault_at_any_operation_changes_nothing_in_the_end() {
    let items = payroll(230);
    for (is_after, has_joint_steps, least) in
        [(false, false, 40), (true, false, 40), (false, true, 30), (true, true, 30)]
    {
        let mut operations = 0;
        for number in 1.. {
            let rig = Rig::new().await;
            let fault = OneFault::at(number, is_after, has_joint_steps);
            let (bank, key) = (rig.process_with(&fault), batch_key(1));
            // The client repeats its request.
            if rig.submit(&bank, &key, &items).await.is_err() {
                let _ = rig.submit(&bank, &key, &items).await.unwrap();
            }
            rig.run(&bank).await;
            rig.check(&key, &items).await;
            assert_eq!(rig.open_batches().await, 0, "operation {number}");
            if !fault.happened() {
                operations = number;
                break;
            }
        }
        assert!(operations > least, "the faults reach every step: {operations}");
    }
}

#[tokio::test]
async fn a_process_that_ends_at_any_operation_is_replaced() {
    let items = payroll(230);
    for has_joint_steps in [false, true] {
        for number in 1.. {
            let rig = Rig::new().await;
            let (key, fault) = (batch_key(1), OneFault::at(number, true, has_joint_steps));
            let first = rig.process_with(&fault);
            let _ = rig.submit(&rig.process(), &key, &items).await.unwrap();
            // The messages of the first process are delivered again: to it, and at the same time to another one.
            for queue in queues() {
                let messages = rig.take(&queue).await;
                for message in &messages {
                    rig.send(&queue, &message.body).await;
                    rig.send(&queue, &message.body).await;
                }
                rig.step(&first, &queue).await;
            }
            rig.run(&rig.process()).await;
            rig.check(&key, &items).await;
            if !fault.happened() {
                break;
            }
        }
    }
}

#[tokio::test]
async fn items_that_were_sent_before_are_replays() {
    let rig = Rig::new().await;
    let bank = rig.process();
    let key_of = |item: &Item| TransactionKey {
        account: item.account,
        partner: batch_key(0).partner,
        message: item.message,
    };
    let items: Vec<Item> = (1..=4).map(|line| item(line, 1, u128::from(line), deposit("5.00"))).collect();
    // 1 was posted, 2 is accepted, 3 was posted with other content, 4 is new.
    let submit = async |item: &Item, instruction, wait| {
        let _ = bank.acceptor.submit(key_of(item), instruction, Origin::default(), wait).await.unwrap();
    };
    submit(&items[0], deposit("5.00"), Some(Duration::from_secs(1))).await;
    submit(&items[2], deposit("6.00"), Some(Duration::from_secs(1))).await;
    submit(&items[1], deposit("5.00"), None).await;
    let _ = rig.submit(&bank, &batch_key(1), &items).await.unwrap();
    rig.run(&bank).await;
    rig.check(&batch_key(1), &items).await;
    use ItemStatus::{Posted, Refused, Replayed};
    assert_eq!(statuses(&rig.results(&batch_key(1)).await), [Replayed, Replayed, Refused, Posted]);
    // In another batch they are all replays.
    let _ = rig.submit(&bank, &batch_key(2), &items).await.unwrap();
    rig.run(&bank).await;
    rig.check(&batch_key(2), &items).await;
    assert_eq!(statuses(&rig.results(&batch_key(2)).await), [Replayed, Replayed, Refused, Replayed]);
}

#[tokio::test]
async fn an_id_that_occurs_again_in_a_batch_is_posted_once() {
    let rig = Rig::new().await;
    let bank = rig.process();
    let mut items: Vec<Item> = (1..=3000).map(|line| item(line, 1, 9, deposit("1.00"))).collect();
    items[2000].instruction = deposit("2.00");
    let _ = rig.submit(&bank, &batch_key(1), &items).await.unwrap();
    rig.run(&bank).await;
    rig.check(&batch_key(1), &items).await;
    let statuses = statuses(&rig.results(&batch_key(1)).await);
    assert_eq!((statuses[0], statuses[1], statuses[2000]), {
        (ItemStatus::Posted, ItemStatus::Replayed, ItemStatus::Refused)
    });
    assert_eq!(statuses.iter().filter(|status| **status == ItemStatus::Posted).count(), 1);
}

#[tokio::test]
async fn the_items_of_an_account_are_posted_in_order() {
    let rig = Rig::new().await;
    let bank = rig.process();
    // Each withdrawal can be paid only after the deposit before it: in a chain of chunks too.
    let items: Vec<Item> = (1..=5000)
        .map(|line| {
            let instruction = if line % 2 == 1 { deposit("3.00") } else { withdrawal("3.00") };
            item(line, 2, u128::from(line), instruction)
        })
        .collect();
    let _ = rig.submit(&bank, &batch_key(1), &items).await.unwrap();
    rig.run(&bank).await;
    rig.check(&batch_key(1), &items).await;
    assert!(statuses(&rig.results(&batch_key(1)).await).iter().all(|status| *status == ItemStatus::Posted));
}

#[tokio::test]
async fn a_chunk_of_one_account_is_posted_again_to_learn_its_outcome() {
    let rig = Rig::new().await;
    let bank = rig.process();
    let items: Vec<Item> = (1..=1960).map(|line| item(line, 2, u128::from(line), deposit("0.01"))).collect();
    let _ = rig.submit(&bank, &batch_key(1), &items).await.unwrap();
    let [split_queue, post_queue, count_queue] = queues();
    rig.step(&bank, &split_queue).await;
    let messages = rig.take(&post_queue).await;
    for _ in 0..2 {
        for message in &messages {
            rig.send(&post_queue, &message.body).await;
        }
        rig.step(&rig.process(), &post_queue).await;
        // The outcome is lost.
        assert_eq!(rig.take(&count_queue).await.len(), messages.len());
    }
    for message in &messages {
        rig.send(&post_queue, &message.body).await;
    }
    rig.run(&rig.process()).await;
    rig.check(&batch_key(1), &items).await;
    // In another batch, all of them are replays.
    let _ = rig.submit(&bank, &batch_key(2), &items).await.unwrap();
    rig.run(&bank).await;
    rig.check(&batch_key(2), &items).await;
}

#[tokio::test]
async fn a_batch_is_cancelled_before_it_is_posted() {
    let rig = Rig::new().await;
    let bank = rig.process();
    let items = payroll(20);
    assert_eq!(bank.batches.cancel(&batch_key(1)).await.unwrap(), Cancelled::Unknown);
    let _ = rig.submit(&bank, &batch_key(1), &items).await.unwrap();
    assert!(matches!(bank.batches.cancel(&batch_key(1)).await.unwrap(), Cancelled::Done(_)));
    rig.run(&bank).await;
    assert_eq!(rig.batch(&batch_key(1)).await.phase.code(), "cancelled");
    assert_eq!(rig.row(&items[0]).await, None, "nothing is posted");
    assert_eq!(rig.open_batches().await, 0);
    let _ = rig.submit(&bank, &batch_key(2), &items).await.unwrap();
    rig.step(&bank, &queues()[0]).await;
    assert!(matches!(bank.batches.cancel(&batch_key(2)).await.unwrap(), Cancelled::TooLate(_)));
    rig.run(&bank).await;
    rig.check(&batch_key(2), &items).await;
}

#[tokio::test]
async fn a_record_whose_write_was_repeated_on_its_way_keeps_its_parts() {
    let rig = Rig::new().await;
    let bank = rig.process_over(|store| store.records = Arc::new(RepeatedWrites(Arc::clone(&store.records))));
    let (key, items) = (batch_key(1), payroll(20));
    let submitted = rig.submit(&bank, &key, &items).await.unwrap();
    // Otherwise the caller would remove the parts, which the record refers to.
    assert!(matches!(submitted, Submitted::New(_)), "{submitted:?}");
    rig.run(&bank).await;
    rig.check(&key, &items).await;
}

#[tokio::test]
async fn only_chunks_of_the_manifest_are_posted_and_only_in_the_phase() {
    let rig = Rig::new().await;
    let bank = rig.process();
    let (key, items) = (batch_key(1), payroll(20));
    let _ = rig.submit(&bank, &key, &items).await.unwrap();
    // Before the phase, a message has no effect.
    let message = Named::of(key.clone(), vec![0, 1, 7, u32::MAX]);
    bank.batches.process(&message).await.unwrap();
    assert_eq!(rig.row(&items[0]).await, None);
    rig.step(&bank, &queues()[0]).await;
    bank.batches.process(&message).await.unwrap();
    rig.run(&bank).await;
    rig.check(&key, &items).await;
    bank.batches.process(&message).await.unwrap();
    bank.batches.initiate(&key).await.unwrap();
    rig.run(&bank).await;
    rig.check(&key, &items).await;
    bank.batches.process(&Named::of(batch_key(9), vec![0])).await.unwrap();
}

#[tokio::test]
async fn a_forged_outcome_is_not_counted() {
    let rig = Rig::new().await;
    let bank = rig.process();
    let (key, items) = (batch_key(1), payroll(20));
    let _ = rig.submit(&bank, &key, &items).await.unwrap();
    let [split_queue, post_queue, count_queue] = queues();
    rig.step(&bank, &split_queue).await;
    let Phase::Posting { manifest, .. } = rig.batch(&key).await.phase else { panic!("not posting") };
    let _lost = rig.take(&post_queue).await;
    let outcome = |split| ChunkOutcome {
        key: key.clone(),
        split,
        chunk: 0,
        results: manifest.digest,
        totals: Totals::default(),
        operations: OperationCounts::default(),
    };
    let sealed = outcome(manifest.split).encode(&seal());
    // The digits of the code begin after 9 characters.
    let forged = [&sealed[..9], "0".repeat(64).as_bytes(), &sealed[73..]].concat();
    assert!(matches!(ChunkOutcome::decode(&forged, &seal()), Err(BatchMessageError::Unsealed)));
    rig.send(&count_queue, &forged).await;
    // One of another split, with a seal.
    let other = outcome(uuid::Uuid::from_u128(5)).encode(&seal());
    rig.send(&count_queue, &other).await;
    rig.run(&bank).await;
    // The chunk was posted again to learn its outcome.
    rig.check(&key, &items).await;
}

#[tokio::test]
async fn a_changed_payload_is_not_used() {
    let rig = Rig::new().await;
    let bank = rig.process();
    let (key, items) = (batch_key(1), payroll(20));
    let _ = rig.submit(&bank, &key, &items).await.unwrap();
    rig.step(&bank, &queues()[0]).await;
    let payloads = rig.fixture.store.ports().payloads;
    let names = payloads.list("batch-", None, 100).await.unwrap().items;
    let chunk = names.iter().find(|it| it.name.contains("-c0-")).unwrap();
    let body = payloads.get(&chunk.name).await.unwrap().unwrap();
    payloads.delete(&chunk.name).await.unwrap();
    payloads.put(&chunk.name, b"other").await.unwrap();
    let fault = bank.batches.process(&Named::of(key.clone(), vec![0])).await.unwrap_err();
    assert!(!fault.is_transient(), "{fault}");
    assert_eq!(rig.row(&items[0]).await, None);
    payloads.delete(&chunk.name).await.unwrap();
    payloads.put(&chunk.name, &body).await.unwrap();
    rig.run(&bank).await;
    rig.check(&key, &items).await;
}

#[tokio::test]
async fn two_initiators_and_two_workers_at_once_do_it_once() {
    let rig = Rig::new().await;
    let (one, other) = (rig.process(), rig.process());
    let (key, items) = (batch_key(1), payroll(300));
    let _ = rig.submit(&one, &key, &items).await.unwrap();
    let (first, second) = futures::join!(one.batches.initiate(&key), other.batches.initiate(&key));
    first.unwrap();
    second.unwrap();
    let Phase::Posting { manifest, .. } = rig.batch(&key).await.phase else { panic!("not posting") };
    let all = Named::of(key.clone(), (0..manifest.chunks).collect());
    let (first, second) = futures::join!(one.batches.process(&all), other.batches.process(&all));
    first.unwrap();
    second.unwrap();
    rig.run(&one).await;
    rig.check(&key, &items).await;
}

#[tokio::test]
async fn chunks_of_a_message_wait_for_a_held_gate() {
    let rig = Rig::new().await;
    let bank = rig.process();
    let (key, items) = (batch_key(1), payroll(5000));
    let _ = rig.submit(&bank, &key, &items).await.unwrap();
    let [split_queue, post_queue, count_queue] = queues();
    rig.step(&bank, &split_queue).await;
    let _sent = rig.take(&post_queue).await;
    apply_gate(&bank, GateValue { epoch: 1, state: GateState::Held { release_at: None } });
    bank.batches.process(&Named::of(key.clone(), vec![0, 1, 2])).await.unwrap();
    assert_eq!(rig.take(&count_queue).await.len(), 0, "none of them is posted");
    let sent_again = rig.take(&post_queue).await;
    let named: Vec<Named> = sent_again.iter().map(|it| Named::decode(&it.body).unwrap()).collect();
    assert_eq!(named, [Named::of(key.clone(), vec![0, 1, 2])], "they are one message");
    apply_gate(&bank, GateValue { epoch: 2, state: GateState::Released });
    bank.batches.process(&named[0]).await.unwrap();
    assert_eq!((rig.take(&count_queue).await.len(), rig.take(&post_queue).await.len()), (3, 0));
    bank.batches.initiate(&key).await.unwrap();
    rig.run(&bank).await;
    rig.check(&key, &items).await;
}

#[tokio::test]
async fn dead_letters_of_every_role_are_replayed() {
    let rig = Rig::new().await;
    let bank = rig.process();
    let (key, items) = (batch_key(1), payroll(20));
    let _ = rig.submit(&bank, &key, &items).await.unwrap();
    for queue in queues() {
        let received = bank.store.queue.receive(&queue, 32, Duration::from_secs(60)).await.unwrap();
        assert!(!received.is_empty(), "{queue}");
        for message in received {
            bank.dead_letters.set_aside(&queue, &message, &[], "testing").await.unwrap();
            let _ = bank.store.queue.delete(&queue, &message.lease).await.unwrap();
        }
        let open = bank.store.dead_letters.list(true, None, 100).await.unwrap().items;
        for letter in open {
            assert_eq!(letter.queue, queue);
            assert_eq!(bank.dead_letters.replay(&letter.id, "operator").await.unwrap(), ResolveOutcome::Done);
            let letter = bank.store.dead_letters.find(&letter.id).await.unwrap().unwrap();
            assert_eq!(letter.resolution.map(|it| it.kind), Some(ResolutionKind::Replayed));
        }
        assert!(rig.step(&bank, &queue).await > 0, "the messages of {queue} are sent again");
    }
    rig.run(&bank).await;
    rig.check(&key, &items).await;
}

#[tokio::test]
async fn what_is_left_of_open_batches_is_known() {
    let rig = Rig::new().await;
    let bank = rig.process();
    let store = rig.fixture.store.ports();
    let open = OpenBatches::new(&store);
    let check = async |items, chunks| {
        assert_eq!(open.backlog().await.unwrap(), BatchBacklog { items, chunks });
    };
    check(0, 0).await;
    assert_eq!(store.operations.snapshot().values().sum::<u64>(), 1, "an idle reading costs one operation");
    // All items of the first batch are for one account: a chain of three chunks.
    let chain: Vec<Item> = (1..=5000).map(|line| item(line, 2, u128::from(line), deposit("0.01"))).collect();
    let _ = rig.submit(&bank, &batch_key(1), &chain).await.unwrap();
    check(5000, 1).await;
    let [split_queue, post_queue, count_queue] = queues();
    rig.step(&bank, &split_queue).await;
    check(5000, 1).await;
    rig.step(&bank, &post_queue).await;
    rig.step(&bank, &count_queue).await;
    check(3040, 1).await;
    let items = payroll(2500);
    let _ = rig.submit(&bank, &batch_key(2), &items).await.unwrap();
    check(5540, 2).await;
    rig.step(&bank, &split_queue).await;
    let Phase::Posting { manifest, .. } = rig.batch(&batch_key(2)).await.phase else { panic!("not posting") };
    assert!(manifest.chunks > 1);
    check(5540, 1 + u64::from(manifest.chunks)).await;
    bank.batches.hinder(&batch_key(2), HindranceReason::GateHeld).await.unwrap();
    check(5540, 2).await;
    rig.run(&bank).await;
    check(0, 0).await;
}
