//! Documents of XML that mean harm, in every format of XML: each is refused by name, or answered rightly, and
//! takes a bounded amount of memory.

use postonce_tests::client::Wish;
use postonce_tests::dialects::Dialect;

use super::{SOON, Target};

/// What the whole collection may cost, in KiB: bodies of 1 MiB, and trees of 10,000 elements.
const GROWTH_KIB_MAX: u64 = 48 * 1024;
/// Nearly the largest body that can be allowed.
const LARGE: usize = 1_000_000;

/// A format of XML: its media type, and a sound document of it, taken apart.
///
/// **To add a format**: a row in [`frames`].
struct Frame {
    media_type: &'static str,
    /// The tag that opens the outermost element, without its `>`.
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

    fn sound(&self) -> String {
        self.with("", "")
    }

    /// With more attributes on the outermost element, and more at the end of it.
    fn with(&self, attributes: &str, more: &str) -> String {
        format!("{}{attributes}>{}{more}{}", self.open, self.inner, self.close)
    }
}

fn frames() -> Vec<Frame> {
    let of = |dialect: Dialect| Frame::of(dialect.media_type(), &dialect.body(&Wish::deposit("1.00")));
    vec![of(Dialect::Xml), of(Dialect::Wwi)]
}

/// Something that is sent, and what has to be told about it; nothing where it is right.
struct Case {
    name: &'static str,
    content_type: String,
    body: Vec<u8>,
    told: &'static str,
}

/// What must not be expanded, fetched or believed.
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

/// What is too much.
fn sizes(frame: &Frame) -> Vec<(&'static str, String, &'static str)> {
    let stranger = |attributes: &str, content: &str| {
        frame.with("", &format!("<x:a xmlns:x=\"urn:x\"{attributes}>{content}</x:a>"))
    };
    let many = |count: usize| -> String { (0..count).map(|number| format!(" a{number}=\"\"")).collect() };
    let long = "x".repeat(LARGE);
    vec![
        ("1 MB attribute", frame.with(&format!(" a=\"{long}\""), ""), "must not have the attribute a"),
        ("1 MB attribute of a stranger", stranger(&format!(" a=\"{long}\""), ""), "more than 2048 bytes"),
        ("1 MB text", frame.with("", &long), "must not have text between its elements"),
        ("1 MB text of a stranger", stranger("", &long), "more than 2048 bytes"),
        ("1 MB name", frame.with("", &format!("<{long}/>")), "is not known here"),
        ("1 MB comment", frame.with("", &format!("<!--{long}-->")), ""),
        ("more than the body may have", stranger("", &"x".repeat(1_048_576)), "at most 1048576 bytes"),
        ("deep", stranger("", &"<a>".repeat(100_000)), "nested deeper than 32 elements"),
        (
            "deep and closed",
            stranger("", &format!("{}{}", "<a>".repeat(100), "</a>".repeat(100))),
            "nested deeper than 32",
        ),
        ("many attributes", stranger(&many(5000), ""), "more than 32 attributes"),
        ("many elements", stranger("", &"<a/>".repeat(100_000)), "more than 10000 elements"),
        ("many unknown elements", frame.with("", &"<a/>".repeat(9000)), "see violations"),
        ("no end of a tag", format!("{} {long}", frame.open), "not well-formed"),
    ]
}

/// What two readers could take for different things.
fn shapes(frame: &Frame) -> Vec<(&'static str, String, &'static str)> {
    let sound = frame.sound();
    let declared = |declaration: &str| format!("<?xml {declaration}?>{sound}");
    let namespace = frame.open.split('"').nth(1).unwrap_or_default();
    let other = |with: &str| sound.replacen(namespace, with, 1);
    vec![
        ("as it should be", sound.clone(), ""),
        ("declared", declared("version='1.0' encoding='utf-8' standalone='yes'"), ""),
        ("in Latin 1", declared("version='1.0' encoding='ISO-8859-1'"), "declares ISO-8859-1"),
        ("in UTF-7", declared("version='1.0' encoding='UTF-7'"), "declares UTF-7"),
        ("in UTF-16, it says", declared("version='1.0' encoding='UTF-16'"), "declares UTF-16"),
        ("XML 1.1", declared("version='1.1'"), "must be XML 1.0"),
        ("blank before the declaration", format!(" {}", declared("version='1.0'")), "at its very start"),
        ("character data", frame.with("", "<x:a xmlns:x=\"urn:x\"><![CDATA[<&]]></x:a>"), ""),
        ("comments", format!("<!-- a -->{}<!-- b -->", frame.with("", "<!-- c -->")), ""),
        ("a comment in a comment", frame.with("", "<!-- a -- b -->"), "not well-formed"),
        ("truncated", sound.chars().take(sound.len().saturating_sub(4)).collect(), "not well-formed"),
        ("truncated early", frame.open.clone(), "not well-formed"),
        ("empty", String::new(), "must have an element"),
        ("white space", " \r\n".to_owned(), "must have an element"),
        ("trailing text", format!("{sound}x"), "text outside of its outermost element"),
        ("trailing element", format!("{sound}{sound}"), "must end after its outermost element"),
        ("trailing blanks", format!("{sound}\r\n"), ""),
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
        ("a stranger under our name", frame.with("", "<Amount xmlns='urn:evil'>9.99</Amount>"), ""),
        ("no namespace within", frame.with("", "<Amount xmlns=''>9.99</Amount>"), "must be in the namespace"),
        (
            "a type by instance",
            frame.with(" xmlns:i='http://www.w3.org/2001/XMLSchema-instance' i:nil='true'", ""),
            "must not have the attribute nil",
        ),
        ("JSON", "{\"amount\":\"1.00\",\"currency\":\"EUR\"}".to_owned(), "text outside"),
    ]
}

/// What is no text in UTF-8, or says so.
fn bytes(frame: &Frame) -> Vec<Case> {
    let sound = frame.sound();
    let case =
        |name, body: Vec<u8>, told| Case { name, content_type: frame.media_type.to_owned(), body, told };
    let wide = |text: &str, big: bool| -> Vec<u8> {
        let units = text.encode_utf16();
        units.flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
    };
    let with_bytes = |bytes: &[u8]| {
        let marked = frame.with("", "<x:a xmlns:x='urn:x'>MARK</x:a>");
        let (before, after) = marked.split_once("MARK").expect("it was put there");
        [before.as_bytes(), bytes, after.as_bytes()].concat()
    };
    let marked = format!("\u{FEFF}{sound}");
    let mut cases = vec![
        case("UTF-8 with a mark", marked.clone().into_bytes(), ""),
        case("UTF-16 big, marked", wide(&marked, true), "looks like UTF-16"),
        case("UTF-16 little, marked", wide(&marked, false), "looks like UTF-16"),
        case("UTF-16 big", wide(&sound, true), "looks like UTF-16"),
        case("UTF-16 little", wide(&sound, false), "looks like UTF-16"),
        case("NUL", with_bytes(b"\0"), "U+0000"),
        case("control", with_bytes(b"\x08"), "U+0008"),
        case("lone surrogate", with_bytes(b"\xED\xA0\x80"), "must be in UTF-8, and is not"),
        case("overlong", with_bytes(b"\xC0\xBC"), "must be in UTF-8, and is not"),
        case("Latin 1", with_bytes(b"\xFC"), "must be in UTF-8, and is not"),
        case("no character", with_bytes("\u{FFFF}".as_bytes()), "U+FFFF"),
    ];
    for (charset, told) in
        [("utf-8", ""), ("\"UTF-8\"", ""), ("utf-16", "its charset is"), ("iso-8859-1", "its charset is")]
    {
        let content_type = format!("{}; charset={charset}", frame.media_type);
        cases.push(Case { name: "charset", content_type, body: sound.clone().into_bytes(), told });
    }
    cases
}

#[tokio::test]
async fn hostile_xml_is_refused_by_name_or_answered_rightly() {
    let mut target = Target::with(&[("POSTONCE_BODY_BYTES_MAX", "1048576")]).await;
    for frame in frames() {
        let texts = [entities(&frame), sizes(&frame), shapes(&frame)].concat();
        let texts = texts.into_iter().map(|(name, text, told)| Case {
            name,
            content_type: frame.media_type.to_owned(),
            body: text.into_bytes(),
            told,
        });
        for Case { name, content_type, body, told } in texts.chain(bytes(&frame)) {
            let lines = format!("Accept: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
            let head = target
                .deposit(&lines)
                .replace("Content-Type: application/json", &format!("Content-Type: {content_type}"));
            let mut connection = target.connect().await;
            let _taken = connection.send([head.as_bytes(), &body].concat()).await;
            let answer =
                connection.answer(SOON).await.unwrap_or_else(|| panic!("{content_type}, {name}: no answer"));
            let is_right = if told.is_empty() {
                answer.status == 202
            } else {
                [400, 413, 415, 422].contains(&answer.status) && answer.body.to_string().contains(told)
            };
            assert!(is_right, "{content_type}, {name}: {told:?} is not in {answer:?}");
            // However large it was.
            assert!(answer.body.to_string().len() < 64 * 1024, "{content_type}, {name}: a long answer");
        }
    }
    target.is_well(GROWTH_KIB_MAX).await;
}
