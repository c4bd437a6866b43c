//! Messages without a valid seal: the rows say what is posted, and nothing that came unsealed is sealed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use flate2::Compression;
use flate2::write::GzEncoder;
use postonce_shared::adapters::memory::world::TestWorld;
use postonce_shared::domain::decision::{AccountCommit, Work};
use postonce_shared::domain::ids::TransactionKey;
use postonce_shared::domain::instruction::{Details, Instruction, TransactionKind};
use postonce_shared::messaging::claim_check::ClaimCheck;
use postonce_shared::messaging::envelope::seal::Purpose;
use postonce_shared::messaging::envelope::{Claim, Envelope};
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{Committed, Ledger, Marks, StoredTransaction};
use postonce_shared::testing::conformance::sealed::{envelope_in, held_in, seal, seal_of, unsealed};
use postonce_shared::testing::decorators::LedgerDecorator;
use postonce_worker::meter::Meter;
use postonce_worker::posting::posting_handler::PostingHandler;

use crate::stage::{DEQUEUE_COUNT_MAX, Stage, account, config, instruction, outage, queue};

const VISIBILITY: Duration = Duration::from_secs(20);

/// What is away.
#[derive(Default)]
struct Outages {
    reads: AtomicBool,
    commits: AtomicBool,
}

struct Unreliable(Arc<dyn Ledger>, Arc<Outages>);

#[async_trait]
impl LedgerDecorator for Unreliable {
    fn inner(&self) -> &dyn Ledger {
        &*self.0
    }

    async fn transaction(&self, key: &TransactionKey) -> Result<Option<StoredTransaction>, StoreFault> {
        if self.1.reads.load(Ordering::SeqCst) { Err(outage()) } else { self.0.transaction(key).await }
    }

    async fn commit(&self, commit: &AccountCommit) -> Result<Committed, StoreFault> {
        if self.1.commits.load(Ordering::SeqCst) { Err(outage()) } else { self.0.commit(commit).await }
    }
}

/// A worker that handles what is there when it is told to, over a ledger that may be away.
struct Desk {
    stage: Stage<TestWorld>,
    posting: PostingHandler,
    meter: Arc<Meter>,
    outages: Arc<Outages>,
}

impl Desk {
    async fn new() -> Self {
        let (stage, meter, outages) = (Stage::still().await, Arc::new(Meter::default()), Arc::default());
        let bank = stage.bank_over(|store| {
            store.ledger = Arc::new(Unreliable(Arc::clone(&store.ledger), Arc::clone(&outages)));
        });
        let posting = PostingHandler::new(&bank, Arc::clone(&meter), &config(VISIBILITY));
        Self { stage, posting, meter, outages }
    }

    async fn handle_next(&self) {
        self.stage.handle_next(&self.posting, VISIBILITY).await;
    }

    /// The bodies that wait on the queue.
    async fn bodies(&self) -> Vec<Vec<u8>> {
        let messages = self.stage.receive(VISIBILITY).await;
        self.stage.world.advance(VISIBILITY + Duration::from_secs(1));
        messages.into_iter().map(|message| message.body).collect()
    }
}

/// The body of the work with 5,000,000 in place of one euro, as an outsider writes it.
fn forged(work: &[Work]) -> Vec<u8> {
    let body = String::from_utf8(Envelope::of(work.to_vec(), None).encode(&seal())).unwrap();
    assert!(body.contains(r#""a":"100""#));
    body.replace(r#""a":"100""#, r#""a":"500000000""#).into_bytes()
}

#[tokio::test]
async fn a_message_without_a_valid_seal_posts_what_the_rows_say() {
    let desk = Desk::new().await;
    let work = [desk.stage.accept(account(1), 1).await, desk.stage.accept(account(2), 2).await];
    let withdrawal = desk.stage.accept_as(instruction(TransactionKind::Withdrawal), account(1), 3).await;
    let withdrawal = Envelope::of(vec![withdrawal], None).encode(&seal_of("the-secret-of-another-bank"));
    for body in [forged(&work), unsealed(&forged(&work)), withdrawal] {
        desk.stage.send_body(&body).await;
    }
    desk.handle_next().await;
    assert_eq!([desk.stage.balance(1).await, desk.stage.balance(2).await], ["0.00", "1.00"]);
    assert_eq!((desk.stage.depth().await, desk.stage.letters().await.len()), (0, 0));
    assert_eq!(desk.meter.unsealed.get(), 3);
    // And what is final stays so.
    desk.stage.send_body(&forged(&work)).await;
    desk.handle_next().await;
    assert_eq!([desk.stage.balance(1).await, desk.stage.balance(2).await], ["0.00", "1.00"]);
    assert_eq!((desk.stage.depth().await, desk.stage.letters().await.len()), (0, 0));
}

#[tokio::test]
async fn a_sealed_message_costs_no_read_of_a_row() {
    let desk = Desk::new().await;
    let work = desk.stage.accept(account(1), 1).await;
    desk.stage.send(vec![work]).await;
    desk.outages.reads.store(true, Ordering::SeqCst);
    desk.handle_next().await;
    assert_eq!((desk.stage.balance(1).await.as_str(), desk.meter.unsealed.get()), ("1.00", 0));
}

#[tokio::test]
async fn what_waits_for_its_rows_waits_as_it_came() {
    let desk = Desk::new().await;
    let work = desk.stage.accept(account(1), 1).await;
    let body = forged(&[work]);
    desk.stage.send_body(&body).await;
    desk.outages.reads.store(true, Ordering::SeqCst);
    for _ in 0..2 * DEQUEUE_COUNT_MAX {
        desk.handle_next().await;
        assert_eq!(desk.bodies().await, std::slice::from_ref(&body), "an outage gives it no seal");
    }
    desk.outages.reads.store(false, Ordering::SeqCst);
    desk.handle_next().await;
    desk.handle_next().await;
    assert_eq!((desk.stage.balance(1).await.as_str(), desk.stage.depth().await), ("1.00", 0));
    assert_eq!(desk.stage.letters().await.len(), 0);
}

#[tokio::test]
async fn what_was_read_from_its_row_may_be_sealed() {
    let desk = Desk::new().await;
    let work = desk.stage.accept(account(1), 1).await;
    desk.stage.send_body(&forged(std::slice::from_ref(&work))).await;
    desk.outages.commits.store(true, Ordering::SeqCst);
    desk.handle_next().await;
    let bodies = desk.bodies().await;
    assert_eq!(envelope_in(&bodies[0]).items, [work], "as the row says");
    desk.outages.commits.store(false, Ordering::SeqCst);
    desk.handle_next().await;
    assert_eq!(desk.stage.balance(1).await, "1.00");
}

#[tokio::test]
async fn rows_that_fit_no_message_leave_the_names_as_they_came() {
    let desk = Desk::new().await;
    let long = "r".repeat(140);
    let mut names = Vec::new();
    for message in 0..300 {
        let details = Details::from_stored(Some(long.clone()), BTreeMap::new(), String::new());
        let deposit = Instruction { details, ..instruction(TransactionKind::Deposit) };
        let TransactionKey { account, partner, message } =
            desk.stage.accept_as(deposit, account(1), message).await.key;
        let (user, account) = (account.user.simple(), account.account.simple());
        names.push(format!(r#"{{"u":"{user}","c":"{account}","p":"{partner}","m":"{}"}}"#, message.simple()));
    }
    let body = format!(r#"{{"v":1,"items":[{}]}}"#, names.join(",")).into_bytes();
    desk.stage.send_body(&body).await;
    desk.outages.commits.store(true, Ordering::SeqCst);
    desk.handle_next().await;
    assert_eq!(desk.bodies().await, [body]);
    desk.outages.commits.store(false, Ordering::SeqCst);
    for _ in 0..30 {
        desk.handle_next().await;
    }
    assert_eq!((desk.stage.balance(1).await.as_str(), desk.stage.depth().await), ("300.00", 0));
}

#[tokio::test]
async fn counters_without_a_seal_do_not_count() {
    let desk = Desk::new().await;
    let work = desk.stage.accept(account(1), 1).await;
    let tired = Envelope { suspect: u32::MAX, ..Envelope::of(vec![work], None) };
    desk.stage.send_body(&unsealed(&tired.encode(&seal()))).await;
    for _ in 0..=DEQUEUE_COUNT_MAX {
        let _ = desk.stage.receive(Duration::ZERO).await;
    }
    desk.handle_next().await;
    assert_eq!((desk.stage.balance(1).await.as_str(), desk.stage.letters().await.len()), ("1.00", 0));
}

#[tokio::test]
async fn what_was_never_accepted_is_for_a_person_and_its_neighbors_post() {
    let desk = Desk::new().await;
    let known = desk.stage.accept(account(1), 1).await;
    let unknown = Work { key: TransactionKey { account: account(2), ..known.key.clone() }, ..known.clone() };
    desk.stage.send_body(&forged(&[unknown, known])).await;
    desk.handle_next().await;
    desk.handle_next().await;
    assert_eq!([desk.stage.balance(1).await, desk.stage.balance(2).await], ["1.00", "0.00"]);
    let letters = desk.stage.letters().await;
    assert_eq!((letters.len(), desk.stage.depth().await), (1, 0));
    assert!(letters[0].reason.contains("was never accepted"), "{}", letters[0].reason);
    assert!(!seal().verify(Purpose::Message, &letters[0].body), "the letter has no seal either");
    // A replay does not launder it: it comes back.
    let bank = desk.stage.bank();
    let _ = bank.dead_letters.replay(&letters[0].id, "operator").await.unwrap();
    let bodies = desk.bodies().await;
    assert!(bodies.len() == 1 && !seal().verify(Purpose::Message, &bodies[0]));
    desk.handle_next().await;
    assert_eq!((desk.stage.letters().await.len(), desk.stage.balance(2).await.as_str()), (1, "0.00"));
}

#[tokio::test]
async fn a_version_that_nobody_knows_waits_under_a_seal_and_is_a_letter_without() {
    let desk = Desk::new().await;
    let newer = br#"{"v":99,"anything":"else"}"#.to_vec();
    desk.stage.send_body(&newer).await;
    desk.handle_next().await;
    assert_eq!((desk.stage.letters().await.len(), desk.stage.depth().await), (1, 0));
    let sealed = seal().seal(Purpose::Message, newer);
    desk.stage.send_body(&sealed).await;
    desk.handle_next().await;
    assert_eq!((desk.stage.letters().await.len(), desk.bodies().await), (1, vec![sealed]));
}

#[tokio::test]
async fn what_lies_in_the_dead_letters_is_not_posted_by_naming_it() {
    let desk = Desk::new().await;
    let work = desk.stage.accept(account(1), 1).await;
    desk.stage.send(vec![work.clone()]).await;
    let message = desk.stage.receive(VISIBILITY).await.remove(0);
    let bank = desk.stage.bank();
    bank.dead_letters
        .set_aside(&queue(), &message, &held_in(&message.body), "a person has to look")
        .await
        .unwrap();
    let _ = desk.stage.store.queue.delete(&queue(), &message.lease).await.unwrap();
    desk.stage.send_body(&forged(std::slice::from_ref(&work))).await;
    desk.handle_next().await;
    assert_eq!((desk.stage.balance(1).await.as_str(), desk.stage.depth().await), ("0.00", 0));
    let _ = bank.dead_letters.replay(&message.lease.message_id, "operator").await.unwrap();
    desk.handle_next().await;
    assert_eq!(desk.stage.balance(1).await, "1.00", "a person may");
}

/// Giving up a letter without a seal gives up nothing that is on its way.
#[tokio::test]
async fn a_discarded_letter_without_a_seal_rejects_only_what_is_marked() {
    let desk = Desk::new().await;
    let work = desk.stage.accept(account(1), 1).await;
    desk.stage.send_body(&forged(std::slice::from_ref(&work))).await;
    let message = desk.stage.receive(VISIBILITY).await.remove(0);
    let bank = desk.stage.bank();
    bank.dead_letters
        .set_aside(&queue(), &message, &held_in(&message.body), "it names what is on its way")
        .await
        .unwrap();
    let row = async || desk.stage.store.ledger.transaction(&work.key).await.unwrap().unwrap();
    assert!(!row().await.marks.dead_letter, "a name marks nothing");
    let _ = bank.dead_letters.discard(&message.lease.message_id, "operator").await.unwrap();
    assert!(row().await.transaction.outcome.is_none(), "it is still to be posted");
    // As an older version set it aside, with its mark.
    let marks = Marks { dead_letter: true, ..row().await.marks };
    let _ = desk.stage.store.ledger.mark(&work.key, &row().await.revision, marks).await.unwrap();
    desk.stage.send_body(&unsealed(&Envelope::of(vec![work.clone()], None).encode(&seal()))).await;
    let message = desk.stage.receive(VISIBILITY).await.remove(0);
    bank.dead_letters
        .set_aside(&queue(), &message, &held_in(&message.body), "of an older version")
        .await
        .unwrap();
    let _ = bank.dead_letters.discard(&message.lease.message_id, "operator").await.unwrap();
    assert!(row().await.transaction.outcome.is_some());
}

#[tokio::test]
async fn a_payload_is_believed_under_its_own_seal_only() {
    let desk = Desk::new().await;
    let work = [desk.stage.accept(account(1), 1).await, desk.stage.accept(account(2), 2).await];
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&unsealed(&forged(&work))).unwrap();
    desk.stage.store.payloads.put("work-7", &gzip.finish().unwrap()).await.unwrap();
    let claim = Claim::on("work-7".to_owned()).encode(&seal());
    desk.stage.send_body(&claim).await;
    desk.handle_next().await;
    assert_eq!([desk.stage.balance(1).await, desk.stage.balance(2).await], ["1.00", "1.00"]);
    assert_eq!((desk.meter.unsealed.get(), desk.stage.depth().await), (1, 0));
    // A claim without a seal on a payload with one: its work is believed, the claim's counters are not.
    let more = desk.stage.accept(account(3), 3).await;
    let claims = ClaimCheck::new(&desk.stage.store, &seal(), desk.stage.world.clone());
    let kept = claims.put(Envelope::of(vec![more], None)).await.unwrap();
    let claim = Claim { suspect: u32::MAX, ..Claim::on(kept.payload.unwrap()) };
    desk.stage.send_body(&unsealed(&claim.encode(&seal()))).await;
    desk.handle_next().await;
    assert_eq!((desk.stage.balance(3).await.as_str(), desk.stage.letters().await.len()), ("1.00", 0));
}
