//! Messages without a valid seal: the stored rows decide what is posted, and unsealed content is never sealed.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use postonce_process::meter::Meter;
use postonce_shared::domain::decision::Submission;
use postonce_shared::testing::prelude::*;
use postonce_worker::posting::posting_handler::PostingHandler;

use crate::posting::fixture::{DEQUEUE_COUNT_MAX, Fixture, account, config, instruction, queue};

const VISIBILITY: Duration = Duration::from_secs(20);

/// A worker that handles messages when a test calls it, over a ledger with faults.
struct TestWorker {
    fixture: Fixture<TestWorld>,
    posting: PostingHandler,
    meter: Arc<Meter>,
    faults: Arc<Control>,
}

impl TestWorker {
    async fn new() -> Self {
        let (fixture, meter, faults) =
            (Fixture::with_still_clock().await, Arc::new(Meter::default()), Arc::<Control>::default());
        let bank = fixture.bank_over(|store| faults.apply(store));
        let posting = PostingHandler::new(&bank, Arc::clone(&meter), &config(VISIBILITY));
        Self { fixture, posting, meter, faults }
    }

    async fn handle_next(&self) {
        self.fixture.handle_next(&self.posting, VISIBILITY).await;
    }

    /// The bodies of the messages on the queue.
    async fn bodies(&self) -> Vec<Vec<u8>> {
        let messages = self.fixture.receive(VISIBILITY).await;
        self.fixture.world.advance(VISIBILITY + Duration::from_secs(1));
        messages.into_iter().map(|message| message.body).collect()
    }
}

/// The unsigned body of the work with 5,000,000 in place of one euro, as an outsider would write it.
fn forged(work: &[Work]) -> Vec<u8> {
    let body = String::from_utf8(Envelope::of(work.to_vec()).encode(&seal())).unwrap();
    assert!(body.contains(r#""a":"100""#));
    body.replace(r#""a":"100""#, r#""a":"500000000""#).into_bytes()
}

#[tokio::test]
async fn a_message_without_a_valid_seal_posts_the_content_of_the_rows() {
    let worker = TestWorker::new().await;
    let work = [worker.fixture.accept(account(1), 1).await, worker.fixture.accept(account(2), 2).await];
    let withdrawal = worker.fixture.accept_as(instruction(TransactionKind::Withdrawal), account(1), 3).await;
    let withdrawal = Envelope::of(vec![withdrawal]).encode(&seal_of("the-secret-of-another-bank"));
    for body in [forged(&work), unsealed(&forged(&work)), withdrawal] {
        worker.fixture.send_body(&body).await;
    }
    worker.handle_next().await;
    assert_eq!([worker.fixture.balance(1).await, worker.fixture.balance(2).await], ["0.00", "1.00"]);
    assert_eq!((worker.fixture.depth().await, worker.fixture.dead_letters().await.len()), (0, 0));
    assert_eq!(worker.meter.unsealed.get(), 3);
    // Final transactions stay as they are.
    worker.fixture.send_body(&forged(&work)).await;
    worker.handle_next().await;
    assert_eq!([worker.fixture.balance(1).await, worker.fixture.balance(2).await], ["0.00", "1.00"]);
    assert_eq!((worker.fixture.depth().await, worker.fixture.dead_letters().await.len()), (0, 0));
}

#[tokio::test]
async fn a_sealed_message_costs_no_read_of_a_row() {
    let worker = TestWorker::new().await;
    let work = worker.fixture.accept(account(1), 1).await;
    worker.fixture.send(vec![work]).await;
    worker.faults.fail(&["Ledger::transaction"]);
    worker.handle_next().await;
    assert_eq!((worker.fixture.balance(1).await.as_str(), worker.meter.unsealed.get()), ("1.00", 0));
}

#[tokio::test]
async fn an_unsealed_message_that_waits_for_its_rows_keeps_its_body() {
    let worker = TestWorker::new().await;
    let work = worker.fixture.accept(account(1), 1).await;
    let body = forged(&[work]);
    worker.fixture.send_body(&body).await;
    worker.faults.fail(&["Ledger::transaction"]);
    for _ in 0..2 * DEQUEUE_COUNT_MAX {
        worker.handle_next().await;
        assert_eq!(worker.bodies().await, std::slice::from_ref(&body), "an outage adds no seal");
    }
    worker.faults.heal();
    worker.handle_next().await;
    worker.handle_next().await;
    assert_eq!((worker.fixture.balance(1).await.as_str(), worker.fixture.depth().await), ("1.00", 0));
    assert_eq!(worker.fixture.dead_letters().await.len(), 0);
}

#[tokio::test]
async fn work_that_was_read_from_its_row_may_be_sealed() {
    let worker = TestWorker::new().await;
    let work = worker.fixture.accept(account(1), 1).await;
    worker.fixture.send_body(&forged(std::slice::from_ref(&work))).await;
    worker.faults.fail(&["Ledger::commit"]);
    worker.handle_next().await;
    let bodies = worker.bodies().await;
    assert_eq!(envelope_in(&bodies[0]).items, [work], "the content of the row");
    worker.faults.heal();
    worker.handle_next().await;
    assert_eq!(worker.fixture.balance(1).await, "1.00");
}

#[tokio::test]
async fn names_whose_rows_do_not_fit_in_a_message_keep_their_body() {
    let worker = TestWorker::new().await;
    let long = "r".repeat(140);
    let mut names = Vec::new();
    for message in 0..300 {
        let details = Details::from_stored(Some(long.clone()), BTreeMap::new(), String::new());
        let deposit = Instruction { details, ..instruction(TransactionKind::Deposit) };
        let TransactionKey { account, partner, message } =
            worker.fixture.accept_as(deposit, account(1), message).await.submission.key;
        let (user, account) = (account.user.simple(), account.account.simple());
        names.push(format!(r#"{{"u":"{user}","c":"{account}","p":"{partner}","m":"{}"}}"#, message.simple()));
    }
    let body = format!(r#"{{"v":1,"items":[{}]}}"#, names.join(",")).into_bytes();
    worker.fixture.send_body(&body).await;
    worker.faults.fail(&["Ledger::commit"]);
    worker.handle_next().await;
    assert_eq!(worker.bodies().await, [body]);
    worker.faults.heal();
    for _ in 0..30 {
        worker.handle_next().await;
    }
    assert_eq!((worker.fixture.balance(1).await.as_str(), worker.fixture.depth().await), ("300.00", 0));
}

#[tokio::test]
async fn counters_without_a_seal_do_not_count() {
    let worker = TestWorker::new().await;
    let work = worker.fixture.accept(account(1), 1).await;
    let attempts = worker.fixture.ended_attempts().await;
    let attempted = Envelope { attempts, ..Envelope::of(vec![work]) };
    worker.fixture.send_body(&unsealed(&attempted.encode(&seal()))).await;
    for _ in 0..=DEQUEUE_COUNT_MAX {
        let _ = worker.fixture.receive(Duration::ZERO).await;
    }
    worker.handle_next().await;
    assert_eq!(
        (worker.fixture.balance(1).await.as_str(), worker.fixture.dead_letters().await.len()),
        ("1.00", 0)
    );
}

#[tokio::test]
async fn work_that_was_never_accepted_becomes_a_dead_letter_and_the_rest_posts() {
    let worker = TestWorker::new().await;
    let known = worker.fixture.accept(account(1), 1).await;
    let key = TransactionKey { account: account(2), ..known.key().clone() };
    let submission = Submission { key, ..known.submission.clone() };
    let unknown = Work { submission, ..known.clone() };
    worker.fixture.send_body(&forged(&[unknown, known])).await;
    worker.handle_next().await;
    worker.handle_next().await;
    assert_eq!([worker.fixture.balance(1).await, worker.fixture.balance(2).await], ["1.00", "0.00"]);
    let letters = worker.fixture.dead_letters().await;
    assert_eq!((letters.len(), worker.fixture.depth().await), (1, 0));
    assert!(letters[0].reason.contains("was never accepted"), "{}", letters[0].reason);
    assert!(!seal().verify(Purpose::Message, &letters[0].body), "the dead letter has no seal either");
    // A replay does not add a seal: the work becomes a dead letter again.
    let bank = worker.fixture.bank();
    let _ = bank.dead_letters.replay(&letters[0].id, "operator").await.unwrap();
    let bodies = worker.bodies().await;
    assert!(bodies.len() == 1 && !seal().verify(Purpose::Message, &bodies[0]));
    worker.handle_next().await;
    assert_eq!(
        (worker.fixture.dead_letters().await.len(), worker.fixture.balance(2).await.as_str()),
        (1, "0.00")
    );
}

#[tokio::test]
async fn an_unknown_version_waits_if_it_is_sealed_and_becomes_a_dead_letter_if_not() {
    let worker = TestWorker::new().await;
    let newer = br#"{"v":99,"anything":"else"}"#.to_vec();
    worker.fixture.send_body(&newer).await;
    worker.handle_next().await;
    assert_eq!((worker.fixture.dead_letters().await.len(), worker.fixture.depth().await), (1, 0));
    let sealed = seal().seal(Purpose::Message, newer);
    worker.fixture.send_body(&sealed).await;
    worker.handle_next().await;
    assert_eq!((worker.fixture.dead_letters().await.len(), worker.bodies().await), (1, vec![sealed]));
}

#[tokio::test]
async fn an_unsealed_message_does_not_post_the_work_of_a_dead_letter() {
    let worker = TestWorker::new().await;
    let work = worker.fixture.accept(account(1), 1).await;
    worker.fixture.send(vec![work.clone()]).await;
    let message = worker.fixture.receive(VISIBILITY).await.remove(0);
    let bank = worker.fixture.bank();
    bank.dead_letters
        .set_aside(&queue(), &message, &held_in(&message.body), "needs an operator")
        .await
        .unwrap();
    let _ = worker.fixture.store.queue.delete(&queue(), &message.lease).await.unwrap();
    worker.fixture.send_body(&forged(std::slice::from_ref(&work))).await;
    worker.handle_next().await;
    assert_eq!((worker.fixture.balance(1).await.as_str(), worker.fixture.depth().await), ("0.00", 0));
    let _ = bank.dead_letters.replay(&message.lease.message_id, "operator").await.unwrap();
    worker.handle_next().await;
    assert_eq!(worker.fixture.balance(1).await, "1.00", "an operator may post it");
}

/// Discarding an unsealed dead letter rejects no work that is underway.
#[tokio::test]
async fn discarding_an_unsealed_dead_letter_rejects_only_marked_work() {
    let worker = TestWorker::new().await;
    let work = worker.fixture.accept(account(1), 1).await;
    worker.fixture.send_body(&forged(std::slice::from_ref(&work))).await;
    let message = worker.fixture.receive(VISIBILITY).await.remove(0);
    let bank = worker.fixture.bank();
    bank.dead_letters
        .set_aside(&queue(), &message, &held_in(&message.body), "names work that is underway")
        .await
        .unwrap();
    let row = async || worker.fixture.store.ledger.transaction(&work.submission.key).await.unwrap().unwrap();
    assert!(!row().await.marks.dead_letter, "an unsealed name marks nothing");
    let _ = bank.dead_letters.discard(&message.lease.message_id, "operator").await.unwrap();
    assert!(row().await.outcome.is_none(), "the work is still to be posted");
    // It was set aside with its mark.
    let marks = Marks { dead_letter: true, ..row().await.marks };
    let _ =
        worker.fixture.store.ledger.mark(&work.submission.key, &row().await.revision, marks).await.unwrap();
    worker.fixture.send_body(&unsealed(&Envelope::of(vec![work.clone()]).encode(&seal()))).await;
    let message = worker.fixture.receive(VISIBILITY).await.remove(0);
    bank.dead_letters
        .set_aside(&queue(), &message, &held_in(&message.body), "set aside with a mark")
        .await
        .unwrap();
    let _ = bank.dead_letters.discard(&message.lease.message_id, "operator").await.unwrap();
    assert!(row().await.outcome.is_some());
}

#[tokio::test]
async fn a_payload_is_trusted_only_under_its_own_seal() {
    let worker = TestWorker::new().await;
    let work = [worker.fixture.accept(account(1), 1).await, worker.fixture.accept(account(2), 2).await];
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(&unsealed(&forged(&work))).unwrap();
    worker.fixture.store.payloads.put("work-7", &gzip.finish().unwrap()).await.unwrap();
    // The bank seals both: the payload was replaced, and its other items are nowhere else.
    let claim = Claim::on("work-7".to_owned()).encode(&seal());
    worker.fixture.send_body(&claim).await;
    worker.handle_next().await;
    assert_eq!((worker.meter.payloads_missing.get(), worker.fixture.depth().await), (1, 1));
    assert_eq!([worker.fixture.balance(1).await, worker.fixture.balance(2).await], ["0.00", "0.00"]);
    worker.fixture.world.advance(Duration::from_secs(60));
    let received = worker.fixture.receive(VISIBILITY).await.remove(0);
    let _ = worker.fixture.store.queue.delete(&queue(), &received.lease).await.unwrap();
    // A process that did not know the secret yet may have written both.
    worker.fixture.send_body(&unsealed(&claim)).await;
    worker.handle_next().await;
    assert_eq!([worker.fixture.balance(1).await, worker.fixture.balance(2).await], ["1.00", "1.00"]);
    assert_eq!((worker.meter.unsealed.get(), worker.fixture.depth().await), (1, 0));
    // An unsealed claim on a sealed payload: the work is trusted, the counters of the claim are not.
    let more = worker.fixture.accept(account(3), 3).await;
    let claims = ClaimCheck::new(&worker.fixture.store, &seal(), worker.fixture.world.clone());
    let kept = claims.put(Envelope::of(vec![more])).await.unwrap();
    let attempts = worker.fixture.ended_attempts().await;
    let claim = Claim { attempts, ..Claim::on(kept.payload.unwrap()) };
    worker.fixture.send_body(&unsealed(&claim.encode(&seal()))).await;
    worker.handle_next().await;
    assert_eq!(
        (worker.fixture.balance(3).await.as_str(), worker.fixture.dead_letters().await.len()),
        ("1.00", 0)
    );
}
