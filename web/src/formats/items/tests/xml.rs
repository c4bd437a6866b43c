use super::*;

/// The id of every user, account and transaction.
const ID: &str = "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10";

fn xml(document: impl Read) -> (Vec<String>, Option<ItemsError>) {
    match Xml::new(BufReader::with_capacity(16, document), &XmlLimits::default()) {
        Ok(items) => amounts(items),
        Err(broken) => (Vec::new(), Some(broken)),
    }
}

fn batch(items: &str) -> String {
    format!("<?xml version=\"1.0\"?>\n<BatchRequest xmlns=\"urn:postonce:xml:1\">{items}</BatchRequest>\n")
}

/// Returns an item with these elements after those of the ids and the type.
fn item(rest: &str) -> String {
    let ids = format!("<UserId>{ID}</UserId><AccountId>{ID}</AccountId><MessageId>{ID}</MessageId>");
    format!("<TransactionRequest>{ids}<Type>deposit</Type>{rest}</TransactionRequest>")
}

fn amount(amount: &str) -> String {
    item(&format!("<Currency>EUR</Currency><Amount>{amount}</Amount>"))
}

/// Returns the first item, and whether the fast path parsed it.
fn first(document: &str) -> (bool, Result<BatchItem, ApiError>) {
    let mut items = Xml::new(document.as_bytes(), &XmlLimits::default()).unwrap();
    match items.next().unwrap().unwrap() {
        Ok(Parsed::Plain(item)) => (true, Ok(*item)),
        Ok(Parsed::Members(members)) => (false, batch_item(members)),
        Err(error) => (false, Err(error)),
    }
}

#[test]
fn elements_are_items() {
    let (amounts, broken) = xml(batch(&format!(
        "\n  {}<!-- a comment -->{}\r\n<p:TransactionRequest xmlns:p='urn:postonce:xml:1'><p:Amount>3.00</p:Amount>\
         <p:Currency>EUR</p:Currency></p:TransactionRequest>",
        amount("1.00"),
        amount("2.00")
    ))
    .as_bytes());
    assert_eq!(amounts, ["1.00", "2.00", "3.00"]);
    assert!(broken.is_none(), "{broken:?}");
    let (amounts, broken) = xml(batch("").as_bytes());
    assert_eq!((amounts.len(), broken.is_none()), (0, true));
    let (amounts, broken) = xml(b"\xEF\xBB\xBF<BatchRequest xmlns='urn:postonce:xml:1'/>".as_slice());
    assert_eq!((amounts.len(), broken.is_none()), (0, true));
}

#[test]
fn an_item_that_is_no_request_does_not_end_the_document() {
    let items = format!("{}<Transaction/>{}", amount("1.00"), amount("2.00"));
    let (amounts, broken) = xml(batch(&items).as_bytes());
    assert!(amounts[1].contains("must be an element TransactionRequest"), "{amounts:?}");
    assert_eq!((amounts.len(), amounts[2].as_str()), (3, "2.00"));
    assert!(broken.is_none(), "{broken:?}");
}

#[test]
fn a_document_that_is_no_batch_is_refused_where_it_breaks() {
    let check = |document: &[u8], items: usize, expected: &str| {
        let (amounts, broken) = xml(document);
        let text = String::from_utf8_lossy(document);
        let broken = broken.unwrap_or_else(|| panic!("{text}")).to_string();
        assert!(broken.contains(expected) && amounts.len() == items, "{text}: {amounts:?} {broken}");
    };
    check(b"", 0, "must have an element");
    check(b"<Batch/>", 0, "must be an element BatchRequest of the namespace urn:postonce:xml:1");
    check(b"<BatchRequest/>", 0, "must be an element BatchRequest of the namespace urn:postonce:xml:1");
    check(b"<BatchRequest xmlns='urn:postonce:xml:1' a='1'/>", 0, "must not have the attribute a");
    check(b"\xFF\xFE<\0", 0, "must be in UTF-8");
    check(b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>", 0, "document type");
    let one = batch(&amount("1.00"));
    check(
        &one.as_bytes()[..one.len() - 16],
        1,
        "After 1 items, the body ends before its last element is closed",
    );
    check(
        &one.as_bytes()[..one.len() - 50],
        0,
        "After 0 items, the body ends before its last element is closed",
    );
    check(format!("{one}<a/>").as_bytes(), 1, "must end after its outermost element");
    check(format!("{one}and more").as_bytes(), 1, "must not have text outside of its outermost element");
    check(batch(&format!("{}, ", amount("1.00"))).as_bytes(), 1, "must not have text between the elements");
    check(
        batch(&format!("{}<a></b>", amount("1.00"))).as_bytes(),
        1,
        "After 1 items, the body is not well-formed XML",
    );
    check(batch(&amount("&lol9;")).as_bytes(), 0, "the undefined entity &lol9;");
    check(batch(&amount("\u{1}")).as_bytes(), 0, "U+0001, which XML does not allow");
    check(batch(&"<a>".repeat(40)).as_bytes(), 0, "nested deeper than 32");
    let attributes: String = (0..33).map(|number| format!(" a{number}='1'")).collect();
    check(batch(&format!("<a{attributes}/>")).as_bytes(), 0, "more than 32 attributes");
    check(batch(&format!("<a>{}</a>", "<b/>".repeat(10_000))).as_bytes(), 0, "more than 10000 elements");
    let mut damaged = batch(&format!("{}{}", amount("1.00"), amount("2.00"))).into_bytes();
    let last = damaged.len() - 60;
    damaged[last] = 0xFF;
    check(&damaged, 1, "After 1 items, the body must be in UTF-8");
}

#[test]
fn an_item_without_an_end_does_not_fill_the_memory() {
    let endless = || std::io::repeat(b'x');
    let too_long = |start: &str, items: usize| {
        let (amounts, broken) = xml(start.as_bytes().chain(endless()));
        assert!(matches!(broken, Some(ItemsError::TooLong)), "{start}: {broken:?}");
        assert_eq!(amounts.len(), items);
    };
    let open = batch(&amount("1.00")).replace("</BatchRequest>\n", "");
    too_long("", 0);
    too_long("<", 0);
    too_long("<BatchRequest xmlns='urn:postonce:xml:1", 0);
    for start in [
        "",
        "<!--",
        "<![CDATA[",
        "<",
        "<TransactionRequest><Reference>",
        "<TransactionRequest a='",
        "</",
        "&",
    ] {
        too_long(&format!("{open}{start}"), 1);
    }
    too_long(&format!("{open}</BatchRequest><!--"), 1);
}

#[test]
fn the_largest_item_is_read() {
    let around = item("<Amount>1.00</Amount><Currency>EUR</Currency><Reference></Reference>").len();
    let of = |size: usize| {
        let text = "x".repeat(size - around);
        item(&format!("<Amount>1.00</Amount><Currency>EUR</Currency><Reference>{text}</Reference>"))
    };
    let (largest, larger) = (of(ITEM_BYTES_MAX), of(ITEM_BYTES_MAX + 1));
    let (amounts, broken) = xml(batch(&largest.repeat(3)).as_bytes());
    assert_eq!((amounts.len(), broken.is_none()), (3, true));
    let (amounts, broken) = xml(batch(&format!("{largest}{larger}")).as_bytes());
    assert_eq!((amounts.len(), matches!(broken, Some(ItemsError::TooLong))), (1, true));
}

#[test]
fn a_plain_item_is_the_same_as_its_members_and_as_in_json() {
    let check = |xml: &str, json: &str, plain: bool| {
        let (is_plain, item) = first(&batch(&item(xml)));
        let ids = format!("\"user_id\":\"{ID}\",\"account_id\":\"{ID}\",\"message_id\":\"{ID}\"");
        let line = format!("{{{ids},\"type\":\"deposit\",{json}}}");
        assert_eq!(is_plain, plain, "{xml}");
        let expected = batch_item(json::members(line.as_bytes()).unwrap());
        match (item, expected) {
            (Ok(item), Ok(expected)) => assert_eq!(item, expected, "{xml}"),
            // The fingerprint of a batch includes the texts of violations.
            (Err(error), Err(expected)) => {
                assert_eq!(error.problem().violations, expected.problem().violations);
            }
            (item, expected) => panic!("{xml}: {item:?}, {expected:?}"),
        }
    };
    let money = "<Amount>12.50</Amount><Currency>EUR</Currency>";
    let in_json = r#""amount":"12.50","currency":"EUR""#;
    let plain = |xml: &str, json: &str| check(&format!("{money}{xml}"), &format!("{in_json}{json}"), true);
    plain("", "");
    plain("<Reference>a &lt; <![CDATA[b & c]]></Reference>", r#","reference":"a < b & c""#);
    let other = |xml: &str, json: &str| check(&format!("{money}{xml}"), &format!("{in_json}{json}"), false);
    other("<Reference></Reference>", r#","reference":"""#);
    other(
        "<Metadata><Entry><Name>shop</Name><Value>12</Value></Entry></Metadata>",
        r#","metadata":{"shop":"12"}"#,
    );
    check("<Amount>1.234</Amount><Currency>EUR</Currency>", r#""amount":"1.234","currency":"EUR""#, false);
    check("<Currency>eur</Currency>", r#""currency":"eur""#, false);
}

#[test]
fn an_item_that_is_not_plain_is_not_parsed_as_such() {
    let money = "<Amount>12.50</Amount><Currency>EUR</Currency>";
    let check = |rest: &str, expected: &str| {
        let (is_plain, item) = first(&batch(&item(&format!("{money}{rest}"))));
        let error = item.expect_err(rest).problem();
        let found = error.violations.iter().map(|it| format!("{} {}", it.field, it.message));
        let found: Vec<String> = found.collect();
        assert!(!is_plain && found.iter().any(|it| it.contains(expected)), "{rest}: {found:?}");
    };
    check("<Amount>12.50</Amount>", "Amount must not occur more than once");
    check("<UserId/>", "UserId must not occur more than once");
    check("<Status>posted</Status>", "Status is not a known field");
    check("<Reference a='1'>x</Reference>", "Reference must not have the attribute a");
    check("<Reference><b/></Reference>", "Reference must contain text only");
    check("text", "must not contain text between its elements");
    check("<Reference xmlns=''>x</Reference>", "must be in the namespace");
    for unknown in ["<Reference xmlns='urn:other'>x</Reference>", "<Colour>red</Colour>"] {
        let (is_plain, item) = first(&batch(&item(&format!("{money}{unknown}"))));
        let kept = item.expect(unknown).instruction.details;
        assert!(!is_plain && !kept.unknown_members().is_empty(), "{unknown}: {kept:?}");
    }
}
