use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use postonce_shared::domain::decision::Submission;
use postonce_shared::testing::prelude::*;
use uuid::Uuid;

use crate::protocol::fixture::{Fixture, deposit, instruction, key, replayed, submit, withdrawal};

#[tokio::test]
async fn a_repeated_request_is_a_replay_and_other_content_under_its_key_is_refused() {
    let fixture = Fixture::new().await;
    let web = fixture.process();
    let first = submit(&web, 7, deposit("12.50")).await.unwrap();
    let Acceptance::Accepted(first @ Accepted { replayed: false, .. }) = first else { panic!("{first:?}") };
    let replay = Acceptance::Accepted(Accepted { replayed: true, ..first });
    assert_eq!(submit(&web, 7, deposit("12.50")).await.unwrap(), replay);
    for other in [deposit("12.51"), withdrawal("12.50")] {
        assert_eq!(submit(&web, 7, other).await.unwrap(), Acceptance::KeyReused);
    }
    assert_eq!(fixture.queued().await, 1, "a process that saw the send confirmed does not send again");
}

#[tokio::test]
async fn two_hundred_requests_with_one_id_are_one_transaction() {
    let fixture = Fixture::new().await;
    let webs = [fixture.process(), fixture.process()];
    let requests = (0..200_usize).map(|request| submit(&webs[request % 2], 7, deposit("1.00")));
    let answers = join_all(requests).await;
    let first = answers.iter().filter(|answer| replayed(answer) == Some(false)).count();
    let again = answers.iter().filter(|answer| replayed(answer) == Some(true)).count();
    assert_eq!((first, again), (1, 199));
    let work = fixture.receive().await;
    assert!(!work.is_empty() && work.len() <= 2, "each web process sends at most once, not {}", work.len());
}

/// A ledger that accepts for all accounts at once, with one unreadable row.
struct DamagedRowLedger(Arc<dyn Ledger>);

#[async_trait]
impl LedgerDecorator for DamagedRowLedger {
    fn inner(&self) -> &dyn Ledger {
        &*self.0
    }

    fn accept_grouping(&self) -> AcceptGrouping {
        AcceptGrouping::AllAccounts
    }

    async fn accept(&self, group: &[Submission], nonce: Nonce) -> Result<Vec<AcceptOutcome>, StoreFault> {
        if group.iter().any(|new| new.key == key(13)) {
            return Err(StoreFault::Corrupt { doing: "testing", source: "damaged".into() });
        }
        self.0.accept(group, nonce).await
    }
}

#[tokio::test]
async fn a_damaged_row_fails_no_other_request_of_its_group() {
    let fixture = Fixture::new().await;
    let web =
        fixture.process_over(|store| store.ledger = Arc::new(DamagedRowLedger(Arc::clone(&store.ledger))));
    let answers = join_all((10..30).map(|id| submit(&web, id, deposit("1.00")))).await;
    for (id, answer) in (10..30).zip(answers) {
        match answer {
            Err(AcceptFault::Log(_)) => assert_eq!(id, 13),
            other => assert!(id != 13 && replayed(&other) == Some(false), "{id}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_request_is_accepted_only_when_its_send_is_confirmed() {
    let fixture = Fixture::new().await;
    let web = fixture.process_over(|store| lose(store, "WorkQueue::send", 2));
    for _ in 0..2 {
        let answer = submit(&web, 7, deposit("1.00")).await;
        assert!(matches!(answer, Err(AcceptFault::Queue(_))), "{answer:?}");
    }
    assert_eq!(fixture.queued().await, 0);
    // The first request wrote the row; the transaction is accepted with the first confirmed send.
    assert_eq!(replayed(&submit(&web, 7, deposit("1.00")).await), Some(true));
    assert_eq!(fixture.queued().await, 1);
}

#[tokio::test]
async fn a_replay_at_another_process_sends_work_that_the_first_one_could_not_send() {
    let fixture = Fixture::new().await;
    let first = fixture.process_over(|store| lose(store, "WorkQueue::send", 1));
    assert!(submit(&first, 7, deposit("1.00")).await.is_err());
    drop(first);
    assert_eq!(replayed(&submit(&fixture.process(), 7, deposit("1.00")).await), Some(true));
    assert_eq!(fixture.receive().await.len(), 1);
}

#[tokio::test]
async fn a_retry_finds_an_insert_whose_response_was_lost() {
    let fixture = Fixture::new().await;
    let web = fixture.process_over(|store| lose_answers(store, "Ledger::accept", 1));
    assert!(matches!(submit(&web, 7, deposit("1.00")).await, Err(AcceptFault::Log(_))));
    assert_eq!(replayed(&submit(&web, 7, deposit("1.00")).await), Some(true));
    assert_eq!(fixture.receive().await.len(), 1);
}

#[tokio::test]
async fn a_refused_request_does_not_use_up_its_id() {
    let fixture = Fixture::new().await;
    let web = fixture.process();
    let dollars = instruction(TransactionKind::Deposit, "1.00", "USD");
    let euro = Currency::parse("EUR").unwrap();
    assert_eq!(submit(&web, 7, dollars).await.unwrap(), Acceptance::CurrencyMismatch { account: euro });
    assert_eq!(replayed(&submit(&web, 7, deposit("1.00")).await), Some(false));
}

#[tokio::test]
async fn an_unknown_account_is_looked_up_at_every_request() {
    let fixture = Fixture::new().await;
    let web = fixture.process();
    let mut unknown = key(7);
    unknown.account.account = AccountId::from_uuid(Uuid::from_u128(99));
    let ask = || web.acceptor.submit(unknown.clone(), deposit("1.00"), Origin::default(), None);
    assert_eq!(ask().await.unwrap(), Acceptance::AccountUnknown);
    let mut opened = fixture.account().await;
    opened.key = unknown.account;
    let _ = fixture.store.ports().accounts.open(&opening(opened)).await.unwrap();
    assert_eq!(replayed(&ask().await), Some(false));
}

#[tokio::test]
async fn a_cancelled_request_does_not_stop_the_others() {
    let fixture = Fixture::new().await;
    let web = fixture.process();
    // The first request starts the task of its group, and is dropped before the task runs.
    let mut cancelled = Box::pin(submit(&web, 7, deposit("1.00")));
    assert!(futures::poll!(cancelled.as_mut()).is_pending());
    drop(cancelled);
    let answers = join_all((8..20).map(|message| submit(&web, message, deposit("1.00")))).await;
    assert!(answers.iter().all(|answer| replayed(answer) == Some(false)));
}
