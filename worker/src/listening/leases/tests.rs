use super::*;
use postonce_shared::testing::prelude::*;

const DURATION: Duration = Duration::from_secs(10);

fn workers(count: u128) -> Vec<Uuid> {
    (1..=count).map(Uuid::from_u128).collect()
}

#[test]
fn queues_are_distributed_evenly() {
    for count in 1..=9 {
        for queues in 1..=8 {
            let workers = workers(count);
            let shares: Vec<usize> = workers
                .iter()
                .map(|worker| {
                    (0..queues).filter(|index| is_assigned(&workers, *worker, *index, queues)).count()
                })
                .collect();
            for index in 0..queues {
                assert!(workers.iter().any(|worker| is_assigned(&workers, *worker, index, queues)));
            }
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(
                most - least <= 1 && *least >= 1.min(queues / workers.len()),
                "{count} {queues} {shares:?}"
            );
        }
    }
    assert!(
        is_assigned(&[], Uuid::from_u128(1), 3, 4),
        "without leases, each queue is assigned to every worker"
    );
    assert!(
        !is_assigned(&workers(2), Uuid::from_u128(7), 3, 4),
        "no queue is assigned to a worker without a lease"
    );
}

struct Stage {
    world: Arc<TestWorld>,
    sync: Arc<dyn SyncStore>,
    queues: Vec<QueueName>,
}

impl Stage {
    fn new() -> Self {
        let world = Arc::new(TestWorld::new(1));
        let sync = MemoryStore::new(world.clone()).sync;
        Self { world, sync, queues: (0..4).map(|index| QueueName::of_partition("work", index)).collect() }
    }

    fn worker(&self, id: u128) -> QueueLeases {
        let (queues, sync) = (self.queues.clone(), Arc::clone(&self.sync));
        QueueLeases::new(Uuid::from_u128(id), "work", queues, sync, self.world.clone(), DURATION)
    }

    fn mine(&self, leases: &QueueLeases) -> Vec<usize> {
        (0..4).filter(|index| leases.is_mine(&self.queues[*index])).collect()
    }
}

#[tokio::test]
async fn queues_are_shared_and_reassigned_when_a_lease_expires() {
    let stage = Stage::new();
    let (one, two) = (stage.worker(1), stage.worker(2));
    assert_eq!(stage.mine(&one), [0, 1, 2, 3]);
    one.renew().await;
    two.renew().await;
    assert_eq!(stage.mine(&two), [1, 3]);
    assert_eq!(stage.mine(&one), [0, 1, 2, 3], "it has not read the leases yet");
    one.renew().await;
    assert_eq!(stage.mine(&one), [0, 1, 2, 3], "until the other worker has certainly read the change");
    stage.world.advance(DURATION / 2);
    two.renew().await;
    assert_eq!(stage.mine(&one), [0, 2]);
    one.renew().await;
    assert_eq!(stage.mine(&one), [0, 2]);

    // The second worker dies.
    stage.world.advance(DURATION / 2);
    one.renew().await;
    assert_eq!(stage.mine(&one), [0, 2]);
    assert_eq!(one.others_expire_in(), Some(DURATION / 2));
    stage.world.advance(DURATION / 2);
    assert_eq!(stage.mine(&one), [0, 1, 2, 3]);

    // A third worker without a lease leaves the queues to the first one until that lease is released.
    let three = stage.worker(3);
    one.renew().await;
    three.refresh().await;
    stage.world.advance(DURATION / 2);
    assert_eq!(stage.mine(&three), [0_usize; 0]);
    one.release().await;
    assert_eq!((stage.mine(&one), one.is_held()), (vec![0, 1, 2, 3], false));
    three.refresh().await;
    assert_eq!(stage.mine(&three), [0, 1, 2, 3]);
}

#[tokio::test]
async fn an_unreadable_value_is_replaced() {
    let stage = Stage::new();
    let _ = stage.sync.swap("leases-work", None, "nonsense").await.unwrap();
    let one = stage.worker(1);
    one.renew().await;
    assert!(one.is_held());
    let two = stage.worker(2);
    two.refresh().await;
    stage.world.advance(DURATION / 2);
    assert!(!two.is_mine(&stage.queues[0]));
}
