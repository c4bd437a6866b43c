//! Many concurrent requests with the same id, at one web process and at two.

use futures::future::join_all;
use postonce_tests::prelude::*;

/// Number of requests with one id.
const REQUESTS: usize = 200;
/// Number of connections.
const CONNECTIONS: usize = 20;
/// Number of ids that are sent to two processes at once.
const IDS_IN_FLIGHT: usize = 60;

on_both_stores![
    two_hundred_requests_with_one_id_post_once_and_have_the_same_answer,
    ids_in_flight_at_two_webs_post_once,
];

async fn two_hundred_requests_with_one_id_post_once_and_have_the_same_answer(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let (account, id) = (fresh_account(), fresh_id());
    client.open(account).await;
    let submission = Submission::deposit("3.00").with("reference", "once");
    let connections = (0..CONNECTIONS).map(|_| {
        let (client, submission) = (client.on_own_connections(), submission.clone());
        async move {
            let mut answers = Vec::new();
            for _ in 0..REQUESTS / CONNECTIONS {
                answers.push(client.submit(account, id, &submission).await);
            }
            answers
        }
    });
    let answers: Vec<Answer> = join_all(connections).await.into_iter().flatten().collect();
    let posted = client.until_final(account, id).await;
    assert_eq!(answers.len(), REQUESTS);
    check_answers(&answers, &posted);
    let firsts = answers.iter().filter(|answer| answer.header("idempotent-replayed") != "true").count();
    assert_eq!(firsts, 1, "exactly one of them was the first");
    assert_eq!(client.balance(account).await, "3.00");
    assert_eq!(client.listing(account, None, 100).await, [posted.body]);
}

async fn ids_in_flight_at_two_webs_post_once(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(2, 1).start().await;
    let (one, other) = (bank.client(0), bank.client(1));
    let account = fresh_account();
    one.open(account).await;
    let submission = Submission::deposit("1.00");
    let ids: Vec<_> = (0..IDS_IN_FLIGHT).map(|_| fresh_id()).collect();
    let submissions = ids.iter().map(|id| async {
        let both = [one.submit(account, *id, &submission), other.submit(account, *id, &submission)];
        join_all(both).await
    });
    let answers = join_all(submissions).await;
    for (id, answers) in ids.iter().zip(&answers) {
        check_answers(answers, &other.until_final(account, *id).await);
    }
    assert_eq!(one.balance(account).await, format!("{IDS_IN_FLIGHT}.00"));
    assert_eq!(one.listing(account, None, 7).await.len(), IDS_IN_FLIGHT);
    assert_eq!(other.listing(account, Some("rejected"), 7).await.len(), 0);
}

/// Checks that every answer is the accepted or the final transaction.
fn check_answers(answers: &[Answer], last: &Answer) {
    for answer in answers {
        if answer.is_final() {
            assert_eq!((answer.status, &answer.body), (200, &last.body));
            continue;
        }
        assert_eq!((answer.status, answer.transaction_status()), (202, "accepted"), "{answer:?}");
        for member in ["message_id", "user_id", "account_id", "type", "amount", "currency", "accepted_at"] {
            assert_eq!(answer.body.get(member), last.body.get(member), "{member} of {answer:?}");
        }
    }
}
