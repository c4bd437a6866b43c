use std::collections::BTreeSet;

use tokio::task::yield_now;

use super::*;
use crate::oversight::audit::Outcome;
use crate::testing::prelude::*;

/// A store shared by processes that record acts.
struct Bank {
    store: Store,
    world: Arc<TestWorld>,
    control: Arc<Control>,
}

impl Bank {
    fn new() -> Self {
        let world = Arc::new(TestWorld::new(1));
        let mut store = MemoryStore::new(world.clone());
        let control = Arc::<Control>::default();
        control.apply(&mut store);
        Self { store, world, control }
    }

    fn process(&self) -> Arc<AuditTrail> {
        Arc::new(AuditTrail::new(&self.store, self.world.clone()))
    }

    /// Advances the clock until a future completes. Test tasks run in between.
    async fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let time_passes = async {
            loop {
                for _ in 0..20 {
                    yield_now().await;
                }
                self.world.advance(Duration::from_millis(100));
            }
        };
        match select(std::pin::pin!(future), std::pin::pin!(time_passes)).await {
            Either::Left((ended, _)) => ended,
            Either::Right((never, _)) => never,
        }
    }

    /// Checks the chain, and returns the targets in row order.
    async fn targets(&self) -> Vec<String> {
        let mut rows = self.process().list(None, 1000).await.unwrap();
        rows.reverse();
        let mut after = (0, PageHash::GENESIS);
        for row in &rows {
            assert_eq!(*row, AuditRow::after(after, row.done.clone()), "no gap, and no fork");
            after = (row.sequence, row.hash);
        }
        let head = Some(after).filter(|(sequence, _)| *sequence > 0);
        assert_eq!(self.process().head().await.unwrap(), head);
        rows.into_iter().map(|row| row.done.target).collect()
    }
}

async fn record(trail: &Arc<AuditTrail>, number: u32) {
    let on = AuditTarget::one("number", number);
    trail.record(&Event::by_operator("gate.change", on, Outcome::Done)).await;
}

#[tokio::test]
async fn only_acts_that_were_done_are_rows() {
    let bank = Bank::new();
    let trail = bank.process();
    assert_eq!(trail.head().await.unwrap(), None);
    for outcome in [Outcome::Refused("scope_missing"), Outcome::Failed("storage_unavailable")] {
        trail.record(&Event::by_operator("key.add", AuditTarget::nothing(), outcome)).await;
    }
    assert_eq!(bank.targets().await, [""; 0]);
    let on = AuditTarget::one("partner_id", "mill").and("scopes", "read");
    let event = Event { who: "shop", key: "17", act: "key.add", on, outcome: Outcome::Done, from: "[::1]:7" };
    trail.record(&event).await;
    let rows = trail.list(None, 10).await.unwrap();
    let done = &rows[0].done;
    assert_eq!((rows.len(), rows[0].sequence, done.at), (1, 1, bank.world.now()));
    let texts = [&done.actor, &done.key_id, &done.act, &done.target, &done.origin].map(String::as_str);
    assert_eq!(texts, ["shop", "17", "key.add", "partner_id=mill scopes=read", "[::1]:7"]);
}

#[tokio::test]
async fn rows_are_listed_in_pages_from_the_last_one_on() {
    let bank = Bank::new();
    let trail = bank.process();
    for number in 1..=12 {
        record(&trail, number).await;
    }
    let page = async |before, limit| -> Vec<u64> {
        trail.list(before, limit).await.unwrap().iter().map(|row| row.sequence).collect()
    };
    assert_eq!(page(None, 3).await, [12, 11, 10]);
    assert_eq!(page(Some(10), 3).await, [9, 8, 7]);
    assert_eq!(page(Some(3), 3).await, [2, 1]);
    assert_eq!(page(Some(1), 3).await, [0; 0]);
    assert_eq!(page(Some(1000), 1).await, [12]);
}

#[tokio::test]
async fn processes_that_append_at_the_same_time_make_one_chain() {
    let bank = Bank::new();
    let processes = [bank.process(), bank.process(), bank.process()];
    let acts = (0..90_u32).map(|number| {
        let trail = Arc::clone(&processes[usize::try_from(number % 3).unwrap()]);
        async move { record(&trail, number).await }
    });
    bank.run(futures::future::join_all(acts)).await;
    let targets: BTreeSet<String> = bank.targets().await.into_iter().collect();
    assert_eq!(targets.len(), 90, "each act has one row");
    assert_eq!(bank.targets().await.len(), 90);
}

#[tokio::test]
async fn a_lost_answer_makes_no_second_row() {
    let bank = Bank::new();
    let (one, other) = (bank.process(), bank.process());
    record(&one, 1).await;
    bank.control.set_once("Records::save", || Effect::AnswerIsLost(faults::unavailable()));
    bank.run(record(&one, 2)).await;
    record(&other, 3).await;
    // This process still knows the second row as the last one.
    bank.run(record(&one, 4)).await;
    assert_eq!(bank.targets().await, ["number=1", "number=2", "number=3", "number=4"]);
    assert_eq!(one.missing(), 0);
}

#[tokio::test]
async fn an_act_during_an_outage_is_counted_until_the_store_takes_its_row() {
    let bank = Bank::new();
    let trail = bank.process();
    bank.control.fail(&["Records::save"]);
    let started = bank.world.uptime();
    bank.run(record(&trail, 1)).await;
    let waited = bank.world.uptime().saturating_sub(started);
    assert!(waited >= WAIT_MAX && waited < WAIT_MAX * 2, "{waited:?}");
    assert_eq!(trail.missing(), 1);
    assert_eq!(bank.targets().await, [""; 0]);
    bank.control.heal();
    let is_written = async {
        while trail.missing() > 0 {
            yield_now().await;
        }
    };
    bank.run(is_written).await;
    assert_eq!(bank.targets().await, ["number=1"]);
    record(&trail, 2).await;
    assert_eq!(bank.targets().await, ["number=1", "number=2"]);
}

#[tokio::test]
async fn a_removed_last_row_is_not_replaced() {
    let bank = Bank::new();
    for number in 1..=3 {
        record(&bank.process(), number).await;
    }
    bank.store.records.remove(Collection::AuditRows, &body::id(3)).await.unwrap();
    record(&bank.process(), 4).await;
    let sequences = bank.process().list(None, 10).await.unwrap();
    let sequences: Vec<u64> = sequences.iter().map(|row| row.sequence).collect();
    assert_eq!(sequences, [4, 2, 1]);
}
