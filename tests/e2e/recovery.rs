//! Work in the log without a message is found and posted once.

use std::time::Duration;

use postonce_shared::messaging::envelope;
use postonce_shared::ports::queue::RECEIVE_MAX;
use postonce_tests::prelude::*;

on_both_stores![an_operator_recovers_work_whose_messages_were_lost];

async fn an_operator_recovers_work_whose_messages_were_lost(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 0).start().await;
    let client = bank.client(0);
    let account = fresh_account();
    client.open(account).await;
    for _ in 0..5 {
        drop(client.submit_until_accepted(account, fresh_id(), &Submission::deposit("1.00")).await);
    }
    lose_messages(&bank).await;
    bank.start_worker();
    let printed = bank.operate(&["recover"]);
    assert!(printed.contains("enqueued 5"), "{printed}");
    client.until_drained(wait::TIMEOUT).await;
    assert_eq!(client.balance(account).await, "5.00");
    assert_eq!(client.listing(account, None, 100).await.len(), 5);
    // The second run finds nothing to recover.
    drop(bank.operate(&["recover"]));
    client.until_drained(wait::TIMEOUT).await;
    assert_eq!(client.balance(account).await, "5.00");
}

#[tokio::test]
async fn a_process_on_sqlite_recovers_lost_work_when_it_starts() {
    let mut bank = Plan::on(StoreKind::Sqlite).processes(1, 0).start().await;
    let account = fresh_account();
    let ids = [fresh_id(), fresh_id(), fresh_id()];
    bank.client(0).open(account).await;
    for id in ids {
        drop(bank.client(0).submit_until_accepted(account, id, &Submission::deposit("1.00")).await);
    }
    lose_messages(&bank).await;
    bank.webs.remove(0).kill();
    bank.host_worker();
    bank.start_web();
    let client = bank.client(0);
    client.until_ready().await;
    for id in ids {
        assert_eq!(client.until_final(account, id).await.transaction_status(), "posted");
    }
    assert_eq!(client.balance(account).await, "3.00");
}

/// Deletes all messages, as if the queues had been lost and created again.
async fn lose_messages(bank: &Scenario) {
    let store = bank.store().await;
    let mut lost: usize = 0;
    for queue in envelope::queues(bank.queue_count()) {
        let visibility = Duration::from_secs(60);
        let messages = store.queue.receive(&queue, RECEIVE_MAX, visibility).await.expect("a queue answers");
        for message in messages {
            drop(store.queue.delete(&queue, &message.lease).await.expect("a queue answers"));
            lost = lost.saturating_add(1);
        }
    }
    assert!(lost > 0, "there were messages to lose");
}
