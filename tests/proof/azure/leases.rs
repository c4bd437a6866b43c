//! Leases on messages while the tables do not answer.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, join_all, select};
use postonce_shared::ports::queue::{Held, Lease, QueueName};
use postonce_shared::testing::fresh_nonce;

use super::fixture::{Fixture, deposit};
use postonce_tests::fake_storage::Fault::Refuse;

/// More than the requests that a process sends at once.
const INSERTS: u32 = 100;

#[tokio::test]
async fn leases_are_renewed_and_ended_while_no_table_request_is_answered() {
    let fixture = Fixture::new();
    let queue = QueueName::of_partition("work", 0);
    let lease = Lease { message_id: "m".to_owned(), pop_receipt: "r".to_owned() };
    fixture.fake.put_message();
    fixture.fake.hang("insert");
    let inserts = (1..=INSERTS).map(|number| {
        let ledger = fixture.ledger.clone();
        async move { ledger.accept(&[deposit(number)], fresh_nonce()).await }.boxed()
    });
    // No insert ends before its timeout, which is seconds away.
    let inserting = join_all(inserts).map(drop);
    let leases = async {
        fixture.fake.until_received("insert", 32).await;
        fixture.fake.fail("update", &[Refuse(404)]);
        let renewed = fixture.store.queue.extend(&queue, &lease, b"{}", Duration::from_secs(20)).await;
        (renewed.unwrap(), fixture.store.queue.delete(&queue, &lease).await.unwrap())
    };
    match select(inserting.boxed(), leases.boxed()).await {
        Either::Left(_) => panic!("the inserts ended first"),
        Either::Right((ended, _)) => assert_eq!(ended, (Held::Lost, Held::Ours(()))),
    }
}
