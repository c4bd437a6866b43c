//! A partner whose batches arrive slowly, or are refused, leaves places and processor time to the others.

use std::time::Duration;

use futures::future::join_all;
use postonce_tests::prelude::*;

use super::{Item, completed, submit};

/// Uploads of a partner that a process accepts at the same time.
const PLACES: usize = 4;
/// Longest time for an answer on a busy machine.
const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn slow_uploads_leave_places_to_other_partners() {
    let bank = Plan::on(StoreKind::Sqlite).with("POSTONCE_BODY_TIMEOUT_S", "60").start().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    let key = bank.add_partner("slow", &["batch", "deposit"]);
    let mut uploads = Vec::new();
    for _ in 0..24 {
        let mut upload = RawConnection::open(bank.webs[0].address()).await;
        let head = format!(
            "POST /v1/batches HTTP/1.1\r\nHost: bank\r\nAuthorization: Bearer {key}\r\nIdempotency-Key: {}\r\n\
             Content-Type: application/x-ndjson\r\nContent-Length: 100000000\r\n\r\n{{\n",
            fresh_id()
        );
        assert!(upload.send(head).await);
        uploads.push(upload);
    }
    let answered = join_all(uploads.iter_mut().map(async |it| it.answer(SOON).await)).await;
    let refused =
        answered.iter().flatten().filter(|answer| (answer.status, answer.code()) == (429, "rate_limited"));
    assert_eq!((answered.iter().flatten().count(), refused.count()), (24 - PLACES, 24 - PLACES));
    for _ in 0..2 * PLACES {
        let id = fresh_id();
        drop(submit(&client, id, &[Item::new(account, "deposit", "1.00")]).await.expect(202));
        drop(completed(&client, id).await);
    }
    drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
}
