//! The SOAP service, with a client that is generated from its WSDL, in both versions and on both stores.

use std::collections::BTreeMap;
use std::fs;

use postonce_tests::dialects::Dialect;
use postonce_tests::hostile::soap_request;
use postonce_tests::prelude::*;
use postonce_tests::soap::{Port, SoapAnswer, SoapClient};
use postonce_web::api::soap::envelope::Version;
use serde_json::json;

on_sqlite![
    a_client_generated_from_the_wsdl_moves_money,
    one_instruction_in_four_formats_is_one_posting,
    every_operation_checks_key_scope_and_reach,
];

/// The schema of the messages.
const SCHEMA: &str = "xsd/user-account-service.xsd";

#[track_caller]
fn valid(answer: SoapAnswer) -> SoapAnswer {
    if let Err(errors) = validate_xml(SCHEMA, answer.message()) {
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

#[test]
fn the_schema_and_the_program_agree_with_the_folders_of_the_samples() {
    let folder = workspace::root().join("schemas/samples/soap");
    let expected = fs::read_to_string(folder.join("invalid/expected.toml")).expect("it names the errors");
    let expected: BTreeMap<String, String> = toml::from_str(&expected).expect("it is TOML");
    let mut invalid = 0_usize;
    for name in ["valid", "invalid"] {
        for entry in fs::read_dir(folder.join(name)).expect("there are samples") {
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
            let by_program = soap_request::read(version, &body);
            if name == "valid" {
                assert!(by_schema.is_ok() && by_program.is_ok(), "{stem}: {by_schema:?} {by_program:?}");
                continue;
            }
            invalid = invalid.saturating_add(1);
            let field = expected.get(&stem).unwrap_or_else(|| panic!("{stem} is not in expected.toml"));
            let problem = by_program.expect_err(&stem).problem();
            let named = problem.violations.iter().any(|violation| violation.field == *field);
            assert!(by_schema.is_err(), "{stem} is valid by {schema}");
            assert!(named || (field.is_empty() && problem.violations.is_empty()), "{stem}: {problem:?}");
        }
    }
    assert_eq!(invalid, expected.len(), "each invalid sample has its reason");
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
