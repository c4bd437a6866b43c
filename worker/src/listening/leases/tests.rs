use super::*;
use postonce_shared::adapters::memory::MemoryStore;
use postonce_shared::adapters::memory::world::TestWorld;

const DURATION: Duration = Duration::from_secs(10);

fn workers(count: u128) -> Vec<Uuid> {
    (1..=count).map(Uuid::from_u128).collect()
}

#[test]
fn every_queue_has_somebody_and_nobody_has_too_many() {
    for count in 1..=9 {
        for queues in 1..=8 {
            let workers = workers(count);
            let shares: Vec<usize> = workers
                .iter()
                .map(|worker| (0..queues).filter(|place| tends(&workers, *worker, *place, queues)).count())
                .collect();
            for place in 0..queues {
                assert!(workers.iter().any(|worker| tends(&workers, *worker, place, queues)));
            }
            let (least, most) = (shares.iter().min().unwrap(), shares.iter().max().unwrap());
            assert!(
                most - least <= 1 && *least >= 1.min(queues / workers.len()),
                "{count} {queues} {shares:?}"
            );
        }
    }
    assert!(tends(&[], Uuid::from_u128(1), 3, 4), "without leases everybody tends to everything");
    assert!(!tends(&workers(2), Uuid::from_u128(7), 3, 4), "who has no lease leaves it to those who have");
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
        Self { world, sync, queues: (0..4).map(|place| QueueName::of_partition("work", place)).collect() }
    }

    fn worker(&self, id: u128) -> QueueLeases {
        let (queues, sync) = (self.queues.clone(), Arc::clone(&self.sync));
        QueueLeases::new(Uuid::from_u128(id), "work", queues, sync, self.world.clone(), DURATION)
    }

    fn mine(&self, leases: &QueueLeases) -> Vec<usize> {
        (0..4).filter(|place| leases.is_mine(&self.queues[*place])).collect()
    }
}

#[tokio::test]
async fn queues_are_shared_out_and_pass_on_when_a_lease_expires() {
    let stage = Stage::new();
    let (one, two) = (stage.worker(1), stage.worker(2));
    assert_eq!(stage.mine(&one), [0, 1, 2, 3]);
    one.renew().await;
    two.renew().await;
    assert_eq!(stage.mine(&two), [1, 3]);
    assert_eq!(stage.mine(&one), [0, 1, 2, 3], "it did not look yet");
    one.renew().await;
    assert_eq!(stage.mine(&one), [0, 1, 2, 3], "until the other one has seen it for sure");
    stage.world.advance(DURATION / 2);
    two.renew().await;
    assert_eq!(stage.mine(&one), [0, 2]);
    one.renew().await;
    assert_eq!(stage.mine(&one), [0, 2]);

    // The second one dies.
    stage.world.advance(DURATION / 2);
    one.renew().await;
    assert_eq!(stage.mine(&one), [0, 2]);
    assert_eq!(one.others_left(), Some(DURATION / 2));
    stage.world.advance(DURATION / 2);
    assert_eq!(stage.mine(&one), [0, 1, 2, 3]);

    // A third one that has no lease leaves the queues to the first, until that one gives its back.
    let three = stage.worker(3);
    one.renew().await;
    three.look().await;
    stage.world.advance(DURATION / 2);
    assert_eq!(stage.mine(&three), [0_usize; 0]);
    one.release().await;
    assert_eq!((stage.mine(&one), one.is_held()), (vec![0, 1, 2, 3], false));
    three.look().await;
    assert_eq!(stage.mine(&three), [0, 1, 2, 3]);
}

#[tokio::test]
async fn a_value_that_nobody_can_read_is_written_anew() {
    let stage = Stage::new();
    let _ = stage.sync.swap("leases-work", None, "nonsense").await.unwrap();
    let one = stage.worker(1);
    one.renew().await;
    assert!(one.is_held());
    let two = stage.worker(2);
    two.look().await;
    stage.world.advance(DURATION / 2);
    assert!(!two.is_mine(&stage.queues[0]));
}
