//! Receipts during an outage never cause a dead letter, even if they cannot be recorded as forgiven. The
//! production worker runs over the memory store, with ports that fail on demand.

use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::{join, select};
use postonce_process::drain::drain;
use postonce_process::meter::Meter;
use postonce_shared::config::{AnchorTerms, HttpLimits, ReceiversRule};
use postonce_shared::oversight::scrubber::ScrubberTerms;
use postonce_shared::testing::prelude::*;
use postonce_shared::testing::registered::register;
use postonce_tests::prelude::*;
use postonce_worker::config::{Bounds, IdleDelays, WorkerConfig};
use postonce_worker::worker::Worker;

/// Receipts after which a message would be set aside.
const DEQUEUE_COUNT_MAX: u32 = 2;
/// Number of receipts during the outage.
const FAILED_RECEIPTS: usize = 5;

#[tokio::test]
async fn commits_that_fail_count_no_receipts() {
    outage(&["Ledger::commit"]).await;
}

#[tokio::test]
async fn commits_that_fail_while_nothing_can_be_forgiven_count_no_receipts() {
    // Messages can still be received, but not updated.
    outage(&["Ledger::commit", "WorkQueue::extend", "WorkQueue::delete"]).await;
}

/// Counts the messages that are received.
struct CountedReceipts(Arc<dyn WorkQueue>, Arc<AtomicUsize>);

#[async_trait]
impl WorkQueueDecorator for CountedReceipts {
    fn inner(&self) -> &dyn WorkQueue {
        &*self.0
    }

    async fn receive(
        &self,
        queue: &QueueName,
        max: usize,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreFault> {
        let messages = self.0.receive(queue, max, visibility).await?;
        self.1.fetch_add(messages.len(), Ordering::Relaxed);
        Ok(messages)
    }
}

/// A worker runs while these calls fail, and then without faults.
async fn outage(calls: &[&'static str]) {
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let reliable = MemoryStore::new(Arc::clone(&world));
    let (control, received) = (Arc::<Control>::default(), Arc::<AtomicUsize>::default());
    let mut store = reliable.clone();
    control.apply(&mut store);
    control.fail(calls);
    store.queue = Arc::new(CountedReceipts(Arc::clone(&store.queue), Arc::clone(&received)));
    let doorbell = Arc::new(LocalDoorbell::default());
    let accepting = Bank::new(reliable, Arc::clone(&world), doorbell.clone(), seal(), 1);
    let posting = Bank::new(store, Arc::clone(&world), doorbell, seal(), 1);
    let mut entry = register(&posting).await;
    let keys = [accept(&accepting, &*world).await, accept(&accepting, &*world).await];

    let config = WorkerConfig {
        visibility_timeout: Duration::from_millis(300),
        dequeue_count_max: DEQUEUE_COUNT_MAX,
        idle_delays: IdleDelays::fixed(Duration::from_millis(50)),
        receivers: Bounds { floor: NonZeroUsize::MIN, ceiling: NonZeroUsize::MIN },
        receivers_rule: ReceiversRule::Adaptive,
        ingest: Vec::new(),
        request_rate: HttpLimits::default().rate(),
        scrubber: ScrubberTerms { operations_per_day: 0, delay: Duration::from_secs(30) },
        anchors: AnchorTerms::default(),
        held: false,
    };
    let (starter, drain) = drain();
    let meter = Arc::new(Meter::default());
    let observing = async {
        wait::until("the outage lasts", wait::TIMEOUT, async || {
            let received = received.load(Ordering::Relaxed);
            if received >= FAILED_RECEIPTS { Ok(()) } else { Err(format!("{received} receipts")) }
        })
        .await;
        control.heal();
        wait::until("everything is posted", wait::TIMEOUT, async || {
            let letters = accepting.store.dead_letters.list(true, None, 10).await.expect("memory answers");
            assert!(letters.items.is_empty(), "an outage made dead letters: {:?}", letters.items);
            for key in &keys {
                let stored = accepting.store.ledger.transaction(key).await.expect("memory answers");
                let status = stored.expect("it was accepted").status();
                if status != TransactionStatus::Posted {
                    return Err(format!("{key} is {status:?}"));
                }
            }
            Ok(())
        })
        .await;
        starter.start();
    };
    // As the heartbeat of a process does.
    let renewing = async {
        loop {
            posting.registration.renewal_requested().await;
            entry.attempts_survived = posting.registration.attempts_survived();
            posting.store.process_registry.announce(&entry).await.expect("memory answers");
            posting.gate_permits.register(&entry, Duration::MAX);
        }
    };
    let working = join(Worker::new(&posting, config, meter).run(&drain), observing);
    select(pin!(working), pin!(renewing)).await;
}

/// Accepts a deposit on a new account, in a separate message.
async fn accept(bank: &Bank, world: &dyn World) -> TransactionKey {
    let euro = Currency::parse("EUR").expect("the euro is a currency");
    let account = fresh_account();
    let opened = Account::open(account, euro, OverdraftLimit::none(euro), None, world.now());
    drop(bank.store.accounts.open(&opening(opened)).await.expect("memory answers"));
    let amount = Amount::parse("1.00", euro).expect("1.00 is an amount");
    let instruction = Instruction { kind: TransactionKind::Deposit, amount, details: Details::default() };
    let partner = PartnerId::parse("shop").expect("a partner's name");
    let key = TransactionKey { account, partner, message: fresh_id() };
    drop(
        bank.acceptor
            .submit(key.clone(), instruction, Origin::default(), None)
            .await
            .expect("memory answers"),
    );
    key
}
