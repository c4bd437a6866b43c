//! Attacks by somebody who may write to the queue and to the payload container, and has no secret.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use flate2::Compression;
use flate2::write::GzEncoder;
use postonce_shared::adapters::local_doorbell::LocalDoorbell;
use postonce_shared::adapters::memory::world::TestWorld;
use postonce_shared::bank::Bank;
use postonce_shared::cluster::doorbell_secret::DoorbellSecret;
use postonce_shared::domain::decision::{AccountCommit, Work};
use postonce_shared::domain::ids::TransactionKey;
use postonce_shared::messaging::envelope::claim::PAYLOAD_BYTES_MAX;
use postonce_shared::messaging::envelope::seal::{Purpose, Seal};
use postonce_shared::messaging::envelope::{Envelope, Names};
use postonce_shared::messaging::sweep::Sweep;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{Committed, Ledger, StoredTransaction};
use postonce_shared::ports::payload_store::PayloadStore;
use postonce_shared::testing::conformance::sealed::{held_in, seal, unsealed};
use postonce_shared::testing::decorators::{LedgerDecorator, PayloadStoreDecorator};
use postonce_worker::meter::Meter;
use postonce_worker::posting::posting_handler::PostingHandler;

use crate::stage::{DEQUEUE_COUNT_MAX, Stage, account, config, queue};

const VISIBILITY: Duration = Duration::from_secs(20);
const CLAIM: &[u8] = br#"{"v":2,"payload":"work-7"}"#;

/// A ledger with trouble.
#[derive(Default)]
struct Trouble {
    /// Reads of transactions never end.
    reads_hang: AtomicBool,
    /// Each commit is refused.
    refuses: AtomicBool,
}

struct Troubled(Arc<dyn Ledger>, Arc<Trouble>);

#[async_trait]
impl LedgerDecorator for Troubled {
    fn inner(&self) -> &dyn Ledger {
        &*self.0
    }

    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        if self.1.reads_hang.load(Ordering::SeqCst) {
            return futures::future::pending().await;
        }
        self.0.transaction(key).await
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        if self.1.refuses.load(Ordering::SeqCst) {
            return Err(StoreFault::Refused { doing: "testing", source: "no".into() });
        }
        self.0.commit(commit).await
    }
}

struct Desk {
    stage: Stage<TestWorld>,
    bank: Bank,
    posting: PostingHandler,
    trouble: Arc<Trouble>,
}

impl Desk {
    async fn new(seal: Seal) -> Self {
        let (stage, trouble) = (Stage::still().await, Arc::<Trouble>::default());
        let mut store = stage.store.clone();
        store.ledger = Arc::new(Troubled(Arc::clone(&store.ledger), Arc::clone(&trouble)));
        let bank = Bank::new(store, stage.world.clone(), Arc::new(LocalDoorbell::default()), seal, 1);
        let posting = PostingHandler::new(&bank, Arc::new(Meter::default()), &config(VISIBILITY));
        Self { stage, bank, posting, trouble }
    }

    async fn handle_next(&self) {
        self.stage.handle_next(&self.posting, VISIBILITY).await;
    }

    async fn row(&self, work: &Work) -> StoredTransaction {
        self.stage.store.ledger.transaction(&work.key).await.unwrap().unwrap()
    }

    /// Accepts a transaction and sets it aside, as a worker of the bank does.
    async fn dead(&self, message: u128) -> Work {
        let work = self.stage.accept(account(1), message).await;
        self.stage.send(vec![work.clone()]).await;
        let received = self.stage.receive(VISIBILITY).await.remove(0);
        self.bank
            .dead_letters
            .set_aside(&queue(), &received, &held_in(&received.body), "a person has to look")
            .await
            .unwrap();
        let _ = self.stage.store.queue.delete(&queue(), &received.lease).await.unwrap();
        assert!(self.row(&work).await.marks.dead_letter);
        work
    }

    /// A letter of a claim whose payload could not be read; the payload is changed afterwards.
    async fn letter_of_a_claim(&self, then: Vec<u8>) -> String {
        let before: BTreeSet<String> = self.stage.letters().await.into_iter().map(|it| it.id).collect();
        let payloads = &self.stage.store.payloads;
        payloads.delete("work-7").await.unwrap();
        payloads.put("work-7", b"nobody can read it").await.unwrap();
        self.stage.send_body(CLAIM).await;
        self.handle_next().await;
        payloads.delete("work-7").await.unwrap();
        payloads.put("work-7", &then).await.unwrap();
        let letters = self.stage.letters().await;
        letters.into_iter().map(|it| it.id).find(|id| !before.contains(id)).expect("a letter of the claim")
    }
}

fn gzipped(content: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(content).unwrap();
    gzip.finish().unwrap()
}

fn names_of(work: &Work) -> Vec<u8> {
    gzipped(&unsealed(&Envelope::of(vec![work.clone()], None).encode(&seal())))
}

/// The payload of a letter can be changed after the letter was written, so it is no part of the letter.
#[tokio::test]
async fn discarding_a_claim_of_an_outsider_gives_up_nothing_that_lies_in_other_letters() {
    let desk = Desk::new(seal()).await;
    let work = desk.dead(1).await;
    let letter = desk.letter_of_a_claim(names_of(&work)).await;
    let _ = desk.bank.dead_letters.discard(&letter, "operator").await.unwrap();
    assert!(desk.row(&work).await.transaction.outcome.is_none(), "its own letter is still open");
}

#[tokio::test]
async fn replaying_a_claim_of_an_outsider_sends_nothing_that_lies_in_other_letters() {
    let desk = Desk::new(seal()).await;
    let work = desk.dead(1).await;
    let letter = desk.letter_of_a_claim(names_of(&work)).await;
    let _ = desk.bank.dead_letters.replay(&letter, "operator").await.unwrap();
    assert!(desk.row(&work).await.marks.dead_letter, "its own letter is still open");
    desk.handle_next().await;
    assert_eq!(desk.stage.balance(1).await, "0.00");
}

/// The work in a payload of the bank is on its way: an outsider only makes its claim a letter for a moment.
#[tokio::test]
async fn discarding_a_claim_of_an_outsider_rejects_no_work_of_the_bank_that_is_on_its_way() {
    let desk = Desk::new(seal()).await;
    let work = desk.stage.accept(account(1), 1).await;
    // The name of the payload is part of its seal, so the bank has to choose the one in the claim.
    let content = unsealed(&Envelope::of(vec![work.clone()], None).encode(&seal()));
    let payload = gzipped(&seal().seal(Purpose::Payload("work-7"), content));
    let letter = desk.letter_of_a_claim(payload).await;
    let _ = desk.bank.dead_letters.discard(&letter, "operator").await.unwrap();
    assert!(desk.row(&work).await.transaction.outcome.is_none(), "it was never marked, and is to be posted");
}

/// 1 KB of gzip must not become 40 MB in the memory of a worker, 32 times in one receive.
#[tokio::test]
async fn a_body_of_more_items_than_names_fit_in_it_is_no_envelope() {
    let body = format!(r#"{{"v":1,"items":[0{}]}}"#, ",0".repeat(PAYLOAD_BYTES_MAX / 2 - 20));
    assert!(body.len() <= PAYLOAD_BYTES_MAX && gzipped(body.as_bytes()).len() < 8 * 1024);
    let read = Names::read(body.as_bytes()).map(|names| names.items().len());
    assert!(read.is_err(), "{read:?} items are kept");
}

#[tokio::test]
async fn sealed_work_does_not_wait_for_the_rows_of_unsealed_messages() {
    let desk = Desk::new(seal()).await;
    let (named, work) = (desk.stage.accept(account(1), 1).await, desk.stage.accept(account(2), 2).await);
    desk.stage.send_body(&unsealed(&Envelope::of(vec![named], None).encode(&seal()))).await;
    desk.stage.send(vec![work]).await;
    desk.trouble.reads_hang.store(true, Ordering::SeqCst);
    let handled = tokio::time::timeout(Duration::from_secs(2), desk.handle_next()).await;
    assert!(handled.is_err(), "the rows are never read");
    assert_eq!(desk.stage.balance(2).await, "1.00");
}

/// What fails for good while the secret is not known is set aside and marked like anything else: otherwise
/// repair sends it again, and a person who gives up the letter gives up nothing.
#[tokio::test]
async fn a_worker_without_the_secret_marks_what_it_sets_aside() {
    let desk = Desk::new(Seal::new(&Arc::new(DoorbellSecret::new(None)))).await;
    let work = desk.stage.accept(account(1), 1).await;
    desk.stage.send(vec![work.clone()]).await;
    desk.trouble.refuses.store(true, Ordering::SeqCst);
    for _ in 0..DEQUEUE_COUNT_MAX + 2 {
        desk.handle_next().await;
    }
    let letters = desk.stage.letters().await;
    assert_eq!((letters.len(), desk.stage.depth().await), (1, 0));
    let marked = desk.row(&work).await.marks.dead_letter;
    desk.trouble.refuses.store(false, Ordering::SeqCst);
    let _ = desk.bank.dead_letters.discard(&letters[0].id, "operator").await.unwrap();
    let given_up = desk.row(&work).await.transaction.outcome.is_some();
    assert_eq!((marked, given_up), (true, true), "(marked, given up by the person who was told so)");
}

/// It cannot tell a newer version under the seal of the bank from one that an outsider wrote.
#[tokio::test]
async fn a_worker_without_the_secret_leaves_newer_versions_to_others() {
    let desk = Desk::new(Seal::new(&Arc::new(DoorbellSecret::new(None)))).await;
    let newer = seal().seal(Purpose::Message, br#"{"v":99,"anything":"else"}"#.to_vec());
    desk.stage.send_body(&newer).await;
    desk.handle_next().await;
    assert_eq!((desk.stage.letters().await.len(), desk.stage.depth().await), (0, 1));
}

/// A payload store where somebody holds a lease on one blob (412 for whoever deletes it), for ever.
struct Leased(Arc<dyn PayloadStore>);

#[async_trait]
impl PayloadStoreDecorator for Leased {
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
async fn a_payload_that_cannot_be_removed_does_not_end_the_sweep() {
    let desk = Desk::new(seal()).await;
    let work = desk.stage.accept(account(1), 1).await;
    for name in ["work-1", "work-2"] {
        desk.stage.store.payloads.put(name, &names_of(&work)).await.unwrap();
    }
    desk.stage.send(vec![work]).await;
    desk.handle_next().await;
    desk.stage.world.advance(Duration::from_secs(25 * 3600));
    let mut store = desk.stage.store.clone();
    store.payloads = Arc::new(Leased(Arc::clone(&store.payloads)));
    let swept = Sweep::new(&store, desk.stage.world.clone()).run().await;
    let left = desk.stage.store.payloads.get("work-2").await.unwrap();
    assert!(left.is_none(), "what comes after it is swept as well: {swept:?}");
}
