//! The processing model of SOAP: versions of envelopes, and header blocks that must be understood (SOAP 1.1, section 4; SOAP 1.2
//! part 1, sections 2 and 5.4, and part 2, section 7.5.2.2).

use postonce_web::api::soap::envelope::Version;
use postonce_web::api::soap::operations::Operation;

use super::soap::{ADDRESSING, MONEY, at, envelope, fault, message, message_id, parsed, request, text};
use super::test_bank::{ACCOUNT, Answer, TestBank, id};

const NEXT: &str = "http://schemas.xmlsoap.org/soap/actor/next";
const ROLES: &str = "http://www.w3.org/2003/05/soap-envelope/role";
/// A header that nobody knows.
const HINT: &str = "x:Hint xmlns:x=\"urn:x\"";

/// What a block in the header of a deposit leads to.
enum Expected {
    /// The deposit.
    Done,
    /// A fault about the block with this name.
    NotUnderstood(&'static str),
    /// A fault about the value of mustUnderstand.
    Invalid,
}

/// The code that SOAP gives a fault.
fn soap_code(version: Version, answer: &Answer) -> String {
    let path: &[&str] = match version {
        Version::V11 => &["Body", "Fault", "faultcode"],
        Version::V12 => &["Body", "Fault", "Code", "Value"],
    };
    text(answer, path)
}

/// Sends a deposit with a header block, and checks what comes of it.
async fn check(bank: &TestBank, version: Version, number: u32, block: &str, expected: Expected) {
    let insert = message(Operation::ReliableInsertMoney, MONEY);
    let headers = format!("{}{block}", message_id(number));
    let answer = bank.call_as_shop(request(version, envelope(version, &headers, &insert))).await;
    let context = format!("{version:?} {block}: {answer:?}");
    match expected {
        Expected::Done => assert_eq!(answer.status, 200, "{context}"),
        Expected::Invalid => {
            let (status, client) = match version {
                Version::V11 => (500, "soap:Client"),
                Version::V12 => (400, "soap:Sender"),
            };
            assert_eq!(fault(version, &answer), (status, "body_invalid".to_owned()), "{context}");
            assert_eq!(soap_code(version, &answer), client, "{context}");
            assert!(answer.text.contains("mustUnderstand of the header"), "{context}");
        }
        Expected::NotUnderstood(name) => {
            assert_eq!(fault(version, &answer), (500, "header_not_understood".to_owned()), "{context}");
            assert_eq!(soap_code(version, &answer), "soap:MustUnderstand", "{context}");
            assert_eq!(text(&answer, &["Header", "RelatesTo"]), format!("urn:uuid:{}", id(number)));
            let root = parsed(&answer);
            let named = at(&root, &["Header", "NotUnderstood"]);
            match version {
                Version::V11 => assert!(named.is_none(), "{context}"),
                Version::V12 => {
                    let named = named.unwrap_or_else(|| panic!("{context}"));
                    assert_eq!(named.name.namespace, version.namespace(), "{context}");
                    assert_eq!(qualified_name(named), name, "{context}");
                }
            }
        }
    }
}

/// The name in the attribute `qname`, with its namespace in braces.
fn qualified_name(element: &postonce_shared::messaging::xml::Element) -> String {
    let value = &element.attributes.iter().find(|it| it.name.local == "qname").unwrap().value;
    match value.split_once(':') {
        None => value.clone(),
        Some((prefix, local)) => {
            let (_, namespace) = element.declarations.iter().find(|(it, _)| it == prefix).unwrap();
            format!("{{{namespace}}}{local}")
        }
    }
}

#[actix_web::test]
async fn a_block_must_be_understood_only_if_it_is_for_the_service() {
    use Expected::{Done, NotUnderstood};
    let bank = TestBank::with_account().await;
    let marked = |attributes: &str| format!("<{HINT} s:mustUnderstand=\"1\" {attributes}/>");
    let refused = || NotUnderstood("{urn:x}Hint");
    let of_11 = [
        (String::new(), refused()),
        (format!("s:actor=\"{NEXT}\""), refused()),
        (format!("s:actor=\" {NEXT}&#10;\""), refused()),
        ("s:actor=\"\"".to_owned(), refused()),
        ("s:actor=\"urn:gateway\"".to_owned(), Done),
        (format!("s:actor=\"{NEXT}/\""), Done),
        // The attributes of the other version, and those without a namespace, say nothing.
        (format!("s:role=\"{ROLES}/none\""), refused()),
        ("actor=\"urn:gateway\"".to_owned(), refused()),
    ];
    let of_12 = [
        (String::new(), refused()),
        (format!("s:role=\"{ROLES}/next\""), refused()),
        (format!("s:role=\"\t{ROLES}/ultimateReceiver \""), refused()),
        ("s:role=\"\"".to_owned(), refused()),
        (format!("s:role=\"{ROLES}/none\""), Done),
        ("s:role=\"urn:gateway\"".to_owned(), Done),
        (format!("s:role=\"{NEXT}\""), Done),
        ("s:actor=\"urn:gateway\"".to_owned(), refused()),
        ("role=\"urn:gateway\"".to_owned(), refused()),
    ];
    let of_11 = of_11.into_iter().map(|case| (Version::V11, case));
    let of_12 = of_12.into_iter().map(|case| (Version::V12, case));
    for (number, (version, (attributes, expected))) in (1..).zip(of_11.chain(of_12)) {
        check(&bank, version, number, &marked(&attributes), expected).await;
    }
    // A block for another role is nothing to the service, also one that it knows.
    let insert = message(Operation::ReliableInsertMoney, MONEY);
    let other = message_id(90).replace("<a:MessageID", "<a:MessageID s:actor=\"urn:gateway\"");
    let answer = bank.call_as_shop(request(Version::V11, envelope(Version::V11, &other, &insert))).await;
    assert_eq!(fault(Version::V11, &answer), (500, "idempotency_key_missing".to_owned()));
    let both = format!("{other}{}", message_id(91));
    let answer = bank.call_as_shop(request(Version::V11, envelope(Version::V11, &both, &insert))).await;
    assert_eq!(text(&answer, &["Header", "RelatesTo"]), format!("urn:uuid:{}", id(91)));
}

#[actix_web::test]
async fn must_understand_is_a_boolean_of_its_version() {
    use Expected::{Done, Invalid, NotUnderstood};
    let bank = TestBank::with_account().await;
    let mut number = 0;
    for version in Version::ALL {
        for value in [
            "1", " 1 ", "\t1&#13;", "&#x31;", "0", " 0\n", "true", " true ", "false", "TRUE", "yes", "",
            "01", "1 1",
        ] {
            let is_12 = version == Version::V12;
            let expected = match value.replace("&#13;", " ").replace("&#x31;", "1").trim() {
                "1" => NotUnderstood("{urn:x}Hint"),
                "0" => Done,
                "true" if is_12 => NotUnderstood("{urn:x}Hint"),
                "false" if is_12 => Done,
                _ => Invalid,
            };
            number += 1;
            let block = format!("<{HINT} s:mustUnderstand=\"{value}\"/>");
            check(&bank, version, number, &block, expected).await;
        }
        // For another role, the value has no effect either.
        let role = if version == Version::V11 { "actor" } else { "role" };
        number += 1;
        let block = format!("<{HINT} s:mustUnderstand=\"yes\" s:{role}=\"urn:gateway\"/>");
        check(&bank, version, number, &block, Done).await;
        number += 1;
        check(&bank, version, number, &format!("<{HINT} mustUnderstand=\"1\"/>"), Done).await;
    }
}

#[actix_web::test]
async fn only_the_headers_of_addressing_that_have_an_effect_are_understood() {
    use Expected::{Done, NotUnderstood};
    let bank = TestBank::with_account().await;
    let mut number = 0;
    for namespace in [ADDRESSING, "http://schemas.xmlsoap.org/ws/2004/08/addressing"] {
        let block = |name: &str, content: &str, marked: &str| {
            format!("<w:{name} xmlns:w=\"{namespace}\" {marked}>{content}</w:{name}>")
        };
        let address = "<w:Address>http://www.w3.org/2005/08/addressing/anonymous</w:Address>";
        let action = "urn:postonce:soap:1/ReliableInsertMoney";
        for version in Version::ALL {
            for name in ["ReplyTo", "FaultTo", "From", "RelatesTo", "Unknown"] {
                let full = format!("{{{namespace}}}{name}");
                number += 1;
                let marked = block(name, address, "s:mustUnderstand=\"1\"");
                check(&bank, version, number, &marked, NotUnderstood(full.leak())).await;
                number += 1;
                check(&bank, version, number, &block(name, address, ""), Done).await;
            }
            for (name, content) in [("To", "urn:bank"), ("Action", action)] {
                number += 1;
                check(&bank, version, number, &block(name, content, "s:mustUnderstand=\"1\""), Done).await;
            }
        }
    }
    // Nothing else of the request is looked at before: neither a second id nor the body.
    let several = format!(
        "{}{}<{HINT} s:mustUnderstand=\"1\"/><Bare s:mustUnderstand=\"1\"/>",
        message_id(1),
        message_id(2)
    );
    let answer = bank.call_as_shop(request(Version::V12, envelope(Version::V12, &several, "text"))).await;
    assert_eq!(fault(Version::V12, &answer), (500, "header_not_understood".to_owned()));
    let root = parsed(&answer);
    let header = at(&root, &["Header"]).unwrap();
    assert_eq!(header.elements().map(qualified_name).collect::<Vec<_>>(), ["{urn:x}Hint", "Bare"]);
    let many: String = (0..500)
        .map(|number| format!("<x:H{number} xmlns:x=\"urn:{}\" s:mustUnderstand=\"1\"/>", "x".repeat(60)))
        .collect();
    let answer = bank.call_as_shop(request(Version::V12, envelope(Version::V12, &many, ""))).await;
    assert!(answer.text.len() < many.len() / 4, "the fault is bounded: {} bytes", answer.text.len());
}

#[actix_web::test]
async fn an_envelope_of_another_version_is_a_version_mismatch() {
    let bank = TestBank::with_account().await;
    let insert = message(Operation::ReliableInsertMoney, MONEY);
    let own = |version| envelope(version, &message_id(1), &insert);
    let of_namespace = |namespace: &str| own(Version::V11).replace(Version::V11.namespace(), namespace);
    let [one, two] = Version::ALL;
    for (sent, body, answered) in [
        (one, own(two), one),
        // A message of 1.1 is answered in 1.1 (SOAP 1.2 part 1, appendix A).
        (two, own(one), one),
        (one, of_namespace("urn:other"), one),
        (two, of_namespace("urn:other"), two),
        (one, "<Envelope/>".to_owned(), one),
        (two, "<a/>".to_owned(), two),
    ] {
        let answer = bank.call_as_shop(request(sent, body.clone())).await;
        assert_eq!(fault(answered, &answer), (500, "body_invalid".to_owned()), "{body}: {answer:?}");
        assert_eq!(soap_code(answered, &answer), "soap:VersionMismatch", "{body}: {answer:?}");
        let root = parsed(&answer);
        assert_eq!(root.name.namespace, answered.namespace(), "{body}");
        let upgrade = at(&root, &["Header", "Upgrade"]).unwrap_or_else(|| panic!("{body}: {answer:?}"));
        assert_eq!(upgrade.name.namespace, two.namespace());
        let supported: Vec<String> = upgrade.elements().map(qualified_name).collect();
        let expected = [two, one].map(|version| format!("{{{}}}Envelope", version.namespace()));
        assert_eq!(supported, expected);
    }
    let answer = bank.call_as_shop(request(one, "<a/>".to_owned())).await;
    assert_eq!(soap_code(one, &answer), "soap:Client", "it is no envelope of any version");
    assert_eq!(bank.get(ACCOUNT).await.body["balance"], "0.00");
}
