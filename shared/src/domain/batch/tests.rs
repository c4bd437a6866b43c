use super::*;
use crate::testing::prelude::*;
use uuid::Uuid;

fn at() -> Timestamp {
    Timestamp::from_unix_ms(1_800_000_000_000)
}

/// One operation.
fn operations() -> OperationCounts {
    let mut operations = OperationCounts::default();
    operations.add("table", 1);
    operations
}

fn euros(cents: i64) -> Amount {
    Amount::try_new(cents, Currency::parse("EUR").unwrap()).unwrap()
}

fn totals(items: &[(ItemStatus, i64)]) -> Totals {
    let mut totals = Totals::default();
    let kind = TransactionKind::Deposit;
    items.iter().for_each(|(status, cents)| totals.record(*status, kind, euros(*cents)));
    totals
}

/// A batch with items of these amounts.
fn received(cents: &[i64]) -> Batch {
    let mut valid = Tally::default();
    cents.iter().for_each(|cents| valid.add(TransactionKind::Deposit, euros(*cents)));
    let key = BatchKey {
        partner: PartnerId::parse("shop").unwrap(),
        batch: BatchId::from_uuid(Uuid::from_u128(7)),
    };
    let (parts, content) = (Digest([1; 32]), Digest([2; 32]));
    let document = Document { upload: Uuid::from_u128(8), parts, content, valid, invalid: 1 };
    Batch::received(key, OnInvalid::Skip, document, at(), operations())
}

fn manifest(chunks: u32) -> Manifest {
    Manifest { split: Uuid::from_u128(9), digest: Digest([3; 32]), chunks }
}

fn posting(cents: &[i64], chunks: u32) -> Batch {
    received(cents).split().unwrap().post(manifest(chunks), at(), &operations()).unwrap()
}

#[test]
fn every_chunk_counts_once_and_the_last_one_allows_completion() {
    let mut batch = posting(&[100, 250, 5], 2);
    let first = totals(&[(ItemStatus::Posted, 100), (ItemStatus::Rejected, 5)]);
    let second = totals(&[(ItemStatus::Replayed, 250)]);
    assert_eq!(batch.count(1, Digest([4; 32]), &first, &operations()), Ok(true));
    let before = batch.clone();
    assert_eq!(batch.count(1, Digest([5; 32]), &first, &operations()), Ok(false), "told twice");
    assert_eq!(batch.count(2, Digest([6; 32]), &second, &operations()), Err(PhaseError::NoSuchChunk(2)));
    assert_eq!(batch, before);
    assert_eq!(batch.clone().complete(Digest([7; 32]), at(), &operations()), Err(PhaseError::Missing(1)));
    assert_eq!(batch.count(0, Digest([6; 32]), &second, &operations()), Ok(true));
    let mut batch = batch.complete(Digest([7; 32]), at(), &operations()).unwrap();
    let Phase::Completed { totals, .. } = &batch.phase else { panic!("{:?}", batch.phase) };
    assert_eq!(totals.of(ItemStatus::Replayed).count, 1);
    assert_eq!(totals.sum(), batch.document.valid);
    assert_eq!(
        batch.operations.iter().collect::<Vec<_>>(),
        [("table", 5)],
        "what was told twice counts once"
    );
    assert_eq!(batch.count(0, Digest([6; 32]), &second, &operations()), Ok(false), "told after the end");
}

#[test]
fn totals_that_differ_from_the_document_do_not_complete() {
    for wrong in [
        totals(&[(ItemStatus::Posted, 100)]),
        totals(&[(ItemStatus::Posted, 100), (ItemStatus::Posted, 251)]),
    ] {
        let mut batch = posting(&[100, 250], 1);
        assert_eq!(batch.count(0, Digest([4; 32]), &wrong, &operations()), Ok(true));
        assert_eq!(batch.complete(Digest([4; 32]), at(), &operations()), Err(PhaseError::Unbalanced));
    }
}

#[test]
fn a_batch_is_cancelled_before_it_is_posted_and_not_later() {
    let batch = received(&[100]);
    for early in [batch.clone(), batch.split().unwrap()] {
        let cancelled = early.cancel(at()).unwrap();
        assert_eq!(cancelled.clone().split(), Err(PhaseError::Phase("cancelled")));
        assert_eq!(
            cancelled.clone().post(manifest(1), at(), &operations()),
            Err(PhaseError::Phase("cancelled"))
        );
        let counted = cancelled.clone().count(0, Digest([4; 32]), &Totals::default(), &operations());
        assert_eq!(counted, Err(PhaseError::Phase("cancelled")));
        assert_eq!(cancelled.cancel(at()), Err(PhaseError::Phase("cancelled")));
    }
    assert_eq!(posting(&[100], 1).cancel(at()), Err(PhaseError::Phase("posting")));
}

#[test]
fn the_manifest_of_a_second_initiator_is_refused() {
    let batch = received(&[100]);
    assert_eq!(batch.clone().post(manifest(1), at(), &operations()), Err(PhaseError::Phase("received")));
    let batch = batch.split().unwrap().split().unwrap().post(manifest(1), at(), &operations()).unwrap();
    assert_eq!(batch.clone().split(), Err(PhaseError::Phase("posting")));
    assert_eq!(batch.post(manifest(2), at(), &operations()), Err(PhaseError::Phase("posting")));
}

#[test]
fn sums_are_kept_for_each_currency() {
    let yen = Amount::try_new(999_999_999_999_999_999, Currency::parse("JPY").unwrap()).unwrap();
    let mut tally = Tally::default();
    (0..20).for_each(|_| tally.add(TransactionKind::Withdrawal, yen));
    tally.add(TransactionKind::Deposit, euros(3));
    tally.add(TransactionKind::Withdrawal, euros(4));
    let mut stored = Tally { count: tally.count, ..Tally::default() };
    let [euro, yen] = ["EUR", "JPY"].map(|code| Currency::parse(code).unwrap());
    stored.put(Flow::of(yen, TransactionKind::Withdrawal), 19_999_999_999_999_999_980);
    stored.put(Flow::of(euro, TransactionKind::Deposit), 3);
    stored.put(Flow::of(euro, TransactionKind::Withdrawal), 4);
    assert_eq!((&tally, tally.sum_of(euro)), (&stored, 7));
}
