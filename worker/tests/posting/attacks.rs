//! Attacks by an outsider who may write to the queue and to the payload container, but has no secret.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use flate2::Compression;
use flate2::write::GzEncoder;
use postonce_process::meter::Meter;
use postonce_shared::messaging::envelope::claim::PAYLOAD_BYTES_MAX;
use postonce_shared::messaging::sweep::Sweep;
use postonce_shared::testing::decorators::PayloadStoreDecorator;
use postonce_shared::testing::prelude::*;
use postonce_worker::posting::posting_handler::PostingHandler;

use crate::posting::fixture::{DEQUEUE_COUNT_MAX, Fixture, account, config, queue};

const VISIBILITY: Duration = Duration::from_secs(20);
const CLAIM: &[u8] = br#"{"v":2,"payload":"work-7"}"#;

/// A worker that handles messages when a test calls it.
struct TestWorker {
    fixture: Fixture<TestWorld>,
    bank: Bank,
    posting: PostingHandler,
    faults: Arc<Control>,
}

impl TestWorker {
    async fn new(seal: Seal) -> Self {
        let (fixture, faults) = (Fixture::with_still_clock().await, Arc::<Control>::default());
        let mut store = fixture.store.clone();
        faults.apply(&mut store);
        let bank = Bank::new(store, fixture.world.clone(), Arc::new(LocalDoorbell::default()), seal, 1);
        count_as_registered(&bank);
        count_as_released(&bank);
        let posting = PostingHandler::new(&bank, Arc::new(Meter::default()), &config(VISIBILITY));
        Self { fixture, bank, posting, faults }
    }

    async fn handle_next(&self) {
        self.fixture.handle_next(&self.posting, VISIBILITY).await;
    }

    async fn row(&self, work: &Work) -> StoredTransaction {
        self.fixture.store.ledger.transaction(&work.submission.key).await.unwrap().unwrap()
    }

    /// Accepts a transaction and sets its message aside, as a worker of the bank does.
    async fn dead_letter(&self, message: u128) -> Work {
        let work = self.fixture.accept(account(1), message).await;
        self.fixture.send(vec![work.clone()]).await;
        let received = self.fixture.receive(VISIBILITY).await.remove(0);
        self.bank
            .dead_letters
            .set_aside(&queue(), &received, &held_in(&received.body), "needs an operator")
            .await
            .unwrap();
        let _ = self.fixture.store.queue.delete(&queue(), &received.lease).await.unwrap();
        assert!(self.row(&work).await.marks.dead_letter);
        work
    }

    /// Id of a dead letter of a claim whose payload could not be read; `then` replaces the payload afterwards.
    async fn dead_letter_of_claim(&self, then: Vec<u8>) -> String {
        let before: BTreeSet<String> =
            self.fixture.dead_letters().await.into_iter().map(|it| it.id).collect();
        let payloads = &self.fixture.store.payloads;
        payloads.delete("work-7").await.unwrap();
        payloads.put("work-7", b"not a payload").await.unwrap();
        self.fixture.send_body(CLAIM).await;
        self.handle_next().await;
        payloads.delete("work-7").await.unwrap();
        payloads.put("work-7", &then).await.unwrap();
        let letters = self.fixture.dead_letters().await;
        letters
            .into_iter()
            .map(|it| it.id)
            .find(|id| !before.contains(id))
            .expect("a dead letter of the claim")
    }
}

fn gzipped(content: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(content).unwrap();
    gzip.finish().unwrap()
}

fn names_of(work: &Work) -> Vec<u8> {
    gzipped(&unsealed(&Envelope::of(vec![work.clone()]).encode(&seal())))
}

/// The payload of a claim can be replaced after its dead letter was written, so it is not part of the letter.
#[tokio::test]
async fn discarding_an_outsiders_claim_rejects_no_work_of_other_dead_letters() {
    let worker = TestWorker::new(seal()).await;
    let work = worker.dead_letter(1).await;
    let letter = worker.dead_letter_of_claim(names_of(&work)).await;
    let _ = worker.bank.dead_letters.discard(&letter, "operator").await.unwrap();
    assert!(worker.row(&work).await.outcome.is_none(), "the dead letter of the work is still open");
}

#[tokio::test]
async fn replaying_an_outsiders_claim_sends_no_work_of_other_dead_letters() {
    let worker = TestWorker::new(seal()).await;
    let work = worker.dead_letter(1).await;
    let letter = worker.dead_letter_of_claim(names_of(&work)).await;
    let _ = worker.bank.dead_letters.replay(&letter, "operator").await.unwrap();
    assert!(worker.row(&work).await.marks.dead_letter, "the dead letter of the work is still open");
    worker.handle_next().await;
    assert_eq!(worker.fixture.balance(1).await, "0.00");
}

/// The work in a payload of the bank is underway: an outsider can only turn its claim into a dead letter for a time.
#[tokio::test]
async fn discarding_an_outsiders_claim_rejects_no_work_of_the_bank_that_is_underway() {
    let worker = TestWorker::new(seal()).await;
    let work = worker.fixture.accept(account(1), 1).await;
    // The seal covers the name of the payload, so the bank has to use the name in the claim.
    let content = unsealed(&Envelope::of(vec![work.clone()]).encode(&seal()));
    let payload = gzipped(&seal().seal(Purpose::Payload("work-7"), content));
    let letter = worker.dead_letter_of_claim(payload).await;
    let _ = worker.bank.dead_letters.discard(&letter, "operator").await.unwrap();
    assert!(
        worker.row(&work).await.outcome.is_none(),
        "the work was never marked, so it is still to be posted"
    );
}

/// A gzip body of 1 KB must not expand to 40 MB in the memory of a worker, 32 times in one receive.
#[tokio::test]
async fn a_body_with_more_items_than_names_can_fit_is_refused() {
    let body = format!(r#"{{"v":1,"items":[0{}]}}"#, ",0".repeat(PAYLOAD_BYTES_MAX / 2 - 20));
    assert!(body.len() <= PAYLOAD_BYTES_MAX && gzipped(body.as_bytes()).len() < 8 * 1024);
    let read = Names::read(body.as_bytes()).map(|names| names.items().len());
    assert!(read.is_err(), "the body was read as {read:?} items");
}

#[tokio::test]
async fn sealed_work_does_not_wait_for_the_rows_of_unsealed_messages() {
    let worker = TestWorker::new(seal()).await;
    let (named, work) =
        (worker.fixture.accept(account(1), 1).await, worker.fixture.accept(account(2), 2).await);
    worker.fixture.send_body(&unsealed(&Envelope::of(vec![named]).encode(&seal()))).await;
    worker.fixture.send(vec![work]).await;
    worker.faults.set("Ledger::transaction", || Effect::Hangs);
    let handled = tokio::time::timeout(Duration::from_secs(2), worker.handle_next()).await;
    assert!(handled.is_err(), "the reads of rows never complete");
    assert_eq!(worker.fixture.balance(2).await, "1.00");
}

/// Without the secret, work that fails permanently is set aside and marked like any other. Otherwise the repair
/// would send it again, and discarding its dead letter would reject nothing.
#[tokio::test]
async fn a_worker_without_the_secret_marks_what_it_sets_aside() {
    let worker = TestWorker::new(Seal::new(&DoorbellSecret::new(None))).await;
    let work = worker.fixture.accept(account(1), 1).await;
    worker.fixture.send(vec![work.clone()]).await;
    let refused = || Effect::Fails(StoreFault::Refused { doing: "testing", source: "no".into() });
    worker.faults.set("Ledger::commit", refused);
    for _ in 0..DEQUEUE_COUNT_MAX + 2 {
        worker.handle_next().await;
    }
    let letters = worker.fixture.dead_letters().await;
    assert_eq!((letters.len(), worker.fixture.depth().await), (1, 0));
    let marked = worker.row(&work).await.marks.dead_letter;
    worker.faults.heal();
    let _ = worker.bank.dead_letters.discard(&letters[0].id, "operator").await.unwrap();
    let rejected = worker.row(&work).await.outcome.is_some();
    assert_eq!((marked, rejected), (true, true), "(marked, rejected by the discard)");
}

/// Without the secret, a sealed newer version cannot be distinguished from one that an outsider wrote.
#[tokio::test]
async fn a_worker_without_the_secret_leaves_newer_versions_on_the_queue() {
    let worker = TestWorker::new(Seal::new(&DoorbellSecret::new(None))).await;
    let newer = seal().seal(Purpose::Message, br#"{"v":99,"anything":"else"}"#.to_vec());
    worker.fixture.send_body(&newer).await;
    worker.handle_next().await;
    assert_eq!((worker.fixture.dead_letters().await.len(), worker.fixture.depth().await), (0, 1));
}

/// Receipts by workers that cannot read a message must not make a newer worker split it.
#[tokio::test]
async fn a_message_that_waited_for_a_newer_worker_has_no_earlier_receipts() {
    let worker = TestWorker::new(seal()).await;
    let newer = seal().seal(Purpose::Message, br#"{"v":99,"anything":"else"}"#.to_vec());
    worker.fixture.send_body(&newer).await;
    for _ in 0..10 {
        worker.handle_next().await;
        assert_eq!(worker.fixture.depth().await, 1);
        worker.fixture.world.advance(Duration::from_secs(15));
    }
    let received = worker.fixture.receive(VISIBILITY).await;
    let [message] = received.as_slice() else { panic!("{received:?}") };
    assert_eq!((&message.body, message.dequeue_count), (&newer, 1));
}

/// A payload store with one blob under an infinite lease: its deletion is refused with 412.
struct LeasedPayload(Arc<dyn PayloadStore>);

#[async_trait]
impl PayloadStoreDecorator for LeasedPayload {
    fn inner(&self) -> &dyn PayloadStore {
        &*self.0
    }

    async fn delete(&self, name: &str) -> Result<(), StoreFault> {
        match name {
            "work-1" => Err(StoreFault::Refused { doing: "testing", source: "leased".into() }),
            _ => self.0.delete(name).await,
        }
    }
}

#[tokio::test]
async fn a_payload_that_cannot_be_removed_does_not_stop_the_sweep() {
    let worker = TestWorker::new(seal()).await;
    let work = worker.fixture.accept(account(1), 1).await;
    for name in ["work-1", "work-2"] {
        worker.fixture.store.payloads.put(name, &names_of(&work)).await.unwrap();
    }
    worker.fixture.send(vec![work]).await;
    worker.handle_next().await;
    worker.fixture.world.advance(Duration::from_secs(25 * 3600));
    let mut store = worker.fixture.store.clone();
    store.payloads = Arc::new(LeasedPayload(Arc::clone(&store.payloads)));
    let swept = Sweep::new(&store, &seal(), worker.fixture.world.clone()).run().await;
    let left = worker.fixture.store.payloads.get("work-2").await.unwrap();
    assert!(left.is_none(), "the payloads after it are swept as well: {swept:?}");
}
