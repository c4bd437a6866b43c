use super::{Element, XmlLimits, read, write};

fn refused(bytes: &[u8], expected: &str) {
    let limits = XmlLimits { depth_max: 4, attributes_max: 3 };
    let rule = read(bytes, &limits).expect_err(&String::from_utf8_lossy(bytes)).rule;
    assert!(rule.contains(expected), "{:?}: {rule}", String::from_utf8_lossy(bytes));
}

fn canonical(text: &str) -> String {
    write(&read(text.as_bytes(), &XmlLimits::default()).unwrap_or_else(|error| panic!("{text}: {error}")))
}

#[test]
fn dangerous_or_invalid_documents_are_refused() {
    refused(b"", "must have an element");
    refused(b"<a>", "is closed");
    refused(b"<a></b>", "not well-formed");
    refused(b"<a/><b/>", "must end after its outermost element");
    refused(b"<a/>text", "text outside");
    refused(b"<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>", "document type");
    refused(b"<!DOCTYPE a SYSTEM \"file:///etc/passwd\"><a/>", "document type");
    refused(b"<a>&lol9;</a>", "the undefined entity &lol9;");
    refused(b"<a b=\"&lol9;\"/>", "not well-formed");
    refused(b"<?go?><a/>", "processing instructions");
    refused(b"<a><b><c><d><e/></d></c></b></a>", "nested deeper than 4");
    refused(b"<a b='1' c='2' d='3' e='4'/>", "more than 3 attributes");
    refused(b"<a b='1' b='2'/>", "not well-formed");
    refused(b"<a xmlns:x='u' xmlns:y='u' x:b='1' y:b='2'/>", "more than 3");
    refused(b"<a xmlns:x='u'><b xmlns:y='u' x:b='1' y:b='2'/></a>", "the attribute b twice");
    refused(b"<a xmlns:x='u1'><b xmlns:y='u&#49;' x:b='1' y:b='2'/></a>", "the attribute b twice");
    refused(b"<x:a/>", "prefix x");
    refused(b"<x:a xmlns:x=''/>", "prefix x");
    refused(b"<xmlns:a/>", "prefix xmlns");
    refused(b"<a x:b='1'/>", "prefix x");
    refused(b"<1a/>", "the invalid name");
    refused(b"<a xmlns:1='u'/>", "the invalid name");
    refused(b"<a xmlns:&='u'/>", "the invalid name");
    refused(b"<a xmlns:='u'/>", "an empty prefix");
    refused(b"<a xmlns:b:c='u'/>", "invalid declaration of the prefix b:c");
    refused(b"<a xmlns:p=''/>", "invalid declaration of the prefix p");
    refused(
        b"<a xmlns='http://www.w3.org/2000/xmlns&#47;'/>",
        "invalid declaration of the default namespace",
    );
    refused(
        b"<a xmlns:p='http://www.w3.org/XML/1998/namespac&#101;'/>",
        "invalid declaration of the prefix p",
    );
    refused(format!("<a xmlns='{}'/>", "u".repeat(257)).as_bytes(), "a namespace of more than 256 bytes");
    refused(b"<a:b:c xmlns:a='u'/>", "the invalid name");
    refused(b"<a b='<'/>", "must not have <");
    refused(b"<a>]]></a>", "]]>");
    refused(b"<a>\x01</a>", "U+0001 at byte 3");
    refused(b"<a>&#1;</a>", "U+0001");
    refused(b"<a b='&#xFFFF;'/>", "U+FFFF");
    refused(b"<a>\xff</a>", "UTF-8, but is not");
    refused(b"<?xml version='1.1'?><a/>", "must be XML 1.0");
    refused(b"<?xml version='1.0' encoding='ISO-8859-1'?><a/>", "declares ISO-8859-1");
    refused(b"<a/><?xml version='1.0'?>", "at its very start");
    // Misspelled parts are errors.
    for declaration in [
        "",
        " encoding='utf-8'",
        " encoding='utf-8' version='1.0'",
        "version='1.0'",
        " version='1.0' encodig='latin1'",
        " version='1.0' encoding=\"latin1'",
        " version='1.0'encoding='utf-8'",
        " version='1.0' standalone='yes' encoding='utf-8'",
        " version='1.0' standalone='maybe'",
        " version='1.0' version='1.0'",
        " version='1.0' encoding='utf-8' x",
    ] {
        refused(format!("<?xml{declaration}?><a/>").as_bytes(), "");
    }
    refused(b"<?xml version='1.0' encodig='latin1'?><a/>", "malformed XML declaration");
    refused(b"<a b='1'c='2'/>", "white space between the attributes");
    refused(b"<a xmlns:b='1'c=\"2\" ></a>", "white space between the attributes");
    refused("<?xml version='1.0' encoding='us-ascii'?><a>é</a>".as_bytes(), "declares US-ASCII");
    refused("<?xml version='1.0' encoding='ISO646-US'?><a b='é'/>".as_bytes(), "declares US-ASCII");
    refused("<?xml version='1.0' encoding='ascii'?><a/><!--é-->".as_bytes(), "declares US-ASCII");
    let declared: String = (0..129).map(|number| format!(" xmlns:n{number}='u'")).collect();
    refused(format!("<a{declared}/>").as_bytes(), "more than 128 namespaces");
    refused(format!("<a>{}</a>", "<b/>".repeat(10_000)).as_bytes(), "more than 10000 elements");
}

#[test]
fn a_declaration_and_comments_are_ignored() {
    let check = |bytes: &[u8]| {
        let read = read(bytes, &XmlLimits::default()).unwrap();
        assert_eq!(read, Element::new("", "a").with_text("b"), "{}", String::from_utf8_lossy(bytes));
    };
    check(b"<a>b</a>");
    check(b"<?xml version=\"1.0\" encoding=\"utf-8\" standalone=\"yes\"?>\r\n<!-- x --><a>b</a><!-- y -->\n");
    for label in ["utf8", "UTF8", "unicode-1-1-utf-8", "us-ascii", "US-ASCII", "ANSI_X3.4-1968"] {
        check(format!("<?xml version='1.0' encoding='{label}'?><a>b</a>").as_bytes());
    }
    check(b"<?xml\tversion = \"1.0\"\n encoding\r=\n'utf-8'\tstandalone='no' ?><a>b</a>");
    check(b"<a><![CDATA[b]]></a>");
    check(b"<a>&#98;</a>");
}

#[test]
fn comments_are_allowed_between_elements_only() {
    let accepted = |text: &str| {
        assert!(read(text.as_bytes(), &XmlLimits::default()).is_ok(), "{text}");
    };
    accepted("<a><!-- x --><b/><!-- y --></a>");
    accepted("<a>\n <!-- x -->\n <b>1</b>\n <!-- y --> <!-- z -->\n</a>");
    accepted("<a><!-- x --></a>");
    for text in [
        "1<!-- x -->00",
        "100<!-- x -->",
        "<!-- x -->100",
        " <!-- x --> 100",
        "1<!-- x --><![CDATA[0]]>",
        "1<!-- x -->&#48;",
    ] {
        refused(
            format!("<a><b>{text}</b></a>").as_bytes(),
            "must not have a comment before, in or after the text",
        );
    }
}

#[test]
fn equal_content_gives_equal_text() {
    let check = |one: &str, expected: &str| {
        assert_eq!(canonical(one), expected, "{one}");
        assert_eq!(canonical(expected), expected, "{one}: canonical form");
    };
    check("<a/>", "<a></a>");
    check("<a  c = '2'\n b='1' >x</a >", "<a b=\"1\" c=\"2\">x</a>");
    check("<a>&lt;&amp;&gt;&quot;&#13;\r\n</a>", "<a>&lt;&amp;&gt;\"&#xD;\n</a>");
    check("<a b='&quot;&#10;\t'/>", "<a b=\"&quot;&#xA; \"></a>");
    check("<a xmlns='u'><b/></a>", "<a xmlns=\"u\"><b></b></a>");
    check("<a xmlns='u'><b xmlns=''/></a>", "<a xmlns=\"u\"><b xmlns=\"\"></b></a>");
    check("<x:a xmlns:y='v' xmlns:x='u' y:k='1'/>", "<x:a xmlns:x=\"u\" xmlns:y=\"v\" y:k=\"1\"></x:a>");
    check("<a xmlns:unused='u'>unused:q</a>", "<a xmlns:unused=\"u\">unused:q</a>");
    check("<a xmlns='u&amp;v&#49;'/>", "<a xmlns=\"u&amp;v1\"></a>");
    check(
        "<x:a xmlns:x='u&#49;' xmlns:y='u1' y:k='1'/>",
        "<x:a xmlns:x=\"u1\" xmlns:y=\"u1\" y:k=\"1\"></x:a>",
    );
    check("<a xml:lang='de'/>", "<a xml:lang=\"de\"></a>");
}

#[test]
fn inserted_names_without_a_namespace_stay_without_one() {
    let inserted = |element: &str| {
        let written = canonical(element);
        let mut parent = Element::new("ours", "a");
        parent.children.push(super::Node::Serialized(written.clone()));
        let whole = read(write(&parent).as_bytes(), &XmlLimits::default()).unwrap();
        let inner = whole.elements().next().unwrap();
        assert_eq!(write(inner), written, "{element}: unchanged");
        write(&parent)
    };
    let plain = inserted("<f:x xmlns:f='u'><f:y>b</f:y></f:x>");
    assert_eq!(plain, "<a xmlns=\"ours\"><f:x xmlns:f=\"u\"><f:y>b</f:y></f:x></a>");
    let bare = inserted("<f:x xmlns:f='u'><Amount>9</Amount></f:x>");
    assert_eq!(bare, "<a xmlns=\"ours\"><f:x xmlns=\"\" xmlns:f=\"u\"><Amount>9</Amount></f:x></a>");
    inserted("<x xmlns='u'><y/></x>");
    inserted("<x/>");
}

#[test]
fn characters_that_xml_cannot_represent_are_replaced() {
    let element = Element::new("", "a").with_text("b\u{FFFF}\u{1}");
    assert_eq!(write(&element), "<a>b\u{FFFD}\u{FFFD}</a>");
}

#[test]
fn an_extracted_element_keeps_its_namespaces() {
    let whole = read(
        b"<r xmlns='d' xmlns:x='u' xmlns:z='w'><x:a k='1'><b x:l='2'/></x:a></r>",
        &XmlLimits::default(),
    )
    .unwrap();
    let inner = whole.elements().next().unwrap();
    assert_eq!(write(inner), "<x:a xmlns:x=\"u\" k=\"1\"><b xmlns=\"d\" x:l=\"2\"></b></x:a>");
}
