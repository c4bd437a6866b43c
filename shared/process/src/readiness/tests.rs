use postonce_shared::adapters::memory::world::TestWorld;
use postonce_shared::ports::fault::Cause;
use postonce_shared::testing::captured_output::Written;

use super::*;

/// Runs all tasks until they wait.
async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_outage_is_a_warning_an_error_after_a_minute_and_a_warning_at_its_end() {
    let written = Written::default();
    let lines = || written.lines().iter().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    let writer = written.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).without_time();
    let subscriber = subscriber.with_target(false);
    let _guard = tracing::subscriber::set_default(subscriber.with_ansi(false).finish());
    let test_world = Arc::new(TestWorld::new(1));
    let world: Arc<dyn World> = Arc::<TestWorld>::clone(&test_world);
    let readiness = Readiness::starting([Part::Queue], &world);
    let no_answer = || Cause::from(std::io::Error::other("no answer"));
    let unavailable = || Err(StoreFault::Unavailable { doing: "probe", source: no_answer() });
    let meter = Arc::<Meter>::default();
    world.spawn(Arc::clone(&readiness).follow(Arc::clone(&meter), StoreFiles::none()).boxed());
    settle().await;

    // The same fault occurs in many transactions of a worker. Another part is missing from the start.
    for _ in 0..100 {
        meter.ledger_unavailable.notify_one();
        settle().await;
        readiness.probed(Part::Queue, unavailable());
    }
    let begins = [
        "WARN Not ready, ledger is missing: the ledger does not answer reads and writes part=\"ledger\"",
        "WARN Not ready since the start, queue is missing: the queue does not answer part=\"queue\"",
    ];
    assert_eq!(lines(), begins);
    test_world.advance(LONG_OUTAGE.saturating_sub(Duration::from_millis(1)));
    settle().await;
    assert_eq!(lines().len(), 2, "{:#?}", lines());
    test_world.advance(Duration::from_millis(1));
    settle().await;
    let mut errors = lines().split_off(2);
    errors.sort();
    assert!(errors[0].starts_with("ERROR Not ready for 60s, ledger is missing"), "{errors:#?}");
    assert!(errors[1].starts_with("ERROR Not ready for 60s, queue is missing"), "{errors:#?}");
    test_world.advance(Duration::from_secs(5));
    readiness.probed(Part::Ledger, Ok(()));
    readiness.probed(Part::Queue, Ok(()));
    let ends = lines().split_off(4);
    assert_eq!(
        ends,
        ["ledger", "queue"]
            .map(|code| format!("WARN The outage of 65.0s ended: {code} is available part=\"{code}\""))
    );
}

#[tokio::test]
async fn rights_are_missing_while_one_is_or_no_check_succeeds_but_not_for_ever() {
    let world: Arc<dyn World> = Arc::new(TestWorld::new(1));
    let reasons = |readiness: &Readiness| {
        readiness.missing().into_iter().map(|missing| missing.reason).collect::<Vec<_>>()
    };
    let fails = |readiness: &Readiness, works: bool, times: u32| {
        for _ in 0..times {
            let source = Cause::from(std::io::Error::other("no answer"));
            readiness.unchecked(StoreFault::Unavailable { doing: "probe", source }, works);
        }
    };
    let unknown = Part::Rights.reason();
    let readiness = Readiness::starting([Part::Rights], &world);
    fails(&readiness, true, RIGHTS_CHECKS_MAX);
    assert_eq!(reasons(&readiness), [unknown]);
    readiness.checked(vec!["a role".to_owned(), "another".to_owned()]);
    let lacking = ["the process lacks at the storage: a role, another"];
    assert_eq!(reasons(&readiness), lacking);
    fails(&readiness, true, 100);
    assert_eq!(reasons(&readiness), lacking, "a right that is known to be missing stays so");
    readiness.checked(Vec::new());
    assert_eq!(reasons(&readiness), Vec::<String>::new());

    let readiness = Readiness::starting([Part::Rights], &world);
    fails(&readiness, false, 100);
    assert_eq!(reasons(&readiness), [unknown], "the whole store fails");
    fails(&readiness, true, RIGHTS_CHECKS_MAX);
    assert_eq!(reasons(&readiness), [unknown]);
    fails(&readiness, true, 1);
    assert_eq!(reasons(&readiness), Vec::<String>::new());
}
