//! Each kind of queue message, under the seal of the tests.

use postonce_shared::batches::messages::{ChunkOutcome, Named, with_attempts};
use postonce_shared::cluster::attempts::{Attempt, Attempts};
use postonce_shared::cluster::reply_to::ReplyTo;
use postonce_shared::domain::batch::{Digest, Totals};
use postonce_shared::domain::decision::Submission;
use postonce_shared::testing::prelude::*;
use uuid::Uuid;

use super::Lines;
use super::journal::{euro, full_details, work};

fn attempts() -> Attempts {
    Attempts::NONE
        .with(Attempt { process: ProcessId::from_uuid(Uuid::from_u128(0x33)), attempts_survived: 4 })
}

fn reply_to() -> Option<ReplyTo> {
    let proof = format!("1795248090000.{}", "0a".repeat(32));
    let reply_to = ReplyTo::read(Some("http://10.0.0.7:8080"), Some(&proof));
    assert!(reply_to.is_some());
    reply_to
}

fn envelope() -> Envelope {
    let traceparent = TraceParent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let origin = Origin { request_id: RequestId::parse("request-1").ok(), traceparent };
    let full = work(1, TransactionKind::Deposit, 1250, full_details());
    let full = Work { submission: Submission { origin, ..full.submission }, ..full };
    Envelope::of(vec![full, work(2, TransactionKind::Withdrawal, 1, Details::default())])
}

pub fn add(lines: &mut Lines) {
    let seal = seal();
    let plain = envelope();
    let full = Envelope { reply_to: reply_to(), forgiven: 3, attempts: attempts(), ..envelope() };
    let body = plain.encode(&seal);
    lines.text("message", body.clone());
    lines.text("message with a reply address, counters and attempts", full.encode(&seal));
    let without = unsealed(&body);
    let Ok(Body::Content(Content::Names(names))) = Body::decode(&without, &seal) else {
        panic!("without a seal it is a list of names")
    };
    lines.text("names", Names::body_of(names.items()));
    let claim = Claim::on("work-1".to_owned());
    lines.text("claim", claim.encode(&seal));
    let claim = Claim { reply_to: reply_to(), forgiven: 3, attempts: attempts(), ..claim };
    lines.text("claim with a reply address, counters and attempts", claim.encode(&seal));
    lines.text("payload, before compression", seal.seal(Purpose::Payload("work-1"), without));
    batches(lines);
}

fn batches(lines: &mut Lines) {
    let seal = seal();
    let key = BatchKey {
        partner: PartnerId::parse("shop").unwrap(),
        batch: BatchId::from_uuid(Uuid::from_u128(0x44)),
    };
    let named = Named::of(key.clone(), vec![3, 4]);
    lines.text("batch message", Named::of(key.clone(), Vec::new()).encode());
    lines.text("batch message with chunks", named.encode());
    let ends_stop = Some(Uuid::from_u128(0x55));
    lines.text("batch message that ends a stop", Named { ends_stop, ..named.clone() }.encode());
    lines.text("batch message with attempts", with_attempts(&named.encode(), &attempts(), &seal));
    let mut totals = Totals::default();
    totals.record(ItemStatus::Posted, TransactionKind::Deposit, Amount::try_new(1250, euro()).unwrap());
    let mut operations = OperationCounts::default();
    operations.add("table_batch", 2);
    let outcome = ChunkOutcome {
        key,
        split: Uuid::from_u128(0x66),
        chunk: 3,
        results: Digest([9; 32]),
        totals,
        operations,
    };
    let body = outcome.encode(&seal);
    lines.text("outcome of a chunk", body.clone());
    lines.text("outcome of a chunk with attempts", with_attempts(&body, &attempts(), &seal));
}
