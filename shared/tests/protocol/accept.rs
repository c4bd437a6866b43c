use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use postonce_shared::domain::ids::AccountId;
use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::domain::money::Currency;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::ledger::{AcceptGrouping, AcceptOutcome, Ledger, NewTransaction};
use postonce_shared::protocol::accept::{AcceptFault, Acceptance};
use postonce_shared::testing::decorators::LedgerDecorator;
use uuid::Uuid;

use crate::stage::{
    Countdown, Stage, TroubledLedger, TroubledQueue, deposit, instruction, key, submit, withdrawal,
};

#[tokio::test]
async fn first_time_then_replay_then_reuse() {
    let stage = Stage::new().await;
    let web = stage.process();
    let first = submit(&web, 7, deposit("12.50")).await.unwrap();
    let Acceptance::Accepted(transaction) = first else { panic!("{first:?}") };
    assert_eq!(submit(&web, 7, deposit("12.50")).await.unwrap(), Acceptance::Replayed(transaction));
    for other in [deposit("12.51"), withdrawal("12.50")] {
        assert_eq!(submit(&web, 7, other).await.unwrap(), Acceptance::KeyReused);
    }
    assert_eq!(stage.queued().await, 1, "a process that saw the send confirmed does not send again");
}

#[tokio::test]
async fn two_hundred_requests_with_one_id_are_one_transaction() {
    let stage = Stage::new().await;
    let webs = [stage.process(), stage.process()];
    let requests = (0..200_usize).map(|request| submit(&webs[request % 2], 7, deposit("1.00")));
    let answers = join_all(requests).await;
    let first = answers.iter().filter(|answer| matches!(answer, Ok(Acceptance::Accepted(_)))).count();
    let replayed = answers.iter().filter(|answer| matches!(answer, Ok(Acceptance::Replayed(_)))).count();
    assert_eq!((first, replayed), (1, 199));
    let work = stage.receive().await;
    assert!(!work.is_empty() && work.len() <= 2, "each web sends once at most, not {}", work.len());
}

/// Reaches over all accounts, and cannot read the row of one key.
struct OneRowDamaged(Arc<dyn Ledger>);

#[async_trait]
impl LedgerDecorator for OneRowDamaged {
    fn inner(&self) -> &dyn Ledger {
        &*self.0
    }

    fn accept_grouping(&self) -> AcceptGrouping {
        AcceptGrouping::AllAccounts
    }

    async fn accept(&self, group: &[NewTransaction]) -> Result<Vec<AcceptOutcome>, StoreFault> {
        if group.iter().any(|new| new.key == key(13)) {
            return Err(StoreFault::Corrupt { doing: "testing", source: "damaged".into() });
        }
        self.0.accept(group).await
    }
}

#[tokio::test]
async fn a_damaged_row_is_no_misfortune_of_others_in_the_group() {
    let stage = Stage::new().await;
    let web = stage.process_over(|store| store.ledger = Arc::new(OneRowDamaged(Arc::clone(&store.ledger))));
    let answers = join_all((10..30).map(|id| submit(&web, id, deposit("1.00")))).await;
    for (id, answer) in (10..30).zip(answers) {
        match answer {
            Err(AcceptFault::Log(_)) => assert_eq!(id, 13),
            other => assert!(id != 13 && matches!(other, Ok(Acceptance::Accepted(_))), "{id}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn without_a_confirmed_send_there_is_no_promise() {
    let stage = Stage::new().await;
    let sends_lost = Countdown::of(2);
    let web = stage.process_over(|store| {
        store.queue = Arc::new(TroubledQueue { inner: Arc::clone(&store.queue), sends_lost });
    });
    for _ in 0..2 {
        let answer = submit(&web, 7, deposit("1.00")).await;
        assert!(matches!(answer, Err(AcceptFault::Queue(_))), "{answer:?}");
    }
    assert_eq!(stage.queued().await, 0);
    // The row is there since the first request; the promise comes with the first send.
    assert!(matches!(submit(&web, 7, deposit("1.00")).await, Ok(Acceptance::Replayed(_))));
    assert_eq!(stage.queued().await, 1);
}

#[tokio::test]
async fn a_replay_at_a_second_web_sends_what_the_first_one_could_not() {
    let stage = Stage::new().await;
    let first = stage.process_over(|store| {
        let sends_lost = Countdown::of(1);
        store.queue = Arc::new(TroubledQueue { inner: Arc::clone(&store.queue), sends_lost });
    });
    assert!(submit(&first, 7, deposit("1.00")).await.is_err());
    drop(first);
    assert!(matches!(submit(&stage.process(), 7, deposit("1.00")).await, Ok(Acceptance::Replayed(_))));
    assert_eq!(stage.receive().await.len(), 1);
}

#[tokio::test]
async fn an_insert_whose_answer_was_lost_is_found_by_the_retry() {
    let stage = Stage::new().await;
    let web = stage.process_over(|store| {
        let mut ledger = TroubledLedger::over(&store.ledger);
        ledger.accept_answers_lost = Countdown::of(1);
        store.ledger = Arc::new(ledger);
    });
    assert!(matches!(submit(&web, 7, deposit("1.00")).await, Err(AcceptFault::Log(_))));
    assert!(matches!(submit(&web, 7, deposit("1.00")).await, Ok(Acceptance::Replayed(_))));
    assert_eq!(stage.receive().await.len(), 1);
}

#[tokio::test]
async fn a_refused_request_does_not_use_up_its_id() {
    let stage = Stage::new().await;
    let web = stage.process();
    let dollars = instruction(TransactionKind::Deposit, "1.00", "USD");
    let euro = Currency::parse("EUR").unwrap();
    assert_eq!(submit(&web, 7, dollars).await.unwrap(), Acceptance::CurrencyMismatch { account: euro });
    assert!(matches!(submit(&web, 7, deposit("1.00")).await, Ok(Acceptance::Accepted(_))));
}

#[tokio::test]
async fn an_unknown_account_is_asked_for_every_time() {
    let stage = Stage::new().await;
    let web = stage.process();
    let mut unknown = key(7);
    unknown.account.account = AccountId::from_uuid(Uuid::from_u128(99));
    let ask = || web.acceptor.submit(unknown.clone(), deposit("1.00"), None, None);
    assert_eq!(ask().await.unwrap(), Acceptance::AccountUnknown);
    let mut opened = stage.account().await;
    opened.key = unknown.account;
    let _ = stage.store.ports().accounts.open(&opened).await.unwrap();
    assert!(matches!(ask().await, Ok(Acceptance::Accepted(_))));
}

#[tokio::test]
async fn a_caller_that_goes_away_stops_nobody() {
    let stage = Stage::new().await;
    let web = stage.process();
    // The first request starts the group's task, and is dropped before the task runs.
    let mut gone = Box::pin(submit(&web, 7, deposit("1.00")));
    assert!(futures::poll!(gone.as_mut()).is_pending());
    drop(gone);
    let answers = join_all((8..20).map(|message| submit(&web, message, deposit("1.00")))).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Acceptance::Accepted(_)))));
}
