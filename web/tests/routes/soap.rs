//! The SOAP service: the same transactions and the same refusals, in envelopes.

use actix_web::test::TestRequest;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use postonce_shared::messaging::xml::{Element, XmlLimits, read};
use postonce_web::access::api_keys::NewKey;
use postonce_web::access::scopes::Scope;
use postonce_web::api::soap::contract::Contract;
use postonce_web::api::soap::envelope::Version;
use postonce_web::api::soap::operations::Operation;
use postonce_web::formats::soap_names::PATH;

use super::test_bank::{ACCOUNT, Answer, TestBank, id, with_key};

pub(super) const ADDRESSING: &str = "http://www.w3.org/2005/08/addressing";
const USER_ID: &str = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11";
const ACCOUNT_ID: &str = "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22";
pub(super) const MONEY: &str = "<Amount>10.00</Amount><Currency>EUR</Currency>";

/// The message of an operation on the account of the test bank.
pub(super) fn message(operation: Operation, rest: &str) -> String {
    let (name, contract) = (operation.name(), operation.contract());
    let [user, account] = match contract {
        Contract::Current => ["UserId", "AccountId"],
        Contract::Compat => ["userId", "accountId"],
    };
    let ids = format!("<{user}>{USER_ID}</{user}><{account}>{ACCOUNT_ID}</{account}>");
    format!("<{name} xmlns=\"{}\">{ids}{rest}</{name}>", contract.namespace())
}

/// The elements after the account in the message of that operation.
fn rest(operation: Operation) -> String {
    match operation {
        Operation::ReliableInsertMoney | Operation::ReliableWithdrawMoney => MONEY.to_owned(),
        Operation::CompatInsertMoney | Operation::CompatWithdrawMoney => "<amount>10</amount>".to_owned(),
        Operation::GetUserAccount | Operation::GetUserAccountBalance => String::new(),
        Operation::GetTransaction => format!("<MessageId>{}</MessageId>", id(1)),
    }
}

pub(super) fn envelope(version: Version, headers: &str, body: &str) -> String {
    let soap = version.namespace();
    format!(
        "<s:Envelope xmlns:s=\"{soap}\"><s:Header>{headers}</s:Header><s:Body>{body}</s:Body></s:Envelope>"
    )
}

pub(super) fn message_id(number: u32) -> String {
    format!("<a:MessageID xmlns:a=\"{ADDRESSING}\">urn:uuid:{}</a:MessageID>", id(number))
}

pub(super) fn request(version: Version, envelope: String) -> TestRequest {
    let content_type = format!("{}; charset=utf-8", version.media_type());
    TestRequest::post().uri(PATH).insert_header(("content-type", content_type)).set_payload(envelope)
}

impl TestBank {
    async fn soap(&self, version: Version, headers: &str, body: &str) -> Answer {
        self.call_as_shop(request(version, envelope(version, headers, body))).await
    }
}

/// The first element at a path of element names.
pub(super) fn at<'a>(element: &'a Element, path: &[&str]) -> Option<&'a Element> {
    path.iter().try_fold(element, |element, name| element.elements().find(|it| it.name.local == *name))
}

pub(super) fn parsed(answer: &Answer) -> Element {
    read(answer.text.as_bytes(), &XmlLimits::default()).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

pub(super) fn text(answer: &Answer, path: &[&str]) -> String {
    let root = parsed(answer);
    at(&root, path).and_then(Element::text).unwrap_or_else(|| panic!("no {path:?} in {answer:?}")).to_owned()
}

/// Status and code of a fault.
pub(super) fn fault(version: Version, answer: &Answer) -> (u16, String) {
    let detail = match version {
        Version::V11 => "detail",
        Version::V12 => "Detail",
    };
    let content_type = answer.header("content-type").unwrap();
    assert!(content_type.starts_with(version.media_type()), "{answer:?}");
    (answer.status, text(answer, &["Body", "Fault", detail, "problem", "code"]))
}

#[actix_web::test]
async fn one_message_id_is_one_transaction_in_both_versions_and_in_json() {
    let bank = TestBank::with_account().await;
    let insert = message(Operation::ReliableInsertMoney, MONEY);
    let first = bank.soap(Version::V11, &message_id(1), &insert).await;
    assert_eq!(first.status, 200, "{first:?}");
    assert_eq!(first.header("content-type"), Some("text/xml; charset=utf-8"));
    assert_eq!(text(&first, &["Header", "RelatesTo"]), format!("urn:uuid:{}", id(1)));
    let response = ["Body", "ReliableInsertMoneyResponse"];
    let of = |answer: &Answer, path: &[&str]| text(answer, &[&response, path].concat());
    assert_eq!(of(&first, &["Replayed"]), "false");
    assert_eq!(of(&first, &["Transaction", "Status"]), "accepted");
    bank.post_all().await;
    let again = bank.soap(Version::V12, &message_id(1), &insert).await;
    assert_eq!(again.header("content-type"), Some("application/soap+xml; charset=utf-8"));
    assert_eq!(
        (of(&again, &["Replayed"]), of(&again, &["Transaction", "Status"])),
        ("true".into(), "posted".into())
    );
    let json = bank.submit("deposits", 1, r#"{"amount":"10.00","currency":"EUR"}"#).await;
    assert_eq!((json.status, json.header("idempotent-replayed")), (200, Some("true")));
    assert_eq!(of(&again, &["Transaction", "OrderNumber"]), json.body["order_number"].as_str().unwrap());

    let other = message(Operation::ReliableInsertMoney, "<Amount>10.01</Amount><Currency>EUR</Currency>");
    let refused = bank.soap(Version::V11, &message_id(1), &other).await;
    assert_eq!(fault(Version::V11, &refused), (500, "idempotency_key_reused".to_owned()));
    assert_eq!(text(&refused, &["Body", "Fault", "faultcode"]), "soap:Client");
    assert_eq!(text(&refused, &["Header", "RelatesTo"]), format!("urn:uuid:{}", id(1)));
    let refused = bank.soap(Version::V12, &message_id(1), &other).await;
    assert_eq!(fault(Version::V12, &refused), (400, "idempotency_key_reused".to_owned()));
    let withdrawal = message(Operation::ReliableWithdrawMoney, MONEY);
    let refused = bank.soap(Version::V11, &message_id(1), &withdrawal).await;
    assert_eq!(fault(Version::V11, &refused).1, "idempotency_key_reused");
    assert_eq!(bank.get(ACCOUNT).await.body["balance"], "10.00");
}

#[actix_web::test]
async fn accounts_and_transactions_can_be_read() {
    let bank = TestBank::with_account().await;
    bank.submit("deposits", 1, r#"{"amount":"10.00","currency":"EUR","reference":"a & b"}"#).await;
    bank.post_all().await;
    let account = bank.soap(Version::V11, "", &message(Operation::GetUserAccount, "")).await;
    let path = ["Body", "GetUserAccountResponse", "Account", "Balance"];
    assert_eq!((account.status, text(&account, &path)), (200, "10.00".to_owned()));
    let operation = Operation::GetTransaction;
    let found = bank.soap(Version::V12, "", &message(operation, &rest(operation))).await;
    let path = |name| ["Body", "GetTransactionResponse", "Transaction", name];
    assert_eq!(text(&found, &path("Reference")), "a & b");
    assert_eq!(text(&found, &path("BalanceAfter")), "10.00");
    let absent = message(operation, &format!("<MessageId>{}</MessageId>", id(2)));
    let refused = bank.soap(Version::V11, "", &absent).await;
    assert_eq!(fault(Version::V11, &refused), (404, "transaction_unknown".to_owned()));
}

#[actix_web::test]
async fn every_operation_needs_a_key_its_scope_and_an_account_within_reach() {
    let bank = TestBank::with_account().await;
    let narrow = bank.key_without_reach().await;
    let operations = Contract::ALL.into_iter().flat_map(|contract| Operation::all(contract));
    for (operation, version) in operations.copied().flat_map(|it| [(it, Version::V11), (it, Version::V12)]) {
        let (name, path) = (operation.name(), operation.contract().path());
        let body = message(operation, &rest(operation));
        let request = || request(version, envelope(version, &message_id(9), &body)).uri(path);
        let refused = bank.call(request()).await;
        assert_eq!(fault(version, &refused), (401, "api_key_missing".to_owned()), "{name}");
        let challenges: Vec<_> = refused.headers.get_all("www-authenticate").collect();
        assert_eq!(challenges.len(), 2, "{challenges:?}");
        let refused = bank.call(with_key(request(), &NewKey::random())).await;
        assert_eq!(fault(version, &refused), (401, "api_key_invalid".to_owned()), "{name}");

        let key = NewKey::random();
        let others: Vec<Scope> =
            Scope::ALL.iter().copied().filter(|it| !it.includes(operation.scope())).collect();
        bank.add_key(&key, "reader", &others).await;
        let refused = bank.call(with_key(request(), &key)).await;
        assert_eq!(fault(version, &refused), (403, "scope_missing".to_owned()), "{name}");

        let out_of_reach = bank.call(with_key(request(), &narrow)).await;
        let expected =
            if operation == Operation::GetTransaction { "transaction_unknown" } else { "account_unknown" };
        let status = if operation.contract() == Contract::Compat { 500 } else { 404 };
        assert_eq!(fault(version, &out_of_reach), (status, expected.to_owned()), "{name}");
        // The response equals that about an account that does not exist, byte for byte.
        let unknown = body.replace("77aa0b9e", "00aa0b9e");
        let unknown = envelope(version, &message_id(9), &unknown);
        let unknown = bank.call_as_shop(self::request(version, unknown).uri(path)).await;
        assert_eq!((unknown.status, &unknown.text), (status, &out_of_reach.text), "{name}");
    }
}

#[actix_web::test]
async fn a_key_is_accepted_as_a_password() {
    let bank = TestBank::with_account().await;
    let key = NewKey::random();
    bank.add_key(&key, "old", &[Scope::Read]).await;
    let get = async |uri: &str, value: String| {
        let body = envelope(Version::V11, "", &message(Operation::GetUserAccount, ""));
        let request = request(Version::V11, body).uri(uri);
        bank.call(request.insert_header(("authorization", value))).await.status
    };
    let basic = |user: &str, password: &str| {
        format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
    };
    assert_eq!(get(PATH, basic("old", key.expose())).await, 200);
    assert_eq!(get(PATH, basic("", key.expose())).await, 200);
    assert_eq!(get("/soap/UserAccountServic%65", basic("", key.expose())).await, 200);
    let unknown_there = get("/soap/compa%74", basic("", key.expose())).await;
    assert_eq!(unknown_there, 500, "the key is accepted, and the operation is of the other contract");
    for wrong in [basic("old", ""), basic("old", "wrong"), "Basic ?".to_owned(), "Basic".to_owned()] {
        assert_eq!(get(PATH, wrong.clone()).await, 401, "{wrong}");
    }
    // Other routes accept a bearer key only.
    let request =
        TestRequest::get().uri(ACCOUNT).insert_header(("authorization", basic("old", key.expose())));
    assert_eq!(bank.call(request).await.problem(), (401, "api_key_missing"));
}

#[actix_web::test]
async fn invalid_messages_are_refused_with_their_reason() {
    let bank = TestBank::with_account().await;
    let version = Version::V11;
    let insert = message(Operation::ReliableInsertMoney, MONEY);
    let check = async |body: String, status: u16, code: &str, expected_text: &str| {
        let answer = bank.call_as_shop(request(version, body.clone())).await;
        assert_eq!(fault(version, &answer), (status, code.to_owned()), "{body}: {answer:?}");
        assert!(answer.text.contains(expected_text), "{body}: {answer:?}");
    };
    let of = |headers: &str, body: &str| envelope(version, headers, body);
    check(String::new(), 500, "body_invalid", "must have an element").await;
    check("<a/>".to_owned(), 500, "body_invalid", "must be an element Envelope").await;
    check(of("", ""), 500, "body_invalid", "one element").await;
    check(of("", &format!("{insert}{insert}")), 500, "body_invalid", "one element").await;
    check(of("", &format!("text{insert}")), 500, "body_invalid", "one element").await;
    let whole = of(&message_id(1), &insert);
    for (before, text) in [
        ("<s:Header>", "pay 500<s:Header>"),
        ("<s:Body>", "pay 500<s:Body>"),
        ("</s:Header>", "pay 500</s:Header>"),
        ("</s:Envelope>", "pay 500</s:Envelope>"),
    ] {
        check(whole.replace(before, text), 500, "body_invalid", "must have no text between").await;
    }
    check(of("", "<Steal xmlns=\"urn:postonce:soap:1\"/>"), 500, "body_invalid", "contains Steal of").await;
    check(of("", &insert), 500, "idempotency_key_missing", "MessageID").await;
    let message_id_of = |text: &str| format!("<a:MessageID xmlns:a=\"{ADDRESSING}\">{text}</a:MessageID>");
    let without_hyphens = "urn:uuid:4f9d0c9e5d3e4c0e9a51000000000001";
    for wrong in ["", "17", "urn:uuid:", "uuid:4f9d0c9e-5d3e-4c0e-9a51-000000000001", without_hyphens] {
        check(of(&message_id_of(wrong), &insert), 500, "idempotency_key_invalid", "urn:uuid:").await;
    }
    let twice = format!("{}{}", message_id(1), message_id(1));
    check(of(&twice, &insert), 500, "idempotency_key_invalid", "more than once").await;
    let ids = message(Operation::GetTransaction, "<MessageId>1</MessageId>").replace("0b1c6f0a", "zb1c6f0a");
    check(of("", &ids), 500, "validation_failed", "<field>UserId</field>").await;
    check(of("", &ids), 500, "validation_failed", "<field>MessageId</field>").await;
    let all =
        message(Operation::ReliableInsertMoney, "<Amount>0</Amount><WaitSeconds>31</WaitSeconds><Status/>")
            .replace("0b1c6f0a", "zb1c6f0a");
    for field in ["UserId", "Amount", "Currency", "WaitSeconds", "Status"] {
        check(of(&message_id(1), &all), 500, "validation_failed", &format!("<field>{field}</field>")).await;
    }
    let doctype = format!("<!DOCTYPE a [<!ENTITY b \"c\">]>{}", of("", &insert));
    check(doctype, 500, "body_invalid", "document type").await;
    let external = format!("<!DOCTYPE a SYSTEM \"file:///etc/passwd\">{}", of("", &insert));
    check(external, 500, "body_invalid", "document type").await;
    let deep = format!("{}{}", "<x>".repeat(40), "</x>".repeat(40));
    check(of("", &deep), 500, "body_invalid", "nested deeper than 32").await;
    let wide: String = (0..40).map(|number| format!(" a{number}=\"\"")).collect();
    check(of("", &format!("<x{wide}/>")), 500, "body_invalid", "more than 32 attributes").await;
    check(of("", &format!("<x a=\"{}\"/>", "y".repeat(70_000))), 413, "body_too_large", "65536").await;
    let latin = format!("<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>{}", of("", &insert));
    check(latin, 500, "body_invalid", "declares ISO-8859-1").await;
    let json = TestRequest::post().uri(PATH).insert_header(("content-type", "application/json"));
    assert_eq!(fault(version, &bank.call_as_shop(json).await), (415, "media_type_unsupported".to_owned()));
    let wide: Vec<u8> = of("", &insert).encode_utf16().flat_map(u16::to_le_bytes).collect();
    let utf_16 = request(version, String::new()).set_payload(wide);
    assert_eq!(fault(version, &bank.call_as_shop(utf_16).await), (500, "body_invalid".to_owned()));
    let account = of("", &message(Operation::GetUserAccount, ""));
    let marked = request(version, format!("\u{FEFF}{account}"));
    assert_eq!(bank.call_as_shop(marked).await.status, 200, "a byte order mark is ignored");
    let patch = TestRequest::patch().uri(PATH).insert_header(("content-type", "text/xml"));
    assert_eq!(fault(version, &bank.call_as_shop(patch).await), (405, "method_not_allowed".to_owned()));
    assert_eq!(bank.get(ACCOUNT).await.body["balance"], "0.00");
}

#[actix_web::test]
async fn messages_of_common_toolkits_are_accepted() {
    let bank = TestBank::with_account().await;
    let version = Version::V11;
    let insert = message(Operation::ReliableInsertMoney, MONEY);
    let submission = "http://schemas.xmlsoap.org/ws/2004/08/addressing";
    let old = format!("<w:MessageID xmlns:w=\"{submission}\"> urn:uuid:{} </w:MessageID>", id(1));
    let others = "<a:To xmlns:a=\"http://www.w3.org/2005/08/addressing\" s:mustUnderstand=\"1\">urn:x</a:To>\
                  <o:Hint xmlns:o=\"urn:o\" s:mustUnderstand=\"0\"/>";
    let answer = bank.soap(version, &format!("{old}{others}"), &insert).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let root = parsed(&answer);
    let relates_to = at(&root, &["Header", "RelatesTo"]).unwrap();
    assert_eq!(relates_to.name.namespace, submission, "in the namespace of the request");
    // The wait is not part of the content; elements of other namespaces are.
    let waiting = message(Operation::ReliableInsertMoney, &format!("{MONEY}<WaitSeconds>0</WaitSeconds>"));
    assert_eq!(bank.soap(version, &message_id(1), &waiting).await.status, 200);
    let more = format!("{MONEY}<x:note xmlns:x=\"urn:x\">n</x:note>");
    let more = message(Operation::ReliableInsertMoney, &more);
    assert_eq!(bank.soap(version, &message_id(1), &more).await.status, 500);
    let kept = bank.soap(version, &message_id(2), &more).await;
    assert!(kept.text.contains("<x:note xmlns:x=\"urn:x\">n</x:note></Transaction>"), "{kept:?}");
}

#[actix_web::test]
async fn the_service_description_names_the_address_of_its_request() {
    let bank = TestBank::new().await;
    for contract in Contract::ALL {
        let path = contract.path();
        let request =
            TestRequest::get().uri(&format!("{path}?wsdl")).insert_header(("host", "bank.example:8443"));
        let answer = bank.call(request).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/xml; charset=utf-8")));
        let address = format!("location=\"http://bank.example:8443{path}\"");
        assert_eq!(answer.text.matches(&address).count(), 2, "{path}");
        for operation in Operation::all(contract) {
            let name = operation.name();
            assert!(answer.text.contains(&format!("<wsdl:operation name=\"{name}\">")), "{name}");
            assert!(answer.text.contains(&format!("element=\"tns:{}\"", operation.response())), "{name}");
            let action = format!("soapAction=\"{}\"", contract.action(name));
            assert_eq!(answer.text.matches(&action).count(), 2, "{action}");
        }
        let hostile = TestRequest::get().uri(path).insert_header(("host", "\"><script>"));
        assert!(!bank.call(hostile).await.text.contains("<script>"));
        let imported = answer.text.split("schemaLocation=\"../").skip(1);
        let imported: Vec<_> = imported.filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(imported.len(), 2, "{imported:?}");
        for schema in imported {
            assert_eq!(bank.call(TestRequest::get().uri(&format!("/{schema}"))).await.status, 200);
        }
    }
    assert_eq!(bank.call(TestRequest::get().uri("/xsd/other.xsd")).await.status, 404);
}

#[actix_web::test]
async fn every_action_that_a_request_names_is_that_of_its_body() {
    let bank = TestBank::with_account().await;
    let [own, other] =
        ["GetUserAccount", "ReliableWithdrawMoney"].map(|name| format!("urn:postonce:soap:1/{name}"));
    let body = message(Operation::GetUserAccount, "");
    let in_header = |action: &str| format!("<a:Action xmlns:a=\"{ADDRESSING}\">{action}</a:Action>");
    for version in [Version::V11, Version::V12] {
        let call = async |header: Option<(&str, String)>, block: String| {
            let request = request(version, envelope(version, &block, &body));
            bank.call_as_shop(header.into_iter().fold(request, TestRequest::insert_header)).await
        };
        let typed = |action: &str| {
            Some(("content-type", format!("{}; charset=utf-8; action=\"{action}\"", version.media_type())))
        };
        let named = |action: &str| Some(("soapaction", format!("\"{action}\"")));
        for header in [None, named(&own), named(""), typed(&own), Some(("soapaction", own.clone()))] {
            assert_eq!(call(header.clone(), in_header(&own)).await.status, 200, "{header:?}");
        }
        for (header, block) in [
            (named(&other), String::new()),
            (typed(&other), String::new()),
            (None, in_header(&other)),
            (named(&own), in_header(&own) + &in_header(&other)),
            (named(&format!("{own}\u{a0}")), String::new()),
            (named(&format!("{other}é")), String::new()),
        ] {
            let refused = call(header.clone(), block.clone()).await;
            assert_eq!(fault(version, &refused).1, "action_mismatch", "{header:?} {block}: {refused:?}");
        }
        let unreadable = call(None, in_header(&format!("{own}<x xmlns=\"urn:y\"/>"))).await;
        assert_eq!(fault(version, &unreadable).1, "body_invalid", "{unreadable:?}");
        assert!(unreadable.text.contains("The header Action must be a text"), "{unreadable:?}");
    }
}
