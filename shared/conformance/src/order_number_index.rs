//! Tests that transactions are found by their order numbers.

use std::collections::BTreeSet;

use crate::case::Case;
use postonce_shared::ports::order_number_index::{BLOCK_NUMBERS, RecordedNumbers, block_of};
use postonce_shared::testing::prelude::*;

/// Tests the contract of [`postonce_shared::ports::order_number_index::OrderNumberIndex`].
pub async fn order_number_index_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    postings_are_found(&case().await).await;
    recorded_numbers_stay(&case().await).await;
    recorded_numbers_are_read_in_order(&case().await).await;
}

/// Returns a number in the middle of a block that no other case uses.
fn number(case: &Case) -> OrderNumber {
    let block = block_of(OrderNumber::from_counter(OrderNumber::COUNTER_MAX - (case.world.random() >> 9)));
    OrderNumber::from_counter(block * BLOCK_NUMBERS + BLOCK_NUMBERS / 2)
}

fn next_to(number: OrderNumber, distance: u64) -> OrderNumber {
    OrderNumber::from_counter(number.counter() + distance)
}

async fn postings_are_found(case: &Case) {
    let index = &case.store.order_numbers;
    assert_eq!(index.find(number(case)).await.unwrap(), None, "no posting has this number");
    let account = case.opened().await.value.key;
    let accepted = case.settled(&[case.deposit(account, 1), case.deposit(account, 2)]).await;
    let inserted = case.inserted(&[case.deposit(account, 3), case.withdrawal(account, 1_000_000)]).await;
    let mut found = 0;
    for (key, outcome) in accepted.outcomes().chain(inserted.outcomes()) {
        let Some(number) = Outcome::order_number(outcome) else { continue };
        index.record(&[(number, key.clone())]).await.unwrap();
        assert_eq!(index.find(number).await.unwrap().as_ref(), Some(key), "a posting has its number");
        found += 1;
    }
    assert_eq!(found, 3, "the rejected one has no number");
}

async fn recorded_numbers_stay(case: &Case) {
    let index = &case.store.order_numbers;
    let key = || case.deposit(case.account_key(), 1).key;
    let first = number(case);
    let entries = [(first, key()), (next_to(first, 1), key()), (next_to(first, 49), key())];
    index.record(&entries[..1]).await.unwrap();
    let [one, two] = [index.record(&entries[1..2]), index.record(&entries[2..])];
    let (one, two) = futures::join!(one, two);
    one.and(two).unwrap();
    index.record(&entries[..1]).await.unwrap();
    for (number, key) in entries {
        let expected: Option<TransactionKey> = (!index.contains_every_posting()).then_some(key);
        assert_eq!(index.find(number).await.unwrap(), expected, "one of the block does not replace another");
    }
    assert_eq!(index.find(next_to(first, 2)).await.unwrap(), None, "its neighbor is not recorded");
}

async fn recorded_numbers_are_read_in_order(case: &Case) {
    let index = &case.store.order_numbers;
    let first = number(case);
    // Of seven blocks, in any order.
    let numbers = [0, 1, 350, 349, 100, 700, 720].map(|distance| next_to(first, distance));
    for number in numbers {
        index.record(&[(number, case.deposit(case.account_key(), 1).key)]).await.unwrap();
    }
    let (mut block, mut read) = (block_of(first), Vec::new());
    loop {
        let RecordedNumbers { numbers, next_block } = index.recorded(block).await.unwrap();
        assert!(numbers.iter().all(|number| block_of(*number) >= block), "they are after the start");
        assert!(next_block.is_none_or(|next| numbers.iter().all(|number| block_of(*number) < next)));
        read.extend(numbers);
        match next_block {
            Some(next) if read.last().is_none_or(|last| last.counter() < first.counter() + 800) => {
                block = next
            }
            Some(_) | None => break,
        }
    }
    assert!(read.is_sorted() && read.iter().collect::<BTreeSet<_>>().len() == read.len(), "in order, once");
    let own: BTreeSet<OrderNumber> = read.into_iter().filter(|number| numbers.contains(number)).collect();
    let expected = if index.contains_every_posting() { BTreeSet::new() } else { BTreeSet::from(numbers) };
    assert_eq!(own, expected, "all of them are read");
}
