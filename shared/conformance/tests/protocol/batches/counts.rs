//! The counters of a process that posts a batch.

use postonce_shared::domain::batch::ItemOutcome;
use postonce_shared::posting::posting_latency::{Decided, Way};

use super::payroll;
use super::rig::{Rig, batch_key};

#[tokio::test]
async fn each_item_counts_as_posted_or_rejected_also_on_accounts_that_do_not_exist() {
    let rig = Rig::new().await;
    let bank = rig.process();
    let (key, items) = (batch_key(1), payroll(500));
    let _ = rig.submit(&bank, &key, &items).await.unwrap();
    rig.run(&bank).await;
    let results = rig.results(&key).await;
    let is_rejected = |outcome: &ItemOutcome| matches!(outcome, ItemOutcome::Rejected(_));
    let rejected = u64::try_from(results.iter().filter(|it| is_rejected(&it.outcome)).count()).unwrap();
    assert!((1..500).contains(&rejected));
    assert_eq!(bank.latency.decided(Way::Batch), Decided { posted: 500 - rejected, rejected });
}
