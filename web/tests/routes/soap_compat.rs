//! The SOAP service for classic clients: the same transactions, with plain parameters and three statuses.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use actix_web::test::TestRequest;
use futures::poll;
use postonce_shared::messaging::xml::Element;
use postonce_shared::testing::prelude::*;
use postonce_web::api::soap::contract::Contract;
use postonce_web::api::soap::envelope::Version;
use postonce_web::api::soap::operations::Operation;

use super::soap::{ADDRESSING, at, envelope, fault, message, message_id, parsed, request, text};
use super::test_bank::{ACCOUNT, Answer, TestBank, id};

/// Number of times that a request is polled before a second passes: more than any request here needs.
const POLLS: usize = 200;

/// A request in the classic contract.
fn compat(version: Version, headers: &str, body: &str) -> TestRequest {
    request(version, envelope(version, headers, body)).uri(Contract::Compat.path())
}

/// A bank with an open account, whose process posts requests that wait at once.
async fn posting_bank(currency: &str) -> TestBank {
    let bank = TestBank::new().await;
    assert_eq!(bank.put(ACCOUNT, &format!(r#"{{"currency":"{currency}"}}"#)).await.status, 201);
    count_as_registered(&bank.bank);
    count_as_released(&bank.bank);
    bank
}

impl TestBank {
    async fn compat(&self, version: Version, headers: &str, body: &str) -> Answer {
        self.call_as_shop(compat(version, headers, body)).await
    }

    /// Sends a request while time passes. Returns the answer, and the seconds after which it came.
    pub(super) async fn wait_for(&self, request: TestRequest) -> (Answer, u32) {
        let mut call = pin!(self.call_as_shop(request));
        for seconds in 0..100 {
            for _ in 0..POLLS {
                if let Poll::Ready(answer) = poll!(call.as_mut()) {
                    return (answer, seconds);
                }
                tokio::task::yield_now().await;
            }
            self.world.advance(Duration::from_secs(1));
        }
        panic!("there is no answer");
    }

    async fn insert(&self, number: u32, amount: &str) -> Answer {
        self.compat(Version::V11, &message_id(number), &insert(amount)).await
    }

    async fn balance(&self) -> String {
        let answer = self.compat(Version::V11, "", &message(Operation::GetUserAccountBalance, "")).await;
        text(&answer, &["Body", "GetUserAccountBalanceResponse", "GetUserAccountBalanceResult"])
    }
}

fn insert(amount: &str) -> String {
    message(Operation::CompatInsertMoney, &format!("<amount>{amount}</amount>"))
}

fn withdraw(amount: &str) -> String {
    message(Operation::CompatWithdrawMoney, &format!("<amount>{amount}</amount>"))
}

/// Status and message of a result.
fn result(operation: Operation, answer: &Answer) -> (String, String) {
    assert_eq!(answer.status, 200, "{answer:?}");
    let name = format!("{}Result", operation.name());
    let member = |member| text(answer, &["Body", &operation.response(), &name, member]);
    (member("StatusForTransaction"), member("Message"))
}

/// The text of the fault about an amount.
fn wrong_amount(answer: &Answer) -> String {
    assert_eq!(fault(Version::V11, answer), (500, "validation_failed".to_owned()), "{answer:?}");
    let violation = |name| text(answer, &["Body", "Fault", "detail", "problem", "violations", "i", name]);
    assert_eq!(violation("field"), "amount", "{answer:?}");
    violation("message")
}

#[actix_web::test]
async fn the_first_request_succeeds_and_a_repetition_is_completed() {
    let bank = posting_bank("EUR").await;
    let operation = Operation::CompatInsertMoney;
    let first = bank.insert(1, "12.5").await;
    let (status, said) = result(operation, &first);
    assert_eq!(status, "Succeded");
    assert_eq!(text(&first, &["Header", "RelatesTo"]), format!("urn:uuid:{}", id(1)));
    let action = |name: &str| format!("urn:postonce:soap:compat:1/IUserAccountService/{name}");
    assert_eq!(text(&first, &["Header", "Action"]), action("ReliableInsertMoneyResponse"));
    let root = parsed(&first);
    let response = at(&root, &["Body", "ReliableInsertMoneyResponse"]).unwrap();
    assert_eq!(response.name.namespace, "urn:postonce:soap:compat:1");
    let members: Vec<&str> =
        response.elements().flat_map(Element::elements).map(|it| it.name.local.as_str()).collect();
    assert_eq!(members, ["Message", "StatusForTransaction"], "in the order of data contracts");
    for (version, amount) in [(Version::V11, "12.50"), (Version::V12, "1.25E+1"), (Version::V11, " 12.500 ")]
    {
        let again = bank.compat(version, &message_id(1), &insert(amount)).await;
        assert_eq!(result(operation, &again), ("Completed".to_owned(), said.clone()), "{amount}");
    }
    // The same transaction in the other contract and in JSON.
    let json = bank.submit("deposits", 1, r#"{"amount":"12.50","currency":"EUR"}"#).await;
    assert_eq!((json.status, json.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(said, format!("The order number is {}.", json.body["order_number"].as_str().unwrap()));
    let other = bank.insert(1, "12.51").await;
    assert_eq!(fault(Version::V11, &other), (500, "idempotency_key_reused".to_owned()));
    assert_eq!(text(&other, &["Header", "Action"]), action("Problem"));
    for element in ["<Currency>USD</Currency>", "<waitSeconds>5</waitSeconds>", "<Message>x</Message>"] {
        let refused = message(Operation::CompatInsertMoney, &format!("<amount>1</amount>{element}"));
        let refused = bank.compat(Version::V12, &message_id(2), &refused).await;
        assert_eq!(fault(Version::V12, &refused), (500, "validation_failed".to_owned()), "{element}");
    }
    let withdrawal = bank.compat(Version::V12, &message_id(1), &withdraw("12.5")).await;
    assert_eq!(fault(Version::V12, &withdrawal), (500, "idempotency_key_reused".to_owned()));
    assert_eq!(bank.balance().await, "12.50");
}

#[actix_web::test]
async fn a_rejection_has_failed_with_its_reason_for_ever() {
    let bank = TestBank::with_account().await;
    let operation = Operation::CompatWithdrawMoney;
    let withdrawal = |number| compat(Version::V11, &message_id(number), &withdraw("5.01"));
    bank.submit("deposits", 1, r#"{"amount":"5.00","currency":"EUR"}"#).await;
    let (pending, _) = bank.wait_for(withdrawal(2)).await;
    assert_eq!(fault(Version::V11, &pending).1, "outcome_pending");
    bank.post_all().await;
    let failed = ("Failed".to_owned(), "insufficient_funds".to_owned());
    assert_eq!(result(operation, &bank.call_as_shop(withdrawal(2)).await), failed);
    bank.submit("deposits", 3, r#"{"amount":"1.00","currency":"EUR"}"#).await;
    let (pending, _) = bank.wait_for(withdrawal(4)).await;
    assert_eq!(fault(Version::V11, &pending).1, "outcome_pending");
    bank.post_all().await;
    assert_eq!(result(operation, &bank.call_as_shop(withdrawal(4)).await).0, "Completed");
    assert_eq!(
        result(operation, &bank.call_as_shop(withdrawal(2)).await),
        failed,
        "although it could be paid"
    );
    assert_eq!(bank.balance().await, "0.99");
}

#[actix_web::test]
async fn what_is_not_final_is_a_fault_until_a_repetition_finds_it_final() {
    let bank = TestBank::with_account().await;
    for (version, prefer, expected) in
        [(Version::V11, None, 10), (Version::V12, Some("wait=3"), 3), (Version::V11, Some("wait=0"), 10)]
    {
        let request = compat(version, &message_id(1), &insert("7"));
        let prefer = prefer.map(|prefer| ("prefer", prefer));
        let request = prefer.into_iter().fold(request, TestRequest::insert_header);
        let (pending, seconds) = bank.wait_for(request).await;
        assert_eq!(seconds, expected, "{pending:?}");
        assert_eq!(fault(version, &pending), (500, "outcome_pending".to_owned()), "{pending:?}");
        assert_eq!(pending.header("retry-after"), Some("1"));
        assert_eq!(text(&pending, &["Header", "RelatesTo"]), format!("urn:uuid:{}", id(1)));
        let (path, server): (&[&str], _) = match version {
            Version::V11 => (&["Body", "Fault", "faultcode"], "soap:Server"),
            Version::V12 => (&["Body", "Fault", "Code", "Value"], "soap:Receiver"),
        };
        assert_eq!(text(&pending, path), server);
        assert!(pending.text.contains("Repeat the request with the same MessageID"), "{pending:?}");
    }
    assert_eq!(bank.balance().await, "0.00");
    bank.post_all().await;
    assert_eq!(result(Operation::CompatInsertMoney, &bank.insert(1, "7").await).0, "Completed");
    assert_eq!(bank.balance().await, "7.00");
}

#[actix_web::test]
async fn an_amount_is_an_exact_decimal_of_the_currency_of_the_account() {
    let bank = posting_bank("EUR").await;
    for (number, amount) in [(1, "100"), (2, "1E+2"), (3, "1.5E-1"), (4, "100.0"), (5, "0.01")] {
        assert_eq!(result(Operation::CompatInsertMoney, &bank.insert(number, amount).await).0, "Succeded");
    }
    assert_eq!(bank.balance().await, "300.16");
    for (amount, expected) in [
        ("0.1000000001", "has more decimals than EUR has (2)"),
        ("12.505", "has more decimals than EUR has (2)"),
        ("1E-3", "has more decimals than EUR has (2)"),
        ("NaN", "must be a decimal number such as 12.50"),
        ("INF", "must be a decimal number such as 12.50"),
        ("-5", "must be greater than zero"),
        ("0", "must be greater than zero"),
        ("", "must not be empty"),
        ("1E30", "must be at most"),
        ("<x/>", "must contain text only"),
    ] {
        let refused = wrong_amount(&bank.insert(9, amount).await);
        assert!(refused.starts_with(expected), "{amount}: {refused}");
    }
    let missing = bank.compat(Version::V11, &message_id(9), &message(Operation::CompatInsertMoney, "")).await;
    assert!(wrong_amount(&missing).starts_with("is missing"), "{missing:?}");
    assert_eq!(bank.balance().await, "300.16");
    // None of them has used its id up.
    assert_eq!(result(Operation::CompatInsertMoney, &bank.insert(9, "1").await).0, "Succeded");
}

#[actix_web::test]
async fn an_amount_is_in_yen_if_the_account_is() {
    let bank = posting_bank("JPY").await;
    assert_eq!(result(Operation::CompatInsertMoney, &bank.insert(1, "100.0").await).0, "Succeded");
    let refused = wrong_amount(&bank.insert(2, "100.5").await);
    assert_eq!(refused, "has more decimals than JPY has (0)");
    assert_eq!(bank.balance().await, "100");
}

#[actix_web::test]
async fn ids_have_the_forms_that_classic_toolkits_write() {
    let bank = posting_bank("EUR").await;
    let submission = "http://schemas.xmlsoap.org/ws/2004/08/addressing";
    let header =
        |namespace: &str, id: &str| format!("<w:MessageID xmlns:w=\"{namespace}\">{id}</w:MessageID>");
    let uuid = id(1);
    let mut statuses = Vec::new();
    for (namespace, id) in [
        (submission, format!("uuid:{uuid}")),
        (ADDRESSING, format!("urn:uuid:{uuid}")),
        (ADDRESSING, format!("UUID:{}", uuid.to_uppercase())),
    ] {
        let answer = bank.compat(Version::V11, &header(namespace, &id), &insert("1")).await;
        assert_eq!(text(&answer, &["Header", "RelatesTo"]), id);
        statuses.push(result(Operation::CompatInsertMoney, &answer).0);
    }
    assert_eq!(statuses, ["Succeded", "Completed", "Completed"]);
    for wrong in ["", "uuid:", "urn:uuid:uuid:4f9d0c9e-5d3e-4c0e-9a51-000000000001", &uuid] {
        let refused = bank.compat(Version::V11, &header(ADDRESSING, wrong), &insert("1")).await;
        assert_eq!(fault(Version::V11, &refused), (500, "idempotency_key_invalid".to_owned()), "{wrong}");
    }
    let refused = bank.compat(Version::V11, "", &insert("1")).await;
    assert_eq!(fault(Version::V11, &refused), (500, "idempotency_key_missing".to_owned()));
    assert_eq!(bank.balance().await, "1.00");
}

#[actix_web::test]
async fn the_operations_of_a_contract_are_at_its_path_only() {
    let bank = TestBank::with_account().await;
    let call = async |contract: Contract, operation: Operation, action: Option<String>| {
        let body = envelope(Version::V11, "", &message(operation, ""));
        let request = request(Version::V11, body).uri(contract.path());
        let action = action.map(|action| ("soapaction", format!("\"{action}\"")));
        bank.call_as_shop(action.into_iter().fold(request, TestRequest::insert_header)).await
    };
    let (own, other) = (Operation::GetUserAccountBalance, Operation::GetUserAccount);
    let refused = call(Contract::Compat, other, None).await;
    assert_eq!(fault(Version::V11, &refused), (500, "body_invalid".to_owned()));
    assert!(refused.text.contains("ReliableInsertMoney, ReliableWithDrawMoney, GetUserAccountBalance of"));
    assert_eq!(fault(Version::V11, &call(Contract::Current, own, None).await).1, "body_invalid");
    let action = "urn:postonce:soap:compat:1/IUserAccountService/GetUserAccountBalance".to_owned();
    assert_eq!(call(Contract::Compat, own, Some(action)).await.status, 200);
    let action = "urn:postonce:soap:compat:1/GetUserAccountBalance".to_owned();
    assert_eq!(fault(Version::V11, &call(Contract::Compat, own, Some(action)).await).1, "action_mismatch");
}
