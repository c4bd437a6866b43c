//! Dead letters, stored by id. A cursor is the last id of the previous page.

use std::collections::BTreeMap;
use std::ops::Bound;

use async_trait::async_trait;

use super::MemoryStore;
use crate::ports::dead_letters::{DeadLetter, DeadLetters, Resolution};
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Listing;
use crate::ports::queue::QueueName;

#[async_trait]
impl DeadLetters for MemoryStore {
    async fn add(&self, letter: &DeadLetter) -> Result<(), StoreFault> {
        self.count_row("insert");
        self.step(|tables| {
            tables.dead_letters.entry(letter.id.clone()).or_insert_with(|| letter.clone());
        });
        Ok(())
    }

    async fn find(&self, id: &str) -> Result<Option<DeadLetter>, StoreFault> {
        self.count_row("get");
        Ok(self.step(|tables| tables.dead_letters.get(id).cloned()))
    }

    async fn list(
        &self,
        open_only: bool,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<DeadLetter>, StoreFault> {
        self.count_query();
        let start = cursor.map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.step(|tables| {
            let letters = tables.dead_letters.range::<str, _>((start, Bound::Unbounded));
            let found =
                letters.map(|(_, letter)| letter).filter(|letter| !open_only || letter.resolution.is_none());
            Listing::first_of(found.cloned(), limit, |letter| letter.id.clone())
        }))
    }

    async fn resolve(&self, id: &str, resolution: &Resolution) -> Result<bool, StoreFault> {
        self.count_row("merge");
        Ok(self.step(|tables| match tables.dead_letters.get_mut(id) {
            Some(letter) if letter.resolution.is_none() => {
                letter.resolution = Some(resolution.clone());
                true
            }
            Some(_) | None => false,
        }))
    }

    async fn count_open(&self) -> Result<Vec<(QueueName, u64)>, StoreFault> {
        self.count_query();
        Ok(self.step(|tables| {
            let mut counts: BTreeMap<QueueName, u64> = BTreeMap::new();
            for letter in tables.dead_letters.values().filter(|letter| letter.resolution.is_none()) {
                let count = counts.entry(letter.queue.clone()).or_default();
                *count = count.saturating_add(1);
            }
            counts.into_iter().collect()
        }))
    }
}
