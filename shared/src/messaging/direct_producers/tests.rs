use super::*;
use crate::domain::instruction::UNKNOWN_MEMBERS_BYTES_MAX;

const USER: &str = "0b1c2d3e-0000-4000-8000-000000000001";
const ACCOUNT: &str = "77aa0000-0000-4000-8000-000000000002";
const MESSAGE: &str = "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10";

fn xml(amount: &str) -> String {
    document("", &fields(amount))
}

fn fields(amount: &str) -> String {
    format!(
        "<UserId>{USER}</UserId><AccountId>{ACCOUNT}</AccountId>\
         <TransactionId>{MESSAGE}</TransactionId><Amount>{amount}</Amount>"
    )
}

fn document(attributes: &str, content: &str) -> String {
    format!("<UserAccountTransaction{attributes}>{content}</UserAccountTransaction>")
}

fn delimited(amount: &str) -> String {
    format!("{USER}|{ACCOUNT}|{MESSAGE}|{amount}")
}

/// Returns the only order of a body.
fn single(body: &[u8]) -> Result<DirectOrder, DirectOrderError> {
    let orders = parse(body).unwrap_or_else(|| panic!("{} has a form", String::from_utf8_lossy(body)));
    let [Order { body: own, order }] = <[Order; 1]>::try_from(orders).unwrap();
    assert_eq!(own, body, "the body of the only order is that of the message");
    order
}

fn valid(body: impl AsRef<[u8]>) -> DirectOrder {
    let body = body.as_ref();
    single(body).unwrap_or_else(|invalid| panic!("{}: {invalid}", String::from_utf8_lossy(body)))
}

/// Returns the violations of a body, one per line.
fn violations_of(body: impl AsRef<[u8]>) -> String {
    let body = body.as_ref();
    let invalid = match single(body) {
        Err(invalid) => invalid,
        Ok(order) => panic!("{}: {order:?}", String::from_utf8_lossy(body)),
    };
    invalid.violations.iter().map(Violation::to_string).collect::<Vec<_>>().join("\n")
}

fn order(kind: TransactionKind, magnitude: &str) -> DirectOrder {
    let account = AccountKey { user: USER.parse().unwrap(), account: ACCOUNT.parse().unwrap() };
    let message = MESSAGE.parse().unwrap();
    DirectOrder {
        account,
        message,
        kind,
        magnitude: magnitude.to_owned(),
        currency: None,
        details: Details::default(),
    }
}

#[test]
fn all_forms_give_the_same_order() {
    for (amount, expected) in
        [("12.5", order(TransactionKind::Deposit, "12.5")), ("-7", order(TransactionKind::Withdrawal, "7"))]
    {
        let row_as_xml = format!(
            "<Amount>{amount}</Amount><RowKey>{MESSAGE}</RowKey><PartitionKey>{USER}|{ACCOUNT}</PartitionKey>"
        );
        let row_as_json =
            format!(r#"{{"RowKey":"{MESSAGE}","PartitionKey":"{USER}|{ACCOUNT}","Amount":{amount}}}"#);
        let own = format!(r#"{{"UserId":"{USER}","AccountId":"{ACCOUNT}","TransactionId":"{MESSAGE}""#);
        for body in [
            xml(amount),
            delimited(amount),
            document("", &row_as_xml),
            row_as_json.clone(),
            format!("[{row_as_json}]"),
            format!(r#"{own},"Amount":"{amount}"}}"#),
            // The keys and the ids may both be there, if they are equal.
            row_as_json.replace('{', &format!("{own},")),
            document("", &format!("{row_as_xml}<UserId>{USER}</UserId>")),
        ] {
            assert_eq!(valid(&body), expected, "{body}");
            assert_eq!(valid(STANDARD.encode(&body)), expected, "{body}");
        }
    }
    for other in [
        format!("<UserId>{ACCOUNT}</UserId>"),
        format!("<AccountId>{USER}</AccountId>"),
        format!("<TransactionId>{USER}</TransactionId>"),
    ] {
        let keys = format!("<PartitionKey>{USER}|{ACCOUNT}</PartitionKey><RowKey>{MESSAGE}</RowKey>");
        let violations = violations_of(document("", &format!("{other}{keys}<Amount>1</Amount>")));
        assert!(violations.contains("must be equal to the id in"), "{other}: {violations}");
    }
}

/// Returns the orders of a body: their own bodies, and their magnitudes or violations.
fn orders_of(body: &str) -> Vec<(String, String)> {
    let orders = parse(body.as_bytes()).unwrap_or_else(|| panic!("{body:.200} has a form"));
    let outcome = |order: Result<DirectOrder, DirectOrderError>| {
        order.map_or_else(|invalid| invalid.to_string(), |order| order.magnitude)
    };
    let own = |body| String::from_utf8(body).unwrap();
    orders.into_iter().map(|Order { body, order }| (own(body), outcome(order))).collect()
}

#[test]
fn a_message_can_contain_several_orders_of_one_form() {
    let lines = format!("{}\r\n\n{}\na|b\n", delimited("1"), delimited("2"));
    let [first, second, third] = <[_; 3]>::try_from(orders_of(&lines)).unwrap();
    assert_eq!(first, (delimited("1"), "1".to_owned()));
    assert_eq!(second, (delimited("2"), "2".to_owned()));
    assert!(third.0 == "a|b" && third.1.contains("has 2 fields"), "{third:?}");

    let row = |amount: &str| {
        format!(r#"{{"PartitionKey":"{USER}|{ACCOUNT}","RowKey":"{MESSAGE}","Amount":{amount}}}"#)
    };
    let [first, second, third] =
        <[_; 3]>::try_from(orders_of(&format!(" [{} ,\n{}, 7 ]", row("1.5"), row("0")))).unwrap();
    assert_eq!(first, (row("1.5"), "1.5".to_owned()));
    assert!(second.0 == row("0") && second.1.contains("Amount must not be zero"), "{second:?}");
    assert!(third.0 == "7" && third.1.contains("must be a JSON object"), "{third:?}");

    let array = |content: &str| {
        format!(
            "<?xml version=\"1.0\" encoding=\"utf-16\"?>\r\n<ArrayOfUserAccountTransaction \
             xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\">{content}</ArrayOfUserAccountTransaction>"
        )
    };
    let noted = document("", &format!("{}<Note xsi:nil=\"true\" />", fields("3")));
    let [first, second, third] =
        <[_; 3]>::try_from(orders_of(&array(&format!("{} {noted}<Other/>", xml("2"))))).unwrap();
    assert_eq!(first, (xml("2"), "2".to_owned()));
    assert_eq!(second.1, "3");
    // The own body declares the prefixes that it uses.
    assert_eq!(valid(&second.0).details.unknown_members(), unknown_of_array(&array(&noted)));
    assert!(third.1.contains("must be a UserAccountTransaction, but is a Other"), "{third:?}");

    for empty in ["[]", array("").as_str()] {
        assert!(violations_of(empty).contains("must have at least one order"), "{empty}");
    }
    assert!(violations_of(array("x")).contains("must not have text between the elements"));
    let attribute = array("").replace(" xmlns:xsi", " id='1' xmlns:xsi");
    assert!(violations_of(attribute).contains("must not have the attribute id"));
    let many = |count: usize| orders_of(&"a|b\n".repeat(count)).len();
    assert_eq!((many(ORDERS_MAX), many(ORDERS_MAX + 1)), (ORDERS_MAX, 1));
    assert!(violations_of("a|b\n".repeat(701)).contains("must have at most 700 orders, but has 701"));
    assert_eq!(orders_of(&format!("[{}]", "{},".repeat(30_000))).len(), 1, "a broken array is one body");
}

fn unknown_of_array(body: &str) -> String {
    let mut orders = parse(body.as_bytes()).unwrap();
    orders.remove(0).order.unwrap().details.unknown_members().to_owned()
}

#[test]
fn unknown_members_are_kept_and_similar_names_are_refused() {
    let row = |more: &str| {
        format!(r#"{{"PartitionKey":"{USER}|{ACCOUNT}","RowKey":"{MESSAGE}","Amount":1,{more}}}"#)
    };
    let kept = |body: String| valid(body).details.unknown_members().to_owned();
    assert_eq!(
        kept(row(r#""Note":"rent","Tags":[1.0,{"b":null}]"#)),
        r#"{"Note":"rent","Tags":[1,{"b":null}]}"#
    );
    let with = |more: &str| document("", &format!("{}{more}", fields("1")));
    let foreign = "<f:Shop xmlns:f=\"urn:shop\" f:id=\"7\"><f:Name>A</f:Name></f:Shop>";
    let elements: Vec<String> =
        serde_json::from_str(&kept(with(&format!("<Note>rent</Note>{foreign}")))).unwrap();
    assert_eq!(elements, ["<Note>rent</Note>", foreign]);
    // What the table service sets is not content of the order.
    assert_eq!(kept(with("<Timestamp>0001-01-01T00:00:00Z</Timestamp><ETag />")), "");
    assert_eq!(kept(row(r#""Timestamp":"2020-01-01T00:00:00Z","ETag":null,"odata.etag":"W/\"1\"""#)), "");

    let check = |more: &str, expected: &str| {
        for body in [row(&format!(r#""{more}":"1""#)), with(&format!("<{more}>1</{more}>"))] {
            let violations = violations_of(&body);
            assert!(violations.contains(expected), "{body}: {violations}");
        }
    };
    check("amount", "amount is not a known member; did you mean Amount?");
    check("Amounts", "did you mean Amount?");
    check("rowKey", "did you mean RowKey?");
    check("User_Id", "did you mean UserId?");
    check("currency", "did you mean Currency?");
    check("status", "status is a member of answers; it cannot be sent");
    check("order_number", "order_number is a member of answers; it cannot be sent");
    let long = "x".repeat(UNKNOWN_MEMBERS_BYTES_MAX);
    for body in [row(&format!(r#""Note":"{long}""#)), with(&format!("<Note>{long}</Note>"))] {
        assert!(violations_of(body).contains("unknown members of more than 2048 bytes"));
    }
    assert!(violations_of(row(r#""Note":1e400"#)).contains("not valid JSON"));
    assert!(violations_of(row(r#""Note":0.12345678901234567890"#)).contains("cannot be stored exactly"));
}

#[test]
fn rows_in_json_are_strict() {
    let row = |members: &str| format!("{{{members}}}");
    let keys = format!(r#""PartitionKey":"{USER}|{ACCOUNT}","RowKey":"{MESSAGE}""#);
    let check = |members: &str, expected: &str| {
        let violations = violations_of(row(members));
        assert!(violations.contains(expected), "{members}: {violations}");
    };
    check("", "UserId is missing\nAccountId is missing\nTransactionId is missing\nAmount is missing");
    check(r#""RowKey":"x""#, "PartitionKey is missing\nRowKey is not a UUID");
    check(&format!(r#"{keys},"Amount":"1","Amount":"2""#), "occurs twice");
    check(&format!(r#"{keys},"Amount":true"#), "Amount must be a number or a string");
    check(&format!(r#"{keys},"Amount":0.10000000000000000001"#), "cannot be stored exactly");
    check(&format!(r#"{keys},"Amount":1e18"#), "cannot be stored exactly");
    check(&format!(r#"{keys},"Amount":-0.0"#), "Amount must not be zero");
    check(&format!(r#"{keys},"Amount":" ""#), "Amount must not be empty");
    check(
        r#""PartitionKey":"a","RowKey":7,"Amount":1"#,
        "RowKey must be a string\nPartitionKey must be userid|accountid",
    );
    check(
        &format!(r#""PartitionKey":"{USER}|b","RowKey":"{MESSAGE}","Amount":1"#),
        "PartitionKey must be userid|accountid, but its account id is not a UUID",
    );
    check(&format!("{keys},\"Amount\":1,\"a\":{}{}", "[".repeat(20), "]".repeat(20)), "nested deeper");
    assert!(violations_of("{").contains("is not valid JSON"));
    assert!(violations_of("[1").contains("is not a valid JSON array"));
    // A number is its value, not its spelling.
    assert_eq!(valid(row(&format!(r#"{keys},"Amount":-1.25e1"#))).magnitude, "12.5");
    assert_eq!(valid(row(&format!(r#"{keys},"Amount":10.0"#))).magnitude, "10");
}

#[test]
fn a_named_currency_must_be_that_of_the_account() {
    let [euro, yen] = ["EUR", "JPY"].map(|code| Currency::parse(code).unwrap());
    let body = document("", &format!("{}<Currency>EUR</Currency>", fields("5")));
    assert!(valid(&body).instruction(euro).is_ok());
    let refused = valid(&body).instruction(yen).unwrap_err();
    assert_eq!(refused.to_string(), "must not be in EUR");
    assert!(violations_of(body.replace("EUR", "euro")).starts_with("Currency "));
}

#[test]
fn white_space_and_a_byte_order_mark_around_a_body_are_ignored() {
    let expected = order(TransactionKind::Deposit, "1.00");
    for body in [xml("1.00"), delimited("1.00")] {
        for (before, after) in
            [("", "\n"), ("\r\n\t ", " \r\n"), ("\u{feff}", ""), ("\u{feff}\n", "\n"), (" ", "")]
        {
            assert_eq!(valid(format!("{before}{body}{after}")), expected, "{before:?} {after:?}");
        }
    }
}

#[test]
fn the_forms_can_be_sent_as_base64_of_their_utf_8() {
    let expected = order(TransactionKind::Withdrawal, "12.50");
    for body in [xml("-12.50"), delimited("-12.50")] {
        for body in [body.clone(), format!("{body}\r\n"), format!("\u{feff}{body}"), format!(" {body}")] {
            let encoded = STANDARD.encode(&body);
            assert_eq!(valid(&encoded), expected, "{body:?}");
            assert_eq!(valid(format!("{encoded}\n")), expected, "{body:?}");
        }
    }
    // The violations refer to the decoded body.
    assert!(violations_of(STANDARD.encode(xml("0"))).contains("Amount must not be zero"));
    assert!(violations_of(STANDARD.encode("a|b")).contains("has 2 fields"));
    assert_eq!(violations_of(STANDARD.encode(b"<\xff>")), "the body must be text in UTF-8");
    let utf_16: Vec<u8> = xml("1").encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert!(!violations_of(STANDARD.encode(utf_16)).is_empty());
    // Base64 is decoded only once, if it is complete and in the standard alphabet with padding.
    let whole = STANDARD.encode(delimited("1.00"));
    assert!(whole.ends_with('='), "{whole}");
    for other in [
        STANDARD.encode(STANDARD.encode(xml("1"))),
        whole.trim_end_matches('=').to_owned(),
        whole.get(..whole.len() - 4).unwrap().to_owned() + "!===",
        STANDARD.encode("hello"),
    ] {
        assert!(parse(other.as_bytes()).is_none(), "{other}");
    }
}

#[test]
fn ids_are_parsed_in_both_forms_of_the_schema() {
    let simple = |text: &str| text.replace('-', "");
    let expected = order(TransactionKind::Deposit, "1");
    for (from, to) in
        [(USER, simple(USER)), (MESSAGE, MESSAGE.to_uppercase()), (ACCOUNT, simple(ACCOUNT).to_uppercase())]
    {
        assert_eq!(valid(xml("1").replace(from, &to)), expected, "{to}");
        assert_eq!(valid(delimited("1").replace(from, &to)), expected, "{to}");
    }
    // The schema has no other form.
    for id in [USER, ACCOUNT, MESSAGE] {
        for other in [format!("{{{id}}}"), format!("urn:uuid:{id}"), format!("{{{}}}", simple(id))] {
            for body in [xml("1"), delimited("1")] {
                let parsed = single(body.replace(id, &other).as_bytes());
                assert!(parsed.is_err(), "{other}: {parsed:?}");
            }
        }
    }
}

#[test]
fn equivalent_xml_documents_give_the_same_order() {
    let expected = order(TransactionKind::Deposit, "1.00");
    let namespaces = concat!(
        r#" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance""#,
        r#" xmlns:xsd="http://www.w3.org/2001/XMLSchema" xsi:noNamespaceSchemaLocation="u.xsd""#
    );
    let declared = |declaration: &str| format!("<?xml version=\"1.0\"{declaration}?>\n{}", xml("1.00"));
    let bodies = [
        declared(""),
        declared(" encoding='utf-8'"),
        declared(" encoding=\"UTF-8\" standalone=\"yes\""),
        // As .NET writes a text in memory.
        declared(" encoding=\"utf-16\""),
        document(namespaces, &fields("1.00")),
        document("", &fields("1.00").replace('>', ">\n  ").replace("</", "\n </")),
        // In any order.
        document(
            "",
            &format!("<Amount>1.00</Amount>{}", fields("1.00").replace("<Amount>1.00</Amount>", "")),
        ),
        xml(" 1<![CDATA[.0]]>&#48;"),
        document("", &fields("1.00").replace("<Amount>", "<!-- in euro --><Amount>")),
        format!("<!-- from the shop -->{}<!-- end -->", xml("&#x31;.00")),
    ];
    for body in bodies {
        assert_eq!(valid(&body), expected, "{body}");
    }
}

#[test]
fn every_violation_is_reported_with_its_field() {
    let empty_id = "is not a UUID, such as 4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10";
    assert_eq!(
        violations_of("a|b||x"),
        format!(
            "userid {empty_id}\naccountid {empty_id}\ntransactionid {empty_id}\n\
             amount must be a decimal number such as 12.50"
        )
    );
    let surplus = document(
        r#" xmlns="urn:bank" id="1""#,
        &format!("<UserId x='1'>{USER}</UserId><UserId/><Currencies>EUR</Currencies><Amount>0</Amount>"),
    );
    assert_eq!(
        violations_of(surplus),
        "UserAccountTransaction must not have the attribute xmlns\n\
         UserAccountTransaction must not have the attribute id\n\
         UserId must not have attributes\n\
                  UserId must not occur more than once\n\
         AccountId is missing\n\
         TransactionId is missing\n\
         Amount must not be zero"
    );
}

#[test]
fn amounts_are_strict_and_have_one_sign_at_most() {
    let check = |amount: &str, words: &str| {
        for body in [xml(amount), delimited(amount)] {
            assert!(
                violations_of(&body).to_lowercase().starts_with("amount ")
                    && violations_of(&body).contains(words),
                "{}",
                violations_of(&body)
            );
        }
    };
    check("", "must not be empty");
    check("-", "must not be empty");
    check("+5", "no sign except a single leading -");
    check("--5", "no sign except a single leading -");
    check("\u{2212}5", "no sign except a single leading -");
    check("5-", "must be a decimal number");
    check("- 5", "must be a decimal number");
    check("1,50", "must use a point");
    check("1.000,50", "must use a point");
    check("1e3", "must not have an exponent");
    check("1.2.3", "digits on both sides");
    check("-.5", "digits on both sides");
    check("007", "leading zeros");
    check("٣", "digits 0 to 9");
    check("-0.00", "must not be zero");
    check("5 EUR", "must be a decimal number");
    let euro = Currency::parse("EUR").unwrap();
    let yen = Currency::parse("JPY").unwrap();
    let of = |amount: &str, currency| {
        valid(delimited(amount)).instruction(currency).map(|i| i.amount.minor_units())
    };
    assert_eq!(of("-12.5", euro), Ok(1250));
    assert_eq!(of("12", yen), Ok(12));
    assert_eq!(of("12.5", yen).unwrap_err().to_string(), "has more decimals than JPY has (0)");
    assert_eq!(of("1.005", euro).unwrap_err().to_string(), "has more decimals than EUR has (2)");
    assert!(of(&"9".repeat(30), euro).unwrap_err().to_string().contains("at most"));
}

#[test]
fn a_delimited_text_has_four_fields() {
    let counts = [
        ("a|b", "2"),
        ("|", "2"),
        ("a|b|c|d|e", "5"),
        ("a|b|c|d|e|", "more than 5"),
        (&"|".repeat(9999), "more than 5"),
    ];
    for (body, count) in counts {
        let rule = format!("the body must be userid|accountid|transactionid|amount, but has {count} fields");
        assert_eq!(violations_of(body), rule);
    }
    assert!(violations_of(delimited("1").replace('|', " | ")).contains("userid is not a UUID"));
}

#[test]
fn hostile_xml_is_refused_with_its_reason() {
    let check = |body: &str, words: &str| {
        let violations = violations_of(body);
        assert!(violations.contains(words) && violations.len() < 400, "{body:.200}: {violations}");
    };
    let bomb = r#"<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>"#;
    check(&format!("{bomb}{}", xml("&b;")), "document type declaration");
    check(&xml("&b;"), "the undefined entity &b;");
    check(&xml("&#0;"), "invalid character reference");
    check(&xml("&#xD800;"), "invalid character reference");
    check(&xml("1&amp;2"), "must be a decimal number");
    check("<?php echo 1 ?><UserAccountTransaction/>", "processing instructions");
    check(&format!("<?xml version=\"1.1\"?>{}", xml("1")), "must be XML 1.0");
    check(&format!("<?xml version=\"1.0\" encoding=\"utf-7\"?>{}", xml("1")), "must be in UTF-8");
    check(&"<a>".repeat(20_000), "nested deeper than 8 elements");
    check("<a/>", "must be a UserAccountTransaction or an ArrayOfUserAccountTransaction, but is a a");
    check(&document("", &"<UserId>".repeat(5_000)), "nested deeper than 8 elements");
    check(&document("", "<UserId><b/></UserId>"), "UserId must contain text only");
    check(
        &document(" xmlns:b='urn:b'", "<b:Amount>1</b:Amount>"),
        "Amount must not be in the namespace urn:b",
    );
    check(&xml(&"9".repeat(60_000)), "more than 128 characters");
    let attributes: String = (0..5000).map(|n| format!(" xmlns:a{n}=\"u\"")).collect();
    check(&document(&attributes, &fields("1")), "more than 128 namespaces");
    let attributes: String = (0..9).map(|n| format!(" a{n}=\"u\"")).collect();
    check(&document(&attributes, &fields("1")), "more than 8 attributes");
    check(&document(" xmlns:a=\"1\" xmlns:a=\"2\"", &fields("1")), "not well-formed");
    check(&format!("{}{}", xml("1"), xml("2")), "must end after its outermost element");
    check(&format!("{}x", xml("1")), "text outside");
    check(&document("", "12.50"), "text outside");
    check("<UserAccountTransaction>", "ends before its last element is closed");
    check(&xml("1").replace("</Amount>", "</amount>"), "not well-formed XML");
    check("<", "not well-formed XML");
    check("<!-- only a comment -->", "must have an element");
    check(&format!("<{}>", "x".repeat(60_000)), "ends before its last element is closed");
    check(&format!("<{}/>", "x".repeat(60_000)), "must be a UserAccountTransaction");
    check(&xml("1").replace("UserAccount", "b:UserAccount"), "the prefix b, which is not declared");
    let prefixed = document(" xmlns:b=\"urn:bank\"", "").replace("UserAccount", "b:UserAccount");
    check(&prefixed, "must be a UserAccountTransaction");
    assert_eq!(violations_of(b"<\xff>"), "the body must be text in UTF-8");
}

#[test]
fn other_bodies_are_not_recognized() {
    for body in ["", " \n", "hello", "12.50", "\u{feff}"] {
        assert!(parse(body.as_bytes()).is_none(), "{body:?}");
    }
    assert!(parse(b"\xff\xfe<\0").is_none());
}

#[test]
fn the_error_is_one_sentence() {
    let invalid = single(b"a|b").unwrap_err();
    assert_eq!(
        invalid.to_string(),
        "the delimited text is not a UserAccountTransaction: \
         the body must be userid|accountid|transactionid|amount, but has 2 fields"
    );
}

#[test]
fn errors_about_a_hostile_document_are_short_and_printable() {
    let check = |body: &str, expected: &str| {
        let violations = single(body.as_bytes()).unwrap_err().to_string();
        assert!(violations.contains(expected), "{violations}");
        assert!(
            violations.len() < 4096 && !violations.contains(char::is_control),
            "{} bytes: {violations:?}",
            violations.len()
        );
    };
    let root = |content: &str| format!("<UserAccountTransaction>{content}</UserAccountTransaction>");
    check(&root(&"<a/>".repeat(9000)), "unknown members of more than 2048 bytes");
    check(&root(&"<amount/>".repeat(6000)), "was not read further");
    check(&root(&"<a/>".repeat(16_000)), "more than 10000 elements");
    check(&root(&"<Amount a=''/>".repeat(4000)), "was not read further");
    let long = "a".repeat(60_000);
    check(&root(&format!("<{long}></b>")), "not well-formed XML");
    check(&root(&format!("&{long};")), "the undefined entity");
    check("<UserAccountTransaction></\u{7}\u{7}>", "U+0007 at byte 26");
    check("<UserAccountTransaction></\u{7f}\u{7f}>", "not well-formed XML");
    check(&format!("<?xml version='{long}'?>"), "must be XML 1.0");
}
