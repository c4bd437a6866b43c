use std::io::{Cursor, Read as _, Write as _};
use std::sync::Arc;

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use postonce_shared::domain::batch::{OnInvalid, Tally};
use postonce_shared::messaging::xml::XmlLimits;
use postonce_shared::testing::prelude::*;
use postonce_shared::text::Charset;

use super::reading::tests::reading;
use super::*;
use crate::access::scopes::Scope;
use crate::access::turns::Turns;
use crate::api::arguments::HeaderParameter as _;
use crate::formats::items::ITEM_FORMATS;

fn headers(values: &[(&'static str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in values {
        headers.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn control_totals(values: &[(&'static str, &str)]) -> Result<ControlTotals, ApiError> {
    let headers = headers(values);
    let text = |name| Option::<String>::read(&headers, name).unwrap();
    ControlTotals::parse(text("batch-count").as_deref(), text("batch-sums").as_deref())
}

#[test]
fn control_totals_are_compared_exactly() {
    let mut valid = Tally::default();
    let amount = |text: &str, code: &str| Amount::parse(text, Currency::parse(code).unwrap()).unwrap();
    valid.add(TransactionKind::Deposit, amount("9999999999999999.99", "EUR"));
    valid.add(TransactionKind::Withdrawal, amount("0.01", "EUR"));
    valid.add(TransactionKind::Deposit, amount("7", "JPY"));
    let check = |count: &str, sums: &str, expected: &[&str]| {
        let totals = control_totals(&[("batch-count", count), ("batch-sums", sums)]).unwrap();
        let found = totals.violations(3, &valid);
        let found: Vec<&str> = found.iter().map(|violation| violation.message.as_str()).collect();
        assert_eq!(found, expected, "{count} {sums}");
    };
    check("3", "EUR=10000000000000000.00, JPY=7", &[]);
    check("3", "JPY=7,EUR=10000000000000000", &[]);
    check("2", "EUR=10000000000000000.0,JPY=7", &["is 2, but the document has 3 items"]);
    check(
        "3",
        "EUR=9999999999999999.99, JPY=7",
        &["has 9999999999999999.99 EUR, but the items have 10000000000000000.00 EUR"],
    );
    check("3", "EUR=10000000000000000", &["has no sum for JPY, but the document has items in it"]);
    check("3", "EUR=10000000000000000, JPY=7, USD=1", &["has 1.00 USD, but the items have 0.00 USD"]);
    assert_eq!(control_totals(&[]).unwrap().violations(3, &valid), []);
}

#[test]
fn wrong_control_totals_are_named() {
    for (name, wrong) in [
        ("batch-count", "-1"),
        ("batch-count", "3.0"),
        ("batch-count", ""),
        ("batch-sums", "EUR"),
        ("batch-sums", "EUR=1,EUR=2"),
        ("batch-sums", "EUR=1.234"),
        ("batch-sums", "EUR=0012.5"),
        ("batch-sums", "EUR=1."),
        ("batch-sums", "EUR=.5"),
        ("batch-sums", "EUR=-1"),
        ("batch-sums", "euro=1"),
        ("batch-sums", ""),
    ] {
        let error = control_totals(&[(name, wrong)]).unwrap_err();
        let fields: Vec<&str> = error.fields().collect();
        assert_eq!(fields.len(), 1, "{name}: {wrong}");
        assert!(fields[0].eq_ignore_ascii_case(name));
    }
}

#[test]
fn totals_in_several_lines_are_one_list() {
    let totals = control_totals;
    let one = totals(&[("batch-sums", "EUR=1.00, USD=7.00")]).unwrap();
    assert_eq!(totals(&[("batch-sums", "EUR=1.00"), ("batch-sums", "USD=7.00")]).unwrap(), one);
    for repeated in [
        [("batch-count", "3"), ("batch-count", "3")],
        [("batch-sums", "EUR=1.00"), ("batch-sums", "EUR=2.00")],
        [("batch-sums", "EUR=1.00"), ("batch-sums", "")],
    ] {
        assert!(totals(&repeated).is_err(), "{repeated:?}");
    }
}

#[test]
fn a_compressed_document_is_complete_and_ends_with_its_end() {
    let document = json_item("1.50").repeat(20);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(document.as_bytes()).unwrap();
    let zstd = zstd::bulk::compress(document.as_bytes(), 1).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let _entered = runtime.enter();
    let (mut reading, ..) = reading(Arc::new(Turns::new(1, 1, Duration::from_secs(60))));
    let pace = Rc::new(reading.start().unwrap());
    for (encoding, compressed) in [(Encoding::Gzip, gzip.finish().unwrap()), (Encoding::Zstd, zstd)] {
        let read = |bytes: &[u8]| {
            let mut text = String::new();
            let mut input = encoding.expand(Cursor::new(bytes.to_vec()), &pace)?;
            input.read_to_string(&mut text).map(|_| text)
        };
        assert_eq!(read(&compressed).unwrap(), document);
        for length in 1..compressed.len() {
            assert!(
                read(&compressed[..length]).is_err(),
                "{encoding:?}: {length} of {} bytes",
                compressed.len()
            );
        }
        assert!(read(&[compressed.as_slice(), b"more"].concat()).is_err(), "{encoding:?}");
    }
}

#[test]
fn the_encoding_is_one_of_three() {
    let check = |values: &[&str], expected: Option<Encoding>| {
        let values: Vec<_> = values.iter().map(|value| ("content-encoding", *value)).collect();
        assert_eq!(Encoding::of(&headers(&values)).ok(), expected, "{values:?}");
    };
    check(&[], Some(Encoding::Identity));
    check(&["GZIP"], Some(Encoding::Gzip));
    check(&["zstd"], Some(Encoding::Zstd));
    check(&["br"], None);
    check(&["gzip, zstd"], None);
    check(&["gzip", "zstd"], None);
}

#[test]
fn both_names_of_xml_are_known() {
    for media_type in ["application/xml", "text/xml", "Text/XML; charset=utf-8"] {
        let source = Source::of(&headers(&[("content-type", media_type)])).unwrap();
        assert_eq!(source.format.media_type, "application/xml", "{media_type}");
    }
    assert!(Source::of(&headers(&[("content-type", "text/html")])).is_err());
}

const ID: &str = "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10";

fn check_as(
    media_type: &str,
    document: &str,
    headers_sent: &[(&'static str, &str)],
) -> Result<Summary, ApiError> {
    check_document(media_type, document, headers_sent, true)
}

fn check_document(
    media_type: &str,
    document: &str,
    headers_sent: &[(&'static str, &str)],
    is_new: bool,
) -> Result<Summary, ApiError> {
    let format = ITEM_FORMATS.iter().find(|format| format.media_type == media_type).unwrap();
    let document = Box::new(Cursor::new(document.to_owned()));
    let mut items = format.read(document, Charset::Utf8, &XmlLimits::default()).map_err(broken)?;
    let partner =
        Partner::active(PartnerId::parse("shop").unwrap(), Reach::Everything, TestWorld::new(1).now());
    let rules = Rules {
        on_invalid: OnInvalid::Skip,
        items_max: 10,
        control: control_totals(headers_sent)?,
        partner: Arc::new(partner),
        scopes: Scope::ALL.iter().copied().collect(),
    };
    let (parts, _stored) = mpsc::channel(10);
    let turns = Turns::new(1, 1, Duration::ZERO);
    let (mut reading, ..) = reading(Arc::new(turns));
    check(&mut *items, rules, is_new, (&parts, &reading.start().unwrap()))
}

/// Returns the violations of a document, as `field message`.
fn found(checked: Result<Summary, ApiError>) -> Vec<String> {
    let error = checked.expect_err("it is refused");
    let problem = error.problem();
    if problem.violations.is_empty() {
        return vec![problem.detail];
    }
    problem.violations.iter().map(|it| format!("{} {}", it.field, it.message)).collect()
}

fn json_item(amount: &str) -> String {
    let ids = format!(r#""user_id":"{ID}","account_id":"{ID}","message_id":"{ID}""#);
    format!("{{{ids},\"type\":\"deposit\",\"amount\":\"{amount}\",\"currency\":\"EUR\"}}\n")
}

fn json_document(control: &str) -> String {
    format!("\n{{\"control\":{control}}}\n{}{}", json_item("1.50"), json_item("2.00"))
}

const CSV_HEAD: &str =
    "control.sums.EUR,user_id,account_id,message_id,type,amount,currency,control.count,control.sums.JPY\r\n";

fn csv_document(count: &str, euro: &str) -> String {
    let item = |amount: &str| format!(",{ID},{ID},{ID},deposit,{amount},EUR,,\r\n");
    format!("{CSV_HEAD}{euro},,,,,,,{count},0\r\n{}{}", item("1.50"), item("2.00"))
}

fn xml_document(control: &str) -> String {
    let ids = format!("<UserId>{ID}</UserId><AccountId>{ID}</AccountId><MessageId>{ID}</MessageId>");
    let item = |amount: &str| {
        let money = format!("<Amount>{amount}</Amount><Currency>EUR</Currency>");
        format!("<TransactionRequest>{ids}<Type>deposit</Type>{money}</TransactionRequest>\n")
    };
    let items = [item("1.50"), item("2.00")].concat();
    format!("<BatchRequest xmlns=\"urn:postonce:xml:1\">\n{control}\n{items}</BatchRequest>")
}

fn xml_control(count: &str, euro: &str) -> String {
    let sum = format!("<Sum><Currency>EUR</Currency><Amount>{euro}</Amount></Sum>");
    format!("<Control><Count>{count}</Count><Sums>{sum}</Sums></Control>")
}

#[test]
fn members_that_look_like_known_ones_refuse_a_new_batch_only() {
    let with =
        |member: &str| json_item("1.50").replace("\"type\"", &format!("\"{member}\":\"rent\",\"type\""));
    let document = [json_item("1.50"), with("purpose"), with("refrence"), with("Metadata")].concat();
    let refused = found(check_as("application/x-ndjson", &document, &[]));
    let expected = [
        "line 3, refrence is not a known field; did you mean reference?",
        "line 4, Metadata is not a known field; did you mean metadata?",
    ];
    assert_eq!(refused, expected);
    // An earlier version, which did not know these members, accepted the batch.
    let repeated = check_document("application/x-ndjson", &document, &[], false).unwrap();
    assert_eq!((repeated.valid.count, repeated.invalid), (4, 0));
}

#[test]
fn totals_in_the_first_record_are_no_content_and_have_no_line() {
    let plain = format!("{}{}", json_item("1.50"), json_item("2.00"));
    let plain = check_as("application/x-ndjson", &plain, &[]).unwrap();
    assert_eq!(plain.valid.count, 2);
    for control in [
        r#"{"count":2,"sums":{"EUR":"3.50","JPY":"0"}}"#,
        r#"{"count":2}"#,
        r#"{"sums":{"EUR":"3.5"}}"#,
        r#"{"count":null,"sums":null}"#,
        "{}",
    ] {
        let with = check_as("application/x-ndjson", &json_document(control), &[]).unwrap();
        assert_eq!(with, plain, "{control}");
    }
    assert_eq!(check_as("text/csv", &csv_document("2", "3.50"), &[]).unwrap(), plain);
    for control in
        [xml_control("2", "3.50"), xml_control("0002", "3"), "<Control/>".to_owned(), String::new()]
    {
        let checked = check_as("application/xml", &xml_document(&control), &[]);
        match control.contains("0002") {
            true => assert_eq!(found(checked), ["control.sums has 3.00 EUR, but the items have 3.50 EUR"]),
            false => assert_eq!(checked.unwrap(), plain, "{control}"),
        }
    }
}

#[test]
fn other_totals_in_the_first_record_refuse_the_batch_by_name() {
    let wrong = [
        "control.count is 3, but the document has 2 items",
        "control.sums has 3.51 EUR, but the items have 3.50 EUR",
    ];
    let json = json_document(r#"{"count":3,"sums":{"EUR":"3.51"}}"#);
    assert_eq!(found(check_as("application/x-ndjson", &json, &[])), wrong);
    assert_eq!(found(check_as("text/csv", &csv_document("3", "3.51"), &[])), wrong);
    assert_eq!(found(check_as("application/xml", &xml_document(&xml_control("3", "3.51")), &[])), wrong);
    let json = json_document(r#"{"sums":{}}"#);
    let missing = ["control.sums has no sum for EUR, but the document has items in it"];
    assert_eq!(found(check_as("application/x-ndjson", &json, &[])), missing);
    // A document of totals without items.
    let none = found(check_as("application/x-ndjson", "{\"control\":{\"count\":0}}", &[]));
    assert_eq!(none, ["body must contain at least one item"]);
}

#[test]
fn totals_in_headers_and_in_the_first_record_must_agree() {
    let right = json_document(r#"{"count":2,"sums":{"EUR":"3.50"}}"#);
    let sent = |count, sums| [("batch-count", count), ("batch-sums", sums)];
    assert!(check_as("application/x-ndjson", &right, &sent("2", "EUR=3.50")).is_ok());
    assert_eq!(
        found(check_as("application/x-ndjson", &right, &sent("1", "EUR=3"))),
        [
            "Batch-Count is 1, but the document has 2 items",
            "Batch-Sums has 3.00 EUR, but the items have 3.50 EUR"
        ]
    );
    let wrong = json_document(r#"{"count":1}"#);
    assert_eq!(
        found(check_as("application/x-ndjson", &wrong, &sent("2", "EUR=3.50"))),
        ["control.count is 1, but the document has 2 items"]
    );
}

#[test]
fn an_invalid_item_is_the_same_in_every_format_and_no_other_one() {
    let content = |media_type, document: &str| check_as(media_type, document, &[]).unwrap().content;
    let json = |amount: &str| content("application/x-ndjson", &(json_item(amount) + &json_item("2.00")));
    let csv = csv_document("", "").replace("1.50", "x");
    let csv = csv.lines().filter(|line| !line.starts_with(",,,")).collect::<Vec<_>>().join("\r\n");
    assert_eq!(content("text/csv", &csv), json("x"));
    assert_eq!(content("application/xml", &xml_document("").replace("1.50", "x")), json("x"));
    assert_ne!(json("y"), json("x"));
    // Not even an object.
    let line = |line: &str| content("application/x-ndjson", line);
    assert_eq!(line("{x\n"), line(" {x \n"));
    assert_ne!(line("{x\n"), line("{y\n"));
    let record = |record: &str| content("text/csv", &format!("user_id,amount\n{record}\n"));
    assert_ne!(record("a"), record("b"));
    let child = |child: &str| content("application/xml", &xml_document(child));
    assert_ne!(child("<a/>"), child("<b/>"));
}

#[test]
fn totals_that_cannot_be_read_are_named() {
    let json = |control: &str, expected: &[&str]| {
        let found = found(check_as("application/x-ndjson", &json_document(control), &[]));
        assert_eq!(found, expected, "{control}");
    };
    json("null", &["control must be an object"]);
    json("[2]", &["control must be an object"]);
    json(r#"{"count":"2"}"#, &["control.count must be a whole number that is not negative"]);
    json(r#"{"count":-1}"#, &["control.count must be a whole number that is not negative"]);
    json(r#"{"count":2.5}"#, &["control.count must be a whole number that is not negative"]);
    json(r#"{"count":4294967296}"#, &["control.count is larger than the number of items of any batch"]);
    let inexact = "control contains a number that cannot be stored exactly: it has more than 18 digits before the decimal \
                   point, or more digits than a double can represent";
    json(r#"{"count":2.0000000000000000001}"#, &[inexact]);
    json(r#"{"items":2}"#, &["control.items is not a known field"]);
    json(r#"{"sums":"EUR=3.50"}"#, &["control.sums must be an object"]);
    json(r#"{"sums":{"EUR":3.5}}"#, &["control.sums.EUR must be a string; a JSON number can lose digits"]);
    json(r#"{"sums":{"EUX":"1"}}"#, &["control.sums has \"EUX\", which is not a currency code"]);
    let decimals = "control.sums.EUR must be a decimal number with at most 2 decimals, without leading zeros";
    let large = "9".repeat(60);
    for sum in ["", "-1", "1e3", "1.", ".5", "1,50", "3.500", "03.50", &large] {
        json(&format!("{{\"sums\":{{\"EUR\":\"{sum}\"}}}}"), &[decimals]);
    }
    json(
        r#"{"count":[],"sums":{"EUR":"x"}}"#,
        &["control.count must be a whole number that is not negative", decimals],
    );
    let count = "control.count must be a whole number that is not negative";
    assert_eq!(found(check_as("text/csv", &csv_document("two", "x"), &[])), [count, decimals]);
    let xml = |control: &str, expected: &str| {
        assert_eq!(found(check_as("application/xml", &xml_document(control), &[])), [expected], "{control}");
    };
    xml(&xml_control("+2", "3.50"), "Control/Count must be a whole number");
    xml(&xml_control("2", "x"), decimals);
    xml("<Control a='1'/>", "Control must not have the attribute a");
    xml("<Control>2</Control>", "Control must not contain text between its elements");
    let twice = "<Control><Count>2</Count><Count>2</Count></Control>";
    xml(twice, "Control/Count must not occur more than once");
}

#[test]
fn totals_are_in_one_record_before_the_items() {
    let control = "{\"control\":{\"count\":2}}\n";
    let item = json_item("1.00");
    let json = |document: String, expected: &[&str]| {
        assert_eq!(found(check_as("application/x-ndjson", &document, &[])), expected, "{document}");
    };
    let twice = "control must not be in more than one record";
    let late = "control must be in the first record, and not after 1 items";
    json(format!("{control}{control}{item}"), &[twice]);
    json(format!("{control}{item}{control}"), &[twice]);
    json(format!("{item}{control}{item}"), &[late]);
    json(format!("{item}{item}{control}"), &["control must be in the first record, and not after 2 items"]);
    // Violations found before the second record are also reported.
    let unreadable = "{\"control\":{\"count\":-1}}\n";
    let negative = "control.count must be a whole number that is not negative";
    json(format!("{unreadable}{item}{control}"), &[twice, negative]);
    let user = format!("{{\"control\":{{\"count\":1}},\"user_id\":\"{ID}\"}}\n{item}");
    json(user, &["user_id is not a known field"]);
    let of_item = format!("{CSV_HEAD}3.50,{ID},,,,,,,\r\n");
    let both = "A record with control totals must not have cells of an item.";
    assert_eq!(found(check_as("text/csv", &of_item, &[])), [both]);
    let record = "1,,,,,,,1,\r\n";
    assert_eq!(found(check_as("text/csv", &format!("{CSV_HEAD}{record}{record}"), &[])), [twice]);
    let xml = xml_document(&xml_control("2", "3.50").repeat(2));
    assert_eq!(found(check_as("application/xml", &xml, &[])), [twice]);
    let xml = xml_document("").replace("</TransactionRequest>\n</B", "</TransactionRequest><Control/></B");
    let late = "control must be in the first record, and not after 2 items";
    assert_eq!(found(check_as("application/xml", &xml, &[])), [late]);
}

#[test]
fn an_item_can_have_an_unknown_member_named_control() {
    let item = json_item("1.00").replace("{", "{\"control\":{\"count\":7},");
    assert_eq!(check_as("application/x-ndjson", &item.repeat(2), &[]).unwrap().valid.count, 2);
}
