//! Hostile XML documents in every XML format: each is refused with the right error, or answered correctly,
//! and uses a bounded amount of memory.

use postonce_tests::client::Submission;
use postonce_tests::dialects::Dialect;

use super::{SOON, Target};

/// Largest memory growth of all cases, in KiB: bodies of 1 MiB, and trees of 10,000 elements.
const GROWTH_KIB_MAX: u64 = 48 * 1024;
/// Nearly the largest body that can be configured.
const LARGE: usize = 1_000_000;

/// An XML format: its media type, and the parts of a valid document.
///
/// **To add a format**: add it in [`frames`].
struct Frame {
    media_type: &'static str,
    /// The start tag of the root element, without its `>`.
    open: String,
    inner: String,
    close: String,
}

impl Frame {
    fn of(media_type: &'static str, document: &str) -> Self {
        let (open, rest) = document.split_once('>').expect("a tag");
        let (inner, close) = rest.rsplit_once("</").expect("a tag at the end");
        Self { media_type, open: open.to_owned(), inner: inner.to_owned(), close: format!("</{close}") }
    }

    fn valid(&self) -> String {
        self.with("", "")
    }

    /// The document with more attributes on the root element, and more content at its end.
    fn with(&self, attributes: &str, more: &str) -> String {
        format!("{}{attributes}>{}{more}{}", self.open, self.inner, self.close)
    }
}

fn frames() -> Vec<Frame> {
    let of = |dialect: Dialect| Frame::of(dialect.media_type(), &dialect.body(&Submission::deposit("1.00")));
    vec![of(Dialect::Xml), of(Dialect::Wwi)]
}

/// A case, and a part of the expected error message; empty if the document is valid.
struct Case {
    name: &'static str,
    content_type: String,
    body: Vec<u8>,
    expected: &'static str,
}

/// Content that must not be expanded, loaded or trusted.
fn entities(frame: &Frame) -> Vec<(&'static str, String, &'static str)> {
    let with_type =
        |declarations: &str, text: &str| format!("<!DOCTYPE x {declarations}>{}", frame.with("", text));
    let laughs: String = (1..10)
        .map(|level: usize| {
            let ten = format!("&l{};", level.saturating_sub(1)).repeat(10);
            format!("<!ENTITY l{level} \"{ten}\">")
        })
        .collect();
    let quadratic = format!("[<!ENTITY a \"{}\">]", "x".repeat(LARGE / 2));
    let no_types = "must not have a document type declaration";
    vec![
        ("billion laughs", with_type(&format!("[<!ENTITY l0 \"ha\">{laughs}]"), "&l9;"), no_types),
        ("quadratic blow-up", with_type(&quadratic, &"&a;".repeat(50_000)), no_types),
        ("external file", with_type("[<!ENTITY a SYSTEM \"file:///etc/passwd\">]", "&a;"), no_types),
        ("external address", with_type("[<!ENTITY a SYSTEM \"http://127.0.0.1:1/\">]", "&a;"), no_types),
        ("external subset", with_type("SYSTEM \"http://127.0.0.1:1/x.dtd\"", ""), no_types),
        ("public subset", with_type("PUBLIC \"-//X//Y\" \"http://127.0.0.1:1/x.dtd\"", ""), no_types),
        (
            "parameter entity",
            with_type("[<!ENTITY % p SYSTEM \"http://127.0.0.1:1/x.dtd\"> %p;]", ""),
            no_types,
        ),
        ("entity without a type", frame.with("", "&lol;"), "the undefined entity &lol;"),
        ("entity in an attribute", frame.with(" a=\"&lol;\"", ""), "not well-formed"),
        ("processing instruction", frame.with("", "<?xml-stylesheet href='x'?>"), "processing instructions"),
        (
            "inclusion",
            frame.with(
                "",
                "<x:include xmlns:x=\"http://www.w3.org/2001/XInclude\" href=\"file:///etc/passwd\"/>",
            ),
            "",
        ),
    ]
}

/// Content that is too large.
fn sizes(frame: &Frame) -> Vec<(&'static str, String, &'static str)> {
    let unknown = |attributes: &str, content: &str| {
        frame.with("", &format!("<x:a xmlns:x=\"urn:x\"{attributes}>{content}</x:a>"))
    };
    let many = |count: usize| -> String { (0..count).map(|number| format!(" a{number}=\"\"")).collect() };
    let long = "x".repeat(LARGE);
    vec![
        ("1 MB attribute", frame.with(&format!(" a=\"{long}\""), ""), "must not have the attribute a"),
        (
            "1 MB attribute of an unknown element",
            unknown(&format!(" a=\"{long}\""), ""),
            "more than 2048 bytes",
        ),
        ("1 MB text", frame.with("", &long), "must not contain text between its elements"),
        ("1 MB text of an unknown element", unknown("", &long), "more than 2048 bytes"),
        ("1 MB name", frame.with("", &format!("<{long}/>")), "validation_failed"),
        ("1 MB comment", frame.with("", &format!("<!--{long}-->")), ""),
        ("more than the body may have", unknown("", &"x".repeat(1_048_576)), "at most 1048576 bytes"),
        ("deep", unknown("", &"<a>".repeat(100_000)), "nested deeper than 32 elements"),
        (
            "deep and closed",
            unknown("", &format!("{}{}", "<a>".repeat(100), "</a>".repeat(100))),
            "nested deeper than 32",
        ),
        ("many attributes", unknown(&many(5000), ""), "more than 32 attributes"),
        ("many elements", unknown("", &"<a/>".repeat(100_000)), "more than 10000 elements"),
        ("many unknown elements", frame.with("", &"<a/>".repeat(9000)), "see violations"),
        ("no end of a tag", format!("{} {long}", frame.open), "not well-formed"),
    ]
}

/// Ambiguous content.
fn shapes(frame: &Frame) -> Vec<(&'static str, String, &'static str)> {
    let valid = frame.valid();
    let declared = |declaration: &str| format!("<?xml {declaration}?>{valid}");
    let namespace = frame.open.split('"').nth(1).unwrap_or_default();
    let other = |with: &str| valid.replacen(namespace, with, 1);
    vec![
        ("as it should be", valid.clone(), ""),
        ("declared", declared("version='1.0' encoding='utf-8' standalone='yes'"), ""),
        ("in Latin 1", declared("version='1.0' encoding='ISO-8859-1'"), "declares ISO-8859-1"),
        ("in UTF-7", declared("version='1.0' encoding='UTF-7'"), "declares UTF-7"),
        ("in UTF-16, it says", declared("version='1.0' encoding='UTF-16'"), "declares UTF-16"),
        ("XML 1.1", declared("version='1.1'"), "must be XML 1.0"),
        ("blank before the declaration", format!(" {}", declared("version='1.0'")), "at its very start"),
        ("character data", frame.with("", "<x:a xmlns:x=\"urn:x\"><![CDATA[<&]]></x:a>"), ""),
        ("comments", format!("<!-- a -->{}<!-- b -->", frame.with("", "<!-- c -->")), ""),
        ("a comment in a comment", frame.with("", "<!-- a -- b -->"), "not well-formed"),
        ("truncated", valid.chars().take(valid.len().saturating_sub(4)).collect(), "not well-formed"),
        ("truncated early", frame.open.clone(), "not well-formed"),
        ("empty", String::new(), "must have an element"),
        ("white space", " \r\n".to_owned(), "must have an element"),
        ("trailing text", format!("{valid}x"), "text outside of its outermost element"),
        ("trailing element", format!("{valid}{valid}"), "must end after its outermost element"),
        ("trailing blanks", format!("{valid}\r\n"), ""),
        ("surrogate by number", frame.with("", "&#xD800;"), "invalid character reference"),
        ("NUL by number", frame.with("", "&#0;"), "invalid character reference"),
        ("attribute twice", frame.with(" a='1' a='2'", ""), "not well-formed"),
        (
            "attribute twice by namespace",
            frame.with("", "<x:a xmlns:x='urn:x' xmlns:y='urn:x' x:b='1' y:b='2'/>"),
            "the attribute b twice in one element",
        ),
        ("prefix that is not declared", frame.with("", "<x:a/>"), "the prefix x, which is not declared"),
        ("prefix without a namespace", frame.with("", "<x:a xmlns:x=''/>"), "prefix x"),
        ("prefix xml", frame.with("", "<a xmlns:xml='urn:x'/>"), "not well-formed"),
        ("no namespace", other(""), "but is"),
        ("another namespace", other("urn:postonce:xml:2"), "but is"),
        ("a namespace with a blank", other(&format!("{namespace} ")), "but is"),
        (
            "an unknown element with a known name",
            frame.with("", "<Amount xmlns='urn:evil'>9.99</Amount>"),
            "",
        ),
        ("no namespace within", frame.with("", "<Amount xmlns=''>9.99</Amount>"), "must be in the namespace"),
        (
            "a type by instance",
            frame.with(" xmlns:i='http://www.w3.org/2001/XMLSchema-instance' i:nil='true'", ""),
            "must not have the attribute nil",
        ),
        ("JSON", "{\"amount\":\"1.00\",\"currency\":\"EUR\"}".to_owned(), "text outside"),
    ]
}

/// Documents that are not in UTF-8, or that declare another encoding.
fn bytes(frame: &Frame) -> Vec<Case> {
    let valid = frame.valid();
    let case = |name, body: Vec<u8>, expected| Case {
        name,
        content_type: frame.media_type.to_owned(),
        body,
        expected,
    };
    let wide = |text: &str, big: bool| -> Vec<u8> {
        let units = text.encode_utf16();
        units.flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
    };
    let with_bytes = |bytes: &[u8]| {
        let marked = frame.with("", "<x:a xmlns:x='urn:x'>MARK</x:a>");
        let (before, after) = marked.split_once("MARK").expect("it was put there");
        [before.as_bytes(), bytes, after.as_bytes()].concat()
    };
    let marked = format!("\u{FEFF}{valid}");
    let mut cases = vec![
        case("UTF-8 with a mark", marked.clone().into_bytes(), ""),
        case("UTF-16 big, marked", wide(&marked, true), "looks like UTF-16"),
        case("UTF-16 little, marked", wide(&marked, false), "looks like UTF-16"),
        case("UTF-16 big", wide(&valid, true), "looks like UTF-16"),
        case("UTF-16 little", wide(&valid, false), "looks like UTF-16"),
        case("NUL", with_bytes(b"\0"), "U+0000"),
        case("control", with_bytes(b"\x08"), "U+0008"),
        case("lone surrogate", with_bytes(b"\xED\xA0\x80"), "must be in UTF-8, but is not"),
        case("overlong", with_bytes(b"\xC0\xBC"), "must be in UTF-8, but is not"),
        case("Latin 1", with_bytes(b"\xFC"), "must be in UTF-8, but is not"),
        case("no character", with_bytes("\u{FFFF}".as_bytes()), "U+FFFF"),
    ];
    for (charset, expected) in
        [("utf-8", ""), ("\"UTF-8\"", ""), ("utf-16", "its charset is"), ("iso-8859-1", "its charset is")]
    {
        let content_type = format!("{}; charset={charset}", frame.media_type);
        cases.push(Case { name: "charset", content_type, body: valid.clone().into_bytes(), expected });
    }
    cases
}

#[tokio::test]
async fn hostile_xml_is_refused_with_the_right_error_or_answered_correctly() {
    let mut target = Target::with(&[("POSTONCE_BODY_BYTES_MAX", "1048576")]).await;
    for frame in frames() {
        let texts = [entities(&frame), sizes(&frame), shapes(&frame)].concat();
        let texts = texts.into_iter().map(|(name, text, expected)| Case {
            name,
            content_type: frame.media_type.to_owned(),
            body: text.into_bytes(),
            expected,
        });
        for Case { name, content_type, body, expected } in texts.chain(bytes(&frame)) {
            let lines = format!("Accept: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
            let head = target
                .deposit(&lines)
                .replace("Content-Type: application/json", &format!("Content-Type: {content_type}"));
            let mut connection = target.connect().await;
            let _taken = connection.send([head.as_bytes(), &body].concat()).await;
            let answer =
                connection.answer(SOON).await.unwrap_or_else(|| panic!("{content_type}, {name}: no answer"));
            let is_right = if expected.is_empty() {
                answer.status == 202
            } else {
                [400, 413, 415, 422].contains(&answer.status) && answer.body.to_string().contains(expected)
            };
            assert!(is_right, "{content_type}, {name}: {expected:?} is not in {answer:?}");
            // The answer is short for a document of any size.
            assert!(answer.body.to_string().len() < 64 * 1024, "{content_type}, {name}: a long answer");
        }
    }
    target.assert_healthy(GROWTH_KIB_MAX).await;
}
