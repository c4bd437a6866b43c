mod xml;

use std::io::BufReader;

use postonce_schemas::json::TransactionRequest;
use postonce_schemas::json::rules::Metadata;

use super::*;
use crate::api::translate::batch_item;
use crate::formats::json;

/// Returns the amounts of all items, with error texts for items that cannot be parsed, and the error that ends the document.
fn amounts(mut items: impl Items) -> (Vec<String>, Option<ItemsError>) {
    let mut amounts = Vec::new();
    loop {
        match items.next() {
            Ok(Some(Ok(Parsed::Members(mut members)))) => {
                amounts.push(members.read::<TransactionRequest>().unwrap().amount.0);
            }
            Ok(Some(Ok(Parsed::Plain(item)))) => amounts.push(item.instruction.amount.to_string()),
            Ok(Some(Err(error))) => amounts.push(error.to_string()),
            Ok(None) => return (amounts, None),
            Err(broken) => return (amounts, Some(broken)),
        }
    }
}

fn ndjson(document: impl Read) -> (Vec<String>, Option<ItemsError>) {
    amounts(NdJson::new(BufReader::with_capacity(16, document)))
}

fn csv(document: impl Read) -> (Vec<String>, Option<ItemsError>) {
    match Csv::new(document) {
        Ok(items) => amounts(items),
        Err(broken) => (Vec::new(), Some(broken)),
    }
}

#[test]
fn the_examples_are_the_same_item() {
    let mut first = None;
    for ItemFormat { media_type, example, open } in ITEM_FORMATS {
        let mut items = open(Box::new(example.as_bytes()), &XmlLimits::default()).unwrap();
        let Some(Ok(Parsed::Plain(item))) = items.next().unwrap() else { panic!("{media_type}: {example}") };
        assert!(items.next().unwrap().is_none(), "{media_type}");
        assert_eq!(first.get_or_insert_with(|| item.clone()), &item, "{media_type}");
    }
}

#[test]
fn the_format_is_recognized_if_it_is_not_named() {
    for ItemFormat { media_type, example, .. } in ITEM_FORMATS {
        let mut items = recognize(Box::new(example.as_bytes()), &XmlLimits::default()).unwrap();
        assert!(matches!(items.next().unwrap(), Some(Ok(Parsed::Plain(_)))), "{media_type}");
    }
    for unknown in ["\n{}", "[]", "%PDF"] {
        let opened = recognize(Box::new(unknown.as_bytes()), &XmlLimits::default());
        assert!(
            matches!(opened, Err(ItemsError::Form(_))),
            "{unknown:?} is read as CSV, without its columns"
        );
    }
}

/// Returns the items of a document with this media type, or the reason why it is refused.
fn items_of(media_type: &str, document: &[u8], charset: Charset) -> Result<Vec<BatchItem>, String> {
    let format = ITEM_FORMATS.iter().find(|format| format.media_type == media_type).unwrap();
    // Small reads, so that the start of the document arrives in several pieces.
    let input = Box::new(BufReader::with_capacity(2, io::Cursor::new(document.to_owned())));
    let mut items =
        format.read(input, charset, &XmlLimits::default()).map_err(|broken| broken.to_string())?;
    let mut found = Vec::new();
    while let Some(item) = items.next().map_err(|broken| broken.to_string())? {
        match item.map_err(|error| error.to_string())? {
            Parsed::Plain(item) => found.push(*item),
            Parsed::Members(members) => found.push(batch_item(members).map_err(|error| error.to_string())?),
        }
    }
    Ok(found)
}

#[test]
fn one_byte_order_mark_before_a_document_is_removed_in_every_format() {
    let plain = items_of("text/csv", ITEM_FORMATS[1].example.as_bytes(), Charset::Utf8).unwrap();
    let mut count = 0;
    for ItemFormat { media_type, example, .. } in ITEM_FORMATS {
        for media_type in [media_type, OCTET_STREAM] {
            let marked = format!("\u{feff}{example}");
            assert_eq!(
                items_of(media_type, marked.as_bytes(), Charset::Utf8).as_ref(),
                Ok(&plain),
                "{media_type}"
            );
            let twice = items_of(media_type, format!("\u{feff}{marked}").as_bytes(), Charset::Utf8);
            assert_eq!(twice.unwrap_err(), "The body must have at most one byte order mark.", "{media_type}");
            let wide: Vec<u8> = marked.encode_utf16().flat_map(u16::to_le_bytes).collect();
            let refused = items_of(media_type, &wide, Charset::Utf8).unwrap_err();
            assert_eq!(
                refused, "The body must be in UTF-8, but looks like UTF-16 or UTF-32.",
                "{media_type}"
            );
            count += 1;
        }
    }
    assert_eq!((count, plain.len()), (8, 1));
}

#[test]
fn a_document_in_us_ascii_has_no_other_byte() {
    for ItemFormat { media_type, example, .. } in ITEM_FORMATS {
        assert_eq!(
            items_of(media_type, example.as_bytes(), Charset::UsAscii).unwrap().len(),
            1,
            "{media_type}"
        );
        let later = example.replace("deposit", "dépôt");
        let at = later.find('é').unwrap();
        let refused = items_of(media_type, later.as_bytes(), Charset::UsAscii).unwrap_err();
        let expected = format!("no byte above 0x7F, but has 0xC3 at byte {at}");
        assert!(refused.contains(&expected), "{media_type}: {refused}");
        let marked = format!("\u{feff}{example}");
        assert!(items_of(media_type, marked.as_bytes(), Charset::UsAscii).unwrap_err().contains("at byte 0"));
    }
}

#[test]
fn a_cell_that_is_cut_off_or_followed_by_text_refuses_the_document() {
    let id = "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10";
    let document = |amount: &str| {
        format!(
            "user_id,account_id,message_id,type,currency,amount\n{id},{id},{id},deposit,EUR,1.00\n{id},{id},{id},deposit,EUR,{amount}"
        )
    };
    let read = |amount: &str| items_of("text/csv", document(amount).as_bytes(), Charset::Utf8);
    assert_eq!(read("\"12.50\"").unwrap()[1].instruction.amount.to_string(), "12.50");
    for (amount, column, rule) in [
        ("\"12", 124, "a quoted cell begins, and the document ends before it is closed"),
        ("\"12\n", 124, "a quoted cell begins, and the document ends before it is closed"),
        ("\"1\"000\n", 127, "text after the closing quote"),
        ("\"12\".50\n", 128, "text after the closing quote"),
        ("\"12.50\" \n", 131, "text after the closing quote"),
        ("12\"\".50\n", 126, "a quote within a cell"),
        ("12.50\r", 129, "a carriage return without a line feed"),
    ] {
        let refused = read(amount).unwrap_err();
        let expected = format!("Line 3, column {column}: {rule}");
        assert!(refused.contains(&expected), "{amount:?}: {refused}");
    }
}

#[test]
fn a_header_with_another_separator_is_named() {
    let check = |header: &str, expected: &str| {
        let refused = items_of("text/csv", header.as_bytes(), Charset::Utf8).unwrap_err();
        assert!(refused.contains(expected), "{header:?}: {refused}");
    };
    let header = "user_id,account_id,message_id,type,amount,currency";
    check(&header.replace(',', ";"), "separated by ;, expected ,");
    check(&format!("\u{feff}{}\r\n", header.replace(',', ";")), "separated by ;, expected ,");
    check(&header.replace(',', "\t"), "separated by tabs, expected ,");
    check(&format!("\"{}\"", header.replace(',', "\";\"")), "separated by ;, expected ,");
    check("amount;colour", "The column \"amount;colour\" is not known");
}

#[test]
fn a_line_with_a_list_is_no_item() {
    let id = "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10";
    for reference in ["", r#","rent""#] {
        let line = format!(r#" ["{id}","{id}","{id}","deposit","12.50","EUR"{reference}]"#);
        let refused = items_of("application/x-ndjson", line.as_bytes(), Charset::Utf8).unwrap_err();
        assert!(refused.contains("must be a JSON object"), "{refused}");
    }
}

#[test]
fn lines_are_items_and_empty_ones_are_skipped() {
    let document = "{\"amount\":\"1.00\"}\r\n\n  \n{\"amount\":\"2.00\"}\n{\"amount\":\"3.00\"}";
    let (amounts, broken) = ndjson(document.as_bytes());
    assert_eq!(amounts, ["1.00", "2.00", "3.00"]);
    assert!(broken.is_none(), "{broken:?}");
}

#[test]
fn a_line_that_is_no_object_does_not_end_the_document() {
    let (amounts, broken) = ndjson(b"{\"amount\":\"1.00\"}\n\xff\n[1]\n{\"amount\":\"4.00\"}\n".as_slice());
    assert!(amounts[1].contains("not valid JSON"), "{amounts:?}");
    assert!(amounts[2].contains("must be a JSON object"), "{amounts:?}");
    assert_eq!((amounts.len(), amounts[3].as_str()), (4, "4.00"));
    assert!(broken.is_none(), "{broken:?}");
}

#[test]
fn columns_have_any_order_and_cells_are_quoted_as_in_the_standard() {
    let document = "reference,amount,metadata.shop,currency\r\n\
                    \"a \"\"b\"\",\r\nc\",1.00,12,EUR\r\n,2.00,,EUR\r\n";
    let mut items = Csv::new(document.as_bytes()).unwrap();
    let mut next = || match items.next().unwrap()?.unwrap() {
        Parsed::Members(mut members) => Some(members.read::<TransactionRequest>().unwrap()),
        Parsed::Plain(item) => panic!("{item:?} has no ids"),
    };
    let first = next().unwrap();
    assert_eq!(first.reference.as_deref(), Some("a \"b\",\r\nc"));
    assert_eq!(first.metadata, Some(Metadata([("shop".to_owned(), "12".to_owned())].into())));
    let second = next().unwrap();
    assert_eq!((second.amount.0.as_str(), second.reference, second.metadata), ("2.00", None, None));
    assert!(next().is_none());
}

#[test]
fn a_header_with_an_unknown_or_repeated_column_is_refused() {
    let (_, broken) = csv(b"amount,colour\n1.00,red\n".as_slice());
    assert!(broken.unwrap().to_string().contains("\"colour\" is not known; allowed are user_id"));
    let (_, broken) = csv(b"amount,amount\n1.00,2.00\n".as_slice());
    assert!(broken.unwrap().to_string().contains("\"amount\" occurs twice"));
}

#[test]
fn a_record_with_missing_cells_does_not_end_the_document() {
    let (amounts, broken) = csv(b"amount,currency\n1.00\n2.00,EUR\n".as_slice());
    assert!(amounts[0].contains("1 cells instead of 2"), "{amounts:?}");
    assert_eq!((amounts[1].as_str(), broken.is_none()), ("2.00", true));
}

#[test]
fn empty_lines_without_an_end_are_refused() {
    let endless = || std::io::repeat(b'\n');
    assert!(matches!(ndjson(endless()).1, Some(ItemsError::Empty)));
    assert!(csv(b"amount\n1.00\n".as_slice().chain(endless())).1.is_some());
    let between = format!("{{}}{}{{}}\n", "\r\n".repeat(ITEM_BYTES_MAX / 3)).repeat(3);
    assert!(ndjson(between.as_bytes()).1.is_none(), "fewer between two items are skipped");
}

#[test]
fn an_item_without_an_end_does_not_fill_the_memory() {
    let endless = || std::io::repeat(b'x');
    assert!(matches!(ndjson(endless()).1, Some(ItemsError::TooLong)));
    assert!(matches!(csv(endless()).1, Some(ItemsError::TooLong)));
    let quoted = b"amount,currency\n1.00,EUR\n2.00,\"".as_slice().chain(endless());
    let (amounts, broken) = csv(quoted);
    assert_eq!(
        (amounts.as_slice(), matches!(broken, Some(ItemsError::TooLong))),
        (["1.00".to_owned()].as_slice(), true)
    );
}

#[test]
fn the_largest_item_is_read() {
    let text = "x".repeat(ITEM_BYTES_MAX - 40);
    let line = format!("{{\"amount\":\"1.00\",\"reference\":\"{text}\"}}\n");
    let (amounts, broken) = ndjson(line.as_bytes());
    assert_eq!((amounts.len(), broken.is_none()), (1, true));
    let record = format!("amount,reference\n1.00,{text}\n2.00,{text}\n");
    let (amounts, broken) = csv(record.as_bytes());
    assert_eq!((amounts.len(), broken.is_none()), (2, true));
}

#[test]
fn a_plain_item_is_the_same_as_its_members() {
    let id = "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10";
    let check = |members: &str, plain: bool| {
        let line =
            format!("{{\"user_id\":\"{id}\",\"account_id\":\"{id}\",\"message_id\":\"{id}\",{members}}}");
        let slow = batch_item(json::members(line.as_bytes()).unwrap());
        match NdJson::new(line.as_bytes()).next().unwrap().unwrap().unwrap() {
            Parsed::Plain(item) => {
                assert!(plain, "{members}");
                assert_eq!(*item, slow.unwrap(), "{members}");
            }
            Parsed::Members(_) => assert!(!plain, "{members}"),
        }
    };
    check(r#""type":"deposit","amount":"12.50","currency":"EUR""#, true);
    check(r#""currency":"JPY","reference":"Grüße","amount":"7","type":"withdrawal""#, true);
    // Items that the fast path cannot parse, and invalid items.
    for other in [
        r#""type":"deposit","amount":"1","currency":"EUR","reference":"a\n""#,
        r#""type":"deposit","amount":"1","currency":"EUR","metadata":{"a":"1"}"#,
        r#""type":"deposit","amount":"1","currency":"EUR","unknown":7"#,
        r#""type":"deposit","amount":"1","currency":"EUR","reference":null"#,
        r#""type":"deposit","amount":1,"currency":"EUR""#,
        r#""type":"deposit","amount":"1.234","currency":"EUR""#,
        r#""type":"gift","amount":"1","currency":"EUR""#,
        r#""type":"deposit","amount":"1","currency":"eur""#,
        r#""type":"deposit","amount":"1","currency":"EUR","reference":"""#,
    ] {
        check(other, false);
    }
    let header = "user_id,account_id,message_id,type,amount,currency,reference";
    let record = format!("{header}\n{id},{id},{id},deposit,1.00,EUR,\n{id},{id},{id},gift,1.00,EUR,x\n");
    let mut items = Csv::new(record.as_bytes()).unwrap();
    assert!(matches!(items.next(), Ok(Some(Ok(Parsed::Plain(_))))));
    assert!(matches!(items.next(), Ok(Some(Ok(Parsed::Members(_))))));
}
