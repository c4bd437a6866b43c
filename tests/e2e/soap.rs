//! The SOAP service with a client made from its WSDL, over both versions and both stores.

use postonce_tests::client::Wish;
use postonce_tests::contracts::validate_xml;
use postonce_tests::scenario::{Plan, Stand, fresh_account, fresh_id};
use postonce_tests::soap::{Port, SoapAnswer, SoapClient};
use serde_json::json;

on_both_stands![a_client_made_from_the_wsdl_moves_money, every_operation_is_guarded];

/// Where the schema of the messages is.
const SCHEMA: &str = "xsd/user-account-service.xsd";

#[track_caller]
fn sound(answer: SoapAnswer) -> SoapAnswer {
    if let Err(errors) = validate_xml(SCHEMA, answer.message()) {
        panic!("{errors:?}: {answer:?}");
    }
    answer
}

async fn a_client_made_from_the_wsdl_moves_money(stand: Stand) {
    let bank = Plan::on(stand).start().await;
    let client = bank.client(0);
    let address = bank.webs.first().expect("there is a web").address().to_owned();
    let account = fresh_account();
    client.open(account).await;
    let mut balance = 0_i64;
    for port in Port::ALL {
        let mut soap = SoapClient::of(&address, port, bank.key());
        let money = json!({"Amount": "10.00", "Currency": "EUR", "Reference": "<invoice> & 7", "WaitSeconds": "30",
            "Metadata": {"Entry": [{"Name": "shop", "Value": "12"}]}});
        // The id that the client makes by itself.
        let first = sound(soap.call("ReliableInsertMoney", account, &money, None));
        balance = balance.saturating_add(1000);
        let returned = |path: &str| first.text(&format!("/returned/Transaction/{path}")).to_owned();
        assert_eq!(returned("Status"), "posted", "{first:?}");
        assert_eq!(returned("Reference"), "<invoice> & 7");
        assert_eq!(returned("Metadata/Entry/0/Value"), "12");
        assert_eq!(first.whole()["returned"]["Replayed"], false, "{first:?}");
        let id = first.text("/message_id").strip_prefix("urn:uuid:").expect("a URN").parse().expect("a UUID");
        assert_eq!(first.text("/relates_to"), first.text("/message_id"));

        // The same again, by SOAP and by JSON, is the same transaction.
        let again = sound(soap.call("ReliableInsertMoney", account, &money, Some(id)));
        assert_eq!(again.whole()["returned"]["Replayed"], true, "{again:?}");
        assert_eq!(again.text("/returned/Transaction/OrderNumber"), returned("OrderNumber"));
        let wish =
            Wish::deposit("10.00").with("reference", "<invoice> & 7").with("metadata", json!({"shop": "12"}));
        let json = client.submit(account, id, &wish).await.expect(200);
        assert_eq!(json.text_at("/order_number"), returned("OrderNumber"));

        let mut other = money.clone();
        other["Amount"] = "10.01".into();
        let refused = soap.call("ReliableInsertMoney", account, &other, Some(id));
        assert_eq!(refused.fault().1, "idempotency_key_reused", "{refused:?}");
        assert_eq!(refused.text("/relates_to"), format!("urn:uuid:{id}"));
        let refused = soap.call("ReliableWithdrawMoney", account, &money, Some(id));
        assert_eq!(refused.fault().1, "idempotency_key_reused", "{refused:?}");

        let more = json!({"Amount": "500.00", "Currency": "EUR", "WaitSeconds": "30"});
        let rejected = sound(soap.call("ReliableWithdrawMoney", account, &more, Some(fresh_id())));
        assert_eq!(rejected.text("/returned/Transaction/Reason"), "insufficient_funds", "{rejected:?}");
        let less = json!({"Amount": "2.50", "Currency": "EUR", "WaitSeconds": "30"});
        let posted = sound(soap.call("ReliableWithdrawMoney", account, &less, Some(fresh_id())));
        balance = balance.saturating_sub(250);
        let expected = format!("{}.{:02}", balance.div_euclid(100), balance.rem_euclid(100));
        assert_eq!(posted.text("/returned/Transaction/BalanceAfter"), expected, "{posted:?}");

        let found = sound(soap.call("GetUserAccount", account, &json!({}), None));
        assert_eq!(found.text("/returned/Balance"), expected, "{found:?}");
        let found = sound(soap.call("GetTransaction", account, &json!({"MessageId": id.to_string()}), None));
        assert_eq!(found.text("/returned/OrderNumber"), returned("OrderNumber"), "{found:?}");

        let wrong = json!({"Amount": "0.001", "Currency": "EUX"});
        let refused = soap.call("ReliableInsertMoney", account, &wrong, Some(fresh_id()));
        assert_eq!(refused.fault().1, "validation_failed", "{refused:?}");
        assert_eq!(refused.whole()["fault"]["problem"]["fields"], json!(["Currency"]), "{refused:?}");
    }
    assert_eq!(client.balance(account).await, "15.00");
}

async fn every_operation_is_guarded(stand: Stand) {
    let bank = Plan::on(stand).start().await;
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
    let scopeless = bank.add_key("scopeless", &["metrics"]);
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
        let found = sound(narrow.call("GetUserAccount", own, &json!({}), None));
        assert_eq!(found.text("/returned/Balance"), "0.00");
    }
}
