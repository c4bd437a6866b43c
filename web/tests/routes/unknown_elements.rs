//! Unknown elements of requests in XML and SOAP: they are part of the content, like unknown members in JSON, and names that look
//! like known ones are refused.

use actix_web::test::TestRequest;
use postonce_web::api::soap::envelope::Version;
use postonce_web::api::soap::operations::Operation;

use super::soap::{MONEY, envelope, message, message_id, request};
use super::test_bank::{ACCOUNT, Answer, TestBank, id};

/// A kind of request that moves money.
#[derive(Debug, Clone, Copy)]
enum Way {
    Xml,
    Batch,
    Soap,
    Compat,
}

const WAYS: [Way; 4] = [Way::Xml, Way::Batch, Way::Soap, Way::Compat];

impl TestBank {
    /// Sends a deposit, or a batch of it, with more elements.
    async fn deposit(&self, way: Way, number: u32, more: &str) -> Answer {
        let of_xml = |path: String, body: String| {
            let request = TestRequest::post().uri(&path).insert_header(("content-type", "application/xml"));
            request.insert_header(("idempotency-key", id(number))).set_payload(body)
        };
        let of_soap = |operation: Operation, money: &str| {
            let body = message(operation, &format!("{money}{more}"));
            let body = envelope(Version::V11, &message_id(number), &body);
            request(Version::V11, body).uri(operation.contract().path()).insert_header(("prefer", "wait=0"))
        };
        let sent = match way {
            Way::Xml => of_xml(
                format!("{ACCOUNT}/deposits"),
                format!(
                    "<TransactionRequest xmlns=\"urn:postonce:xml:1\">{MONEY}{more}</TransactionRequest>"
                ),
            ),
            Way::Batch => {
                let ids = message(Operation::GetUserAccount, "");
                let ids = ids.split_once('>').unwrap().1.rsplit_once('<').unwrap().0;
                let item =
                    format!("{ids}<MessageId>{}</MessageId><Type>deposit</Type>{MONEY}{more}", id(number));
                let item = format!("<TransactionRequest>{item}</TransactionRequest>");
                let body = format!("<BatchRequest xmlns=\"urn:postonce:xml:1\">{item}</BatchRequest>");
                of_xml("/v1/batches".to_owned(), body)
            }
            Way::Soap => of_soap(Operation::ReliableInsertMoney, MONEY),
            Way::Compat => of_soap(Operation::CompatInsertMoney, "<amount>10</amount>"),
        };
        self.wait_for(sent).await.0
    }

    /// The transaction in the canonical XML.
    async fn stored(&self, number: u32) -> Answer {
        let path = format!("{ACCOUNT}/transactions/{}", id(number));
        let request = TestRequest::get().uri(&path).insert_header(("accept", "application/vnd.postonce+xml"));
        self.call_as_shop(request).await
    }
}

/// Returns whether a deposit was accepted. In the classic contract it is not final in these tests.
fn is_accepted(way: Way, answer: &Answer) -> bool {
    match way {
        Way::Xml | Way::Batch => answer.status == 202,
        Way::Soap => answer.status == 200,
        Way::Compat => answer.text.contains("outcome_pending"),
    }
}

#[actix_web::test]
async fn an_unknown_element_is_kept_as_part_of_the_content() {
    let bank = TestBank::with_account().await;
    let elements = ["<Memo>rent</Memo>", "<x:Memo xmlns:x=\"urn:x\">rent</x:Memo>"];
    let cases = WAYS.into_iter().flat_map(|way| elements.map(|element| (way, element)));
    for (number, (way, element)) in (1..).zip(cases) {
        let first = bank.deposit(way, number, element).await;
        assert!(is_accepted(way, &first), "{way:?} {element}: {first:?}");
        if matches!(way, Way::Batch) {
            continue;
        }
        let stored = bank.stored(number).await;
        assert!(stored.text.contains(">rent</"), "{way:?} {element}: {stored:?}");
        let is_apart = matches!(way, Way::Xml) && !element.contains("x:");
        assert_eq!(stored.text.contains("<UnknownElements><Memo"), is_apart, "{way:?} {element}: {stored:?}");
        assert!(is_accepted(way, &bank.deposit(way, number, element).await), "{way:?} {element}: repeated");
        for other in [String::new(), element.replace("rent", "Rent"), element.replace("Memo", "Note")] {
            let refused = bank.deposit(way, number, &other).await;
            assert!(refused.text.contains("idempotency_key_reused"), "{way:?} {other}: {refused:?}");
        }
    }
}

#[actix_web::test]
async fn an_element_whose_name_looks_like_a_known_one_is_refused() {
    let bank = TestBank::with_account().await;
    for (number, way) in (1..).zip(WAYS) {
        let (typo, case, known) = match way {
            Way::Xml | Way::Batch | Way::Soap => ("Refrence", "AMOUNT", ["Reference", "Amount"]),
            Way::Compat => ("amout", "Amount", ["amount", "amount"]),
        };
        for (wrong, meant) in [typo, case].into_iter().zip(known) {
            let refused = bank.deposit(way, number, &format!("<{wrong}>1</{wrong}>")).await;
            assert!(refused.text.contains("validation_failed"), "{way:?} {wrong}: {refused:?}");
            assert!(refused.text.contains(wrong), "{way:?} {wrong}: {refused:?}");
            assert!(refused.text.contains(&format!("did you mean {meant}?")), "{way:?} {wrong}: {refused:?}");
        }
        // In another namespace it is an element of the client.
        let own = bank.deposit(way, number, "<x:Amount xmlns:x=\"urn:x\">1</x:Amount>").await;
        assert!(is_accepted(way, &own), "{way:?}: {own:?}");
    }
}
