//! Many concurrent requests with the same id at two web processes.

use futures::future::join_all;
use postonce_tests::prelude::*;

/// Number of requests with one id.
const REQUESTS: usize = 200;
/// Number of connections.
const CONNECTIONS: usize = 20;

on_both_stores![two_hundred_requests_with_one_id_post_once_and_have_the_same_answer,];

async fn two_hundred_requests_with_one_id_post_once_and_have_the_same_answer(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(2, 1).start().await;
    let client = bank.client(0);
    let (account, id) = (fresh_account(), fresh_id());
    client.open(account).await;
    let submission = Submission::deposit("3.00").with("reference", "once");
    let connections = (0..CONNECTIONS).map(|connection| {
        let (client, submission) = (bank.client(connection % 2).on_own_connections(), submission.clone());
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
