//! Uploads of batches that take long.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix_http::Payload;
use actix_web::test::TestRequest;
use actix_web::web::Bytes;
use futures::future::{Either, join, select};
use futures::stream::{self, StreamExt as _};
use postonce_process::http::Places;
use postonce_shared::config::HttpLimits;
use postonce_web::access::shares::PartnerShares;

use super::rights::{Act, Case, End, batch};
use super::test_bank::id;

#[actix_web::test]
async fn an_upload_ends_soon_after_the_rights_although_its_client_sends_nothing() {
    let case = Case::new().await;
    let act = batch();
    let ending = Rc::clone(&case);
    let silent = stream::once(async move {
        ending.end(End::Suspended).await;
        Ok(Bytes::from_static(b"{"))
    });
    let body = silent.chain(stream::pending());
    let sent = case.send(&act, Payload::Stream { payload: Box::pin(body) });
    let answer = tokio::time::timeout(Duration::from_secs(20), sent).await.expect("the upload ends");
    assert_eq!(answer.problem(), (401, "api_key_invalid"));
    assert_eq!(case.bank.get("/v1/admin/batches").await.body["batches"].as_array().unwrap().len(), 0);
}

#[actix_web::test]
async fn what_a_client_sent_that_disconnects_is_removed() {
    let case = Case::new().await;
    let act = Act { path: "/v1/batches?on-invalid=skip".to_owned(), ..batch() };
    let lines = Bytes::from("not JSON\n".repeat(20_000));
    let body = stream::iter([Ok(lines)]).chain(stream::pending());
    let sent = Box::pin(case.send(&act, Payload::Stream { payload: Box::pin(body) }));
    let until = async |is_empty: bool| {
        let payloads = &case.bank.store.payloads;
        while payloads.list("batch-", None, 1).await.unwrap().items.is_empty() == is_empty {
            tokio::task::yield_now().await;
        }
    };
    let arrived = select(sent, Box::pin(until(true)));
    match tokio::time::timeout(Duration::from_secs(20), arrived).await.expect("a part is stored") {
        Either::Left((answer, _)) => panic!("the client sends more: {answer:?}"),
        Either::Right(((), sent)) => drop(sent),
    }
    tokio::time::timeout(Duration::from_secs(20), until(false)).await.expect("it is removed");
}

#[actix_web::test]
async fn an_upload_leaves_its_place_to_a_partner_with_fewer() {
    let mut case = Case::new().await;
    let shares = PartnerShares::of(&HttpLimits::default());
    let upload_places = Places::new(2, 2);
    Rc::get_mut(&mut case).unwrap().bank.app.shares = Arc::new(PartnerShares { upload_places, ..shares });
    let (act, begun) = (batch(), Rc::new(Cell::new(0)));
    let silent = || -> Payload {
        let begun = Rc::clone(&begun);
        let first = stream::once(async move {
            begun.set(begun.get() + 1);
            Ok(Bytes::from_static(b"{"))
        });
        Payload::Stream { payload: Box::pin(first.chain(stream::pending())) }
    };
    let (first, second) = (case.send(&act, silent()), case.send(&act, silent()));
    let of_shop = async {
        while begun.get() < 2 {
            tokio::task::yield_now().await;
        }
        let request = TestRequest::post().uri(&act.path).insert_header(("content-type", act.media_type));
        let request = request.insert_header(("idempotency-key", id(2))).set_payload(act.body.clone());
        case.bank.call_as_shop(request).await
    };
    let ended = select(Box::pin(join(first, of_shop)), Box::pin(second));
    match tokio::time::timeout(Duration::from_secs(20), ended).await.expect("an upload ends") {
        Either::Left(((lost, of_shop), _)) => {
            assert_eq!(lost.problem(), (503, "overloaded"));
            assert_eq!(of_shop.status, 202, "{of_shop:?}");
        }
        Either::Right((kept, _)) => panic!("it came later: {kept:?}"),
    }
}
