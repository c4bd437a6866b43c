//! Orders of direct producers: each is accepted and sent once, however often it arrives.

use postonce_shared::access::partner_cache::Standing;
use postonce_shared::messaging::direct_producers::{self, DirectOrder};
use postonce_shared::protocol::accept::{Acceptance, Accepted, OrderError};
use postonce_shared::testing::prelude::*;

use uuid::Uuid;

use crate::protocol::fixture::{Fixture, account, deposit, key, submit, withdrawal};

fn order(message: u128, amount: &str) -> DirectOrder {
    let key = key(message);
    let body = format!("{}|{}|{}|{amount}\n", key.account.user, key.account.account, key.message);
    direct_producers::parse(body.as_bytes()).unwrap().remove(0).order.unwrap()
}

async fn admit(bank: &Bank, order: &DirectOrder) -> Result<Accepted, OrderError> {
    bank.acceptor.admit(order, &PartnerId::parse("shop").unwrap(), Standing::ALWAYS).await.unwrap()
}

#[tokio::test]
async fn an_order_is_accepted_once_and_posted_once() {
    let fixture = Fixture::new().await;
    let bank = fixture.process();
    let accepted = admit(&bank, &order(1, "2.50")).await.unwrap();
    assert_eq!((&accepted.submission.key, &accepted.submission.instruction), (&key(1), &deposit("2.50")));
    assert!(!accepted.replayed);
    assert_eq!(fixture.queued().await, 1, "its work is sent");
    // A second worker, after a crash of the first one.
    let other = fixture.process();
    let again = admit(&other, &order(1, "2.5")).await.unwrap();
    assert!(again.replayed && again.submission == accepted.submission, "the same content");
    let work = fixture.stored(1).await.work().unwrap();
    assert!(other.poster.post(account(), vec![work]).await[0].1.is_ok());
    let last = admit(&bank, &order(1, "2.50")).await.unwrap();
    assert!(last.replayed && last.outcome.is_some(), "{last:?}");
    let accepted = [&bank, &other].map(|bank| bank.acceptor.served().accepted());
    assert_eq!(accepted, [1, 0], "a second delivery is no new order");
    assert_eq!(fixture.account().await.balance.to_string(), "2.50");
}

#[tokio::test]
async fn a_negative_amount_is_a_withdrawal() {
    let fixture = Fixture::new().await;
    let bank = fixture.process();
    let accepted = admit(&bank, &order(1, "-2.50")).await.unwrap();
    assert_eq!(accepted.submission.instruction, withdrawal("2.50"));
    let work = fixture.stored(1).await.work().unwrap();
    assert!(bank.poster.post(account(), vec![work]).await[0].1.is_ok());
    assert!(matches!(fixture.outcome(1).await, Some(Outcome::Rejected { .. })), "insufficient funds");
}

#[tokio::test]
async fn an_order_and_a_request_with_the_same_content_are_one_transaction() {
    let fixture = Fixture::new().await;
    let bank = fixture.process();
    let _ = submit(&bank, 1, deposit("1.00")).await.unwrap();
    assert!(admit(&bank, &order(1, "1")).await.unwrap().replayed);
    let _ = admit(&bank, &order(2, "1")).await;
    let replayed = submit(&bank, 2, deposit("1.00")).await.unwrap();
    assert!(matches!(replayed, Acceptance::Accepted(Accepted { replayed: true, .. })), "{replayed:?}");
}

#[tokio::test]
async fn a_refused_order_changes_nothing() {
    let fixture = Fixture::new().await;
    let bank = fixture.process();
    let refusal = async |order: &DirectOrder| admit(&bank, order).await.unwrap_err().to_string();
    let _ = submit(&bank, 1, deposit("1.00")).await.unwrap();
    let before = fixture.stored(1).await;
    let reused = refusal(&order(1, "-1.00")).await;
    assert!(reused.contains("was used before with another content") && reused.contains("shop"), "{reused}");
    assert_eq!(fixture.stored(1).await, before);
    assert!(refusal(&order(2, "1.005")).await.contains("more decimals than EUR has (2)"));
    let mut unknown = order(3, "1");
    unknown.account.account = AccountId::from_uuid(Uuid::from_u128(77));
    let refused = admit(&bank, &unknown).await;
    assert_eq!(refused, Err(OrderError::AccountUnknown(unknown.account)));
    for message in [2, 3] {
        assert!(
            fixture.store.ports().ledger.transaction(&key(message)).await.unwrap().is_none(),
            "{message}"
        );
    }
}

#[tokio::test]
async fn an_order_whose_response_was_lost_can_be_admitted_again() {
    let fixture = Fixture::new().await;
    let bank = fixture.process_over(|store| lose_answers(store, "Ledger::accept", 1));
    let shop = PartnerId::parse("shop").unwrap();
    assert!(bank.acceptor.admit(&order(1, "1.00"), &shop, Standing::ALWAYS).await.is_err());
    assert!(admit(&bank, &order(1, "1.00")).await.is_ok());
}

#[tokio::test]
async fn an_order_is_not_admitted_on_rights_that_changed_before_its_insert() {
    let fixture = Fixture::new().await;
    let bank = fixture.process();
    let shop = PartnerId::parse("shop").unwrap();
    let partner = Partner::active(shop.clone(), Reach::Everything, fixture.world.now());
    let _ = PartnerRecords::new(&fixture.store.ports()).save(&partner, None).await.unwrap();
    let (_, standing) = bank.partner_grants.find(&shop).await.unwrap().unwrap();
    bank.partner_grants.forget(Some(&shop));
    let refused = bank.acceptor.admit(&order(1, "1.00"), &shop, standing).await;
    assert!(matches!(&refused, Err(fault) if fault.is_transient()), "{refused:?}");
    assert_eq!(fixture.store.ports().ledger.transaction(&key(1)).await.unwrap(), None);
}
