//! The SOAP service, with a client that is generated from its WSDL, in both versions and on both stores.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use postonce_shared::domain::ids::MessageId;
use postonce_tests::dialects::Dialect;
use postonce_tests::hostile::soap_request;
use postonce_tests::prelude::*;
use postonce_tests::soap::{Port, SoapAnswer, SoapClient};
use postonce_web::api::soap::contract::Contract;
use postonce_web::api::soap::envelope::Version;
use serde_json::{Value, json};

on_sqlite![
    a_client_generated_from_the_wsdl_moves_money,
    a_client_generated_from_the_classic_wsdl_moves_money,
    one_instruction_in_four_formats_is_one_posting,
    every_operation_checks_key_scope_and_reach,
];

#[track_caller]
fn valid(answer: SoapAnswer) -> SoapAnswer {
    valid_by("xsd/user-account-service.xsd", answer)
}

/// Validates the message of an answer.
#[track_caller]
fn valid_by(schema: &str, answer: SoapAnswer) -> SoapAnswer {
    if let Err(errors) = validate_xml(schema, answer.message()) {
        panic!("{errors:?}: {answer:?}");
    }
    answer
}

async fn a_client_generated_from_the_wsdl_moves_money(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let address = bank.webs.first().expect("there is a web").address().to_owned();
    let account = fresh_account();
    client.open(account).await;
    let mut balance = 0_i64;
    for port in Port::ALL {
        let mut soap = SoapClient::of(&address, port, bank.key());
        let money = json!({"Amount": "10.00", "Currency": "EUR", "Reference": "<invoice> & 7", "WaitSeconds": "30",
            "Metadata": {"Entry": [{"Name": "shop", "Value": "12"}]}});
        // The client creates the id.
        let first = valid(soap.call("ReliableInsertMoney", account, &money, None));
        balance = balance.saturating_add(1000);
        let returned = |path: &str| first.text(&format!("/returned/Transaction/{path}")).to_owned();
        assert_eq!(returned("Status"), "posted", "{first:?}");
        assert_eq!(returned("Reference"), "<invoice> & 7");
        assert_eq!(returned("Metadata/Entry/0/Value"), "12");
        assert_eq!(first.whole()["returned"]["Replayed"], false, "{first:?}");
        let id = first.text("/message_id").strip_prefix("urn:uuid:").expect("a URN").parse().expect("a UUID");
        assert_eq!(first.text("/relates_to"), first.text("/message_id"));

        // A repetition over SOAP or JSON is the same transaction.
        let again = valid(soap.call("ReliableInsertMoney", account, &money, Some(id)));
        assert_eq!(again.whole()["returned"]["Replayed"], true, "{again:?}");
        assert_eq!(again.text("/returned/Transaction/OrderNumber"), returned("OrderNumber"));
        let submission = Submission::deposit("10.00")
            .with("reference", "<invoice> & 7")
            .with("metadata", json!({"shop": "12"}));
        let json = client.submit(account, id, &submission).await.expect(200);
        assert_eq!(json.text_at("/order_number"), returned("OrderNumber"));

        let mut other = money.clone();
        other["Amount"] = "10.01".into();
        let refused = soap.call("ReliableInsertMoney", account, &other, Some(id));
        assert_eq!(refused.fault().1, "idempotency_key_reused", "{refused:?}");
        assert_eq!(refused.text("/relates_to"), format!("urn:uuid:{id}"));
        let refused = soap.call("ReliableWithdrawMoney", account, &money, Some(id));
        assert_eq!(refused.fault().1, "idempotency_key_reused", "{refused:?}");

        let more = json!({"Amount": "500.00", "Currency": "EUR", "WaitSeconds": "30"});
        let rejected = valid(soap.call("ReliableWithdrawMoney", account, &more, Some(fresh_id())));
        assert_eq!(rejected.text("/returned/Transaction/Reason"), "insufficient_funds", "{rejected:?}");
        let less = json!({"Amount": "2.50", "Currency": "EUR", "WaitSeconds": "30"});
        let posted = valid(soap.call("ReliableWithdrawMoney", account, &less, Some(fresh_id())));
        balance = balance.saturating_sub(250);
        let expected = format!("{}.{:02}", balance.div_euclid(100), balance.rem_euclid(100));
        assert_eq!(posted.text("/returned/Transaction/BalanceAfter"), expected, "{posted:?}");

        let found = valid(soap.call("GetUserAccount", account, &json!({}), None));
        assert_eq!(found.text("/returned/Balance"), expected, "{found:?}");
        let found = valid(soap.call("GetTransaction", account, &json!({"MessageId": id.to_string()}), None));
        assert_eq!(found.text("/returned/OrderNumber"), returned("OrderNumber"), "{found:?}");

        let wrong = json!({"Amount": "0.001", "Currency": "EUX"});
        let refused = soap.call("ReliableInsertMoney", account, &wrong, Some(fresh_id()));
        assert_eq!(refused.fault().1, "validation_failed", "{refused:?}");
        assert_eq!(refused.whole()["fault"]["problem"]["fields"], json!(["Currency"]), "{refused:?}");
    }
    assert_eq!(client.balance(account).await, "15.00");
}

async fn a_client_generated_from_the_classic_wsdl_moves_money(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let address = bank.webs.first().expect("there is a web").address().to_owned();
    for port in Port::COMPAT {
        let account = fresh_account();
        client.open(account).await;
        let mut soap = SoapClient::of(&address, port, bank.key());
        // Numbers are JSON for the client, which makes floats of them.
        let mut call = |operation: &str, amount: &str, id: Option<MessageId>| {
            let amount: Value = serde_json::from_str(amount).expect("a number");
            soap.call(operation, account, &json!({"amount": amount}), id)
        };
        let status = |answer: SoapAnswer| {
            let answer = valid_by("xsd/user-account-service-compat.xsd", answer);
            let text = |name| answer.text(&format!("/returned/{name}")).to_owned();
            (text("StatusForTransaction"), text("Message"))
        };
        // The client creates the id.
        let first = call("ReliableInsertMoney", "12.5", None);
        let id = first.text("/message_id").strip_prefix("urn:uuid:").expect("a URN").parse().expect("a UUID");
        assert_eq!(first.text("/relates_to"), first.text("/message_id"));
        let (posted, order_number) = status(first);
        assert_eq!(posted, "Succeded");
        let again = call("ReliableInsertMoney", "12.5", Some(id));
        assert_eq!(status(again), ("Completed".to_owned(), order_number.clone()));
        let json = client.submit(account, id, &Submission::deposit("12.50")).await.expect(200);
        assert!(order_number.contains(json.text_at("/order_number")), "{order_number}");
        let reused = call("ReliableInsertMoney", "12.51", Some(id));
        assert_eq!(reused.fault().1, "idempotency_key_reused", "{reused:?}");

        let withdrawal = fresh_id();
        for _ in 0..2 {
            let rejected = status(call("ReliableWithDrawMoney", "12.51", Some(withdrawal)));
            assert_eq!(rejected, ("Failed".to_owned(), "insufficient_funds".to_owned()));
        }
        // The client writes 1000000000000000.0.
        let large = status(call("ReliableInsertMoney", "1e15", Some(fresh_id())));
        assert_eq!(large.0, "Succeded");
        assert_eq!(status(call("ReliableWithDrawMoney", "1e15", Some(fresh_id()))).0, "Succeded");
        assert_eq!(status(call("ReliableWithDrawMoney", "2.25", Some(fresh_id()))).0, "Succeded");
        let inexact = call("ReliableInsertMoney", "0.30000000000000004", Some(fresh_id()));
        assert_eq!(inexact.whole()["fault"]["problem"]["fields"], json!(["amount"]), "{inexact:?}");
        let balance = soap.call("GetUserAccountBalance", account, &json!({}), None);
        assert_eq!(valid_by("xsd/user-account-service-compat.xsd", balance).text("/returned"), "10.25");
        assert_eq!(client.balance(account).await, "10.25");
    }
}

async fn one_instruction_in_four_formats_is_one_posting(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let client = bank.client(0);
    let address = bank.webs.first().expect("there is a web").address().to_owned();
    let submission = |amount| {
        Submission::deposit(amount).with("reference", "rent & tip").with("metadata", json!({"a": "b"}))
    };
    let money = |amount: &str| {
        json!({"Amount": amount, "Currency": "EUR", "Reference": "rent & tip",
            "Metadata": {"Entry": [{"Name": "a", "Value": "b"}]}, "WaitSeconds": "30"})
    };
    for (port, soap_first) in Port::ALL.into_iter().flat_map(|port| [(port, true), (port, false)]) {
        let mut soap = SoapClient::of(&address, port, bank.key());
        let (account, id) = (fresh_account(), fresh_id());
        client.open(account).await;
        let mut insert = |amount: &str| soap.call("ReliableInsertMoney", account, &money(amount), Some(id));
        let mut order_numbers = Vec::new();
        let mut by_soap = |order_numbers: &mut Vec<String>| {
            let answer = valid(insert("125.50"));
            let text = |name: &str| answer.text(&format!("/returned/Transaction/{name}")).to_owned();
            assert_eq!((text("Status"), text("BalanceAfter")), ("posted".to_owned(), "125.50".to_owned()));
            order_numbers.push(text("OrderNumber"));
        };
        if soap_first {
            by_soap(&mut order_numbers);
        }
        for dialect in Dialect::ALL {
            drop(client.send(dialect.submission(&client, account, id, &submission("125.50"))).await);
            drop(client.until_final(account, id).await);
            let answer = client.send(dialect.submission(&client, account, id, &submission("125.50"))).await;
            let reported = dialect.transaction(&answer.expect(200));
            assert_eq!(
                (reported.status.as_str(), reported.balance_after.as_str()),
                ("posted", "125.50"),
                "{reported:?}"
            );
            order_numbers.push(reported.order_number);
        }
        if !soap_first {
            by_soap(&mut order_numbers);
        }
        order_numbers.dedup();
        assert_eq!(order_numbers.len(), 1, "one posting has one number: {order_numbers:?}");
        for dialect in Dialect::ALL {
            let refused = client.send(dialect.submission(&client, account, id, &submission("125.51"))).await;
            assert_eq!(dialect.code(&refused.expect(422)), "idempotency_key_reused");
        }
        assert_eq!(insert("125.51").fault().1, "idempotency_key_reused");
        assert_eq!(client.balance(account).await, "125.50");
        assert_eq!(client.listing(account, None, 10).await.len(), 1);
    }
}

/// Folders of samples: their names, and what the schema and the program say about them.
const FOLDERS: [(&str, bool, bool); 3] =
    [("valid", true, true), ("invalid", false, false), ("refused", true, false)];

/// The errors that a folder of samples expects, by the name of the sample.
fn expected_errors(folder: &Path) -> BTreeMap<String, String> {
    match fs::read_to_string(folder.join("expected.toml")) {
        Ok(expected) => toml::from_str(&expected).expect("it is TOML"),
        Err(_) => BTreeMap::new(),
    }
}

#[test]
fn the_schema_and_the_program_agree_with_the_folders_of_the_samples() {
    for (contract, folder) in [(Contract::Current, "soap"), (Contract::Compat, "soap-compat")] {
        let samples = workspace::root().join("schemas/samples").join(folder);
        for (name, is_valid, is_accepted) in FOLDERS {
            let folder = samples.join(name);
            let (expected, mut refused) = (expected_errors(&folder), 0_usize);
            for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder:?}: {error}")) {
                let path = entry.expect("it can be listed").path();
                let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
                let Some((version, schema)) = (match stem.rsplit_once('-') {
                    Some((_, "1.1")) => Some((Version::V11, "xsd/soap-1.1.xsd")),
                    Some((_, "1.2")) => Some((Version::V12, "xsd/soap-1.2.xsd")),
                    Some(_) | None => None,
                }) else {
                    continue;
                };
                let body = fs::read(&path).expect("it can be read");
                let by_schema = validate_xml(schema, &body);
                assert_eq!(by_schema.is_ok(), is_valid, "{stem} by {schema}: {by_schema:?}");
                let by_program = soap_request::read(contract, version, &body);
                assert_eq!(by_program.is_ok(), is_accepted, "{stem}: {by_program:?}");
                let Err(error) = by_program else { continue };
                refused = refused.saturating_add(1);
                let field = expected.get(&stem).unwrap_or_else(|| panic!("{stem} is not in expected.toml"));
                let problem = error.problem();
                let named = problem.violations.iter().any(|violation| violation.field == *field);
                assert!(named || (field.is_empty() && problem.violations.is_empty()), "{stem}: {problem:?}");
            }
            assert_eq!(refused, expected.len(), "each sample in {folder:?} has its reason");
        }
    }
}

async fn every_operation_checks_key_scope_and_reach(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).start().await;
    let address = bank.webs.first().expect("there is a web").address().to_owned();
    let (own, foreign) = (fresh_account(), fresh_account());
    bank.client(0).open(own).await;
    bank.client(0).open(foreign).await;
    let narrow = format!("{}/{}", own.user, own.account);
    let printed = bank.operate(&[
        "partners",
        "add",
        "narrow",
        "--account",
        &narrow,
        "--scope",
        "deposit,withdraw,read",
    ]);
    let narrow =
        printed.split_whitespace().find(|word| word.starts_with("po_")).expect("its first key").to_owned();
    let scopeless = bank.add_partner("scopeless", &["metrics"]);
    let money = json!({"Amount": "1.00", "Currency": "EUR"});
    let operations = [
        ("ReliableInsertMoney", money.clone(), "account_unknown"),
        ("ReliableWithdrawMoney", money, "account_unknown"),
        ("GetUserAccount", json!({}), "account_unknown"),
        ("GetTransaction", json!({"MessageId": fresh_id().to_string()}), "transaction_unknown"),
    ];
    for port in Port::ALL {
        let of = |key: &str| SoapClient::of(&address, port, key);
        let (mut nobody, mut scopeless, mut narrow) = (of(""), of(&scopeless), of(&narrow));
        for (operation, rest, unknown) in &operations {
            let refused =
                |soap: &mut SoapClient, account| soap.call(operation, account, rest, Some(fresh_id()));
            assert_eq!(refused(&mut nobody, own).fault(), (401, "api_key_missing"), "{operation}");
            assert_eq!(refused(&mut scopeless, own).fault(), (403, "scope_missing"), "{operation}");
            assert_eq!(refused(&mut narrow, foreign).fault(), (404, *unknown), "{operation}");
        }
        let found = valid(narrow.call("GetUserAccount", own, &json!({}), None));
        assert_eq!(found.text("/returned/Balance"), "0.00");
    }
}
