use actix_web::test::TestRequest;
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use postonce_shared::config::PublicAddress;

use super::*;

/// The request of the RFC's examples (appendix B.2).
fn example() -> TestRequest {
    TestRequest::post()
        .uri("/foo?param=Value&Pet=dog")
        .insert_header(("host", "example.com"))
        .insert_header(("date", "Tue, 20 Apr 2021 02:07:55 GMT"))
        .insert_header(("content-type", "application/json"))
        .insert_header((
            "content-digest",
            "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:",
        ))
        .insert_header(("content-length", "18"))
}

const fn verifier() -> Verifier {
    Verifier {
        terms: SignatureTerms { age_max: Duration::from_secs(300), public_address: None },
        is_tls: false,
    }
}

fn key(id: &str, algorithm: SignatureAlgorithm, material: Vec<u8>) -> SignatureKey {
    SignatureKey { id: id.to_owned(), algorithm, material }
}

/// The base of the example under one signature, and whether the signature is right.
fn check(key: &SignatureKey, input: &str, signature: &str) -> (String, bool) {
    let request = example().insert_header((SIGNATURE_INPUT, input)).insert_header((SIGNATURE, signature));
    let request = request.to_http_request();
    let keys = [key.clone()];
    let signed = input::read(request.headers(), &keys).unwrap().remove(0);
    let message = Message::of(&request, &verifier());
    let base = base::signature_base(&signed.components, &signed.params, &message).unwrap();
    let is_right = is_right(key, base.as_bytes(), &signed.signature);
    (base, is_right)
}

#[test]
fn the_example_with_hmac_is_right() {
    let secret = BASE64_STANDARD
        .decode("uzvJfB4u3N0Jy4T7NZ75MDVcr8zSTInedJtkgcu46YW4XByzNJjxBdtjUkdJPBtbmHhIDi6pcl8jsasjlTMtDQ==")
        .unwrap();
    let mut key = key("test-shared-secret", SignatureAlgorithm::HmacSha256, secret);
    let input =
        r#"sig-b25=("date" "@authority" "content-type");created=1618884473;keyid="test-shared-secret""#;
    let signature = "sig-b25=:pxcQw6G3AjtMBQjwo8XzkZf/bws5LelbaMk5rGIGtE8=:";
    let base = "\"date\": Tue, 20 Apr 2021 02:07:55 GMT\n\"@authority\": example.com\n\"content-type\": \
                application/json\n\"@signature-params\": (\"date\" \"@authority\" \
                \"content-type\");created=1618884473;keyid=\"test-shared-secret\"";
    assert_eq!(check(&key, input, signature), (base.to_owned(), true));
    // With anything else it is not: another key, a moment later, another component.
    assert!(!check(&key, &input.replace("473", "474"), signature).1);
    assert!(!check(&key, &input.replace("\"date\" ", ""), signature).1);
    key.material[0] ^= 1;
    assert!(!check(&key, input, signature).1);
}

#[test]
fn the_example_with_ed25519_is_right() {
    let public = BASE64_URL_SAFE_NO_PAD.decode("JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs").unwrap();
    let mut key = key("test-key-ed25519", SignatureAlgorithm::Ed25519, public);
    let input = r#"sig-b26=("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519""#;
    let signature =
        "sig-b26=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==:";
    let (base, is_right) = check(&key, input, signature);
    assert!(is_right, "{base}");
    assert!(base.contains("\"@method\": POST\n\"@path\": /foo\n"), "{base}");
    assert!(!check(&key, &input.replace("473", "474"), signature).1);
    assert!(!check(&key, input, &signature.replace("wqc", "xqc")).1);
    key.material.truncate(31);
    assert!(!check(&key, input, signature).1);
}

#[test]
fn derived_components_are_those_that_the_client_sees() {
    let request = example().insert_header(("x-two", "a")).append_header(("x-two", " b ")).to_http_request();
    let values = |verifier: &Verifier| {
        let names = [
            "@method",
            "@target-uri",
            "@authority",
            "@scheme",
            "@request-target",
            "@path",
            "@query",
            "x-two",
        ];
        let message = Message::of(&request, verifier);
        let base = base::signature_base(&names.map(str::to_owned), "()", &message).unwrap();
        base.lines().map(|line| line.split_once(": ").unwrap().1.to_owned()).collect::<Vec<_>>()
    };
    let target = "/foo?param=Value&Pet=dog";
    let expected = |scheme: &str, host: &str| {
        let uri = format!("{scheme}://{host}{target}");
        ["POST", &uri, host, scheme, target, "/foo", "?param=Value&Pet=dog", "a, b", "()"].map(str::to_owned)
    };
    assert_eq!(values(&verifier()), expected("http", "example.com"));
    assert_eq!(values(&Verifier { is_tls: true, ..verifier() }), expected("https", "example.com"));
    // Behind a proxy only the configuration knows.
    let public_address = PublicAddress::parse("https://Bank.Example:443");
    let terms = SignatureTerms { public_address, ..verifier().terms };
    assert_eq!(values(&Verifier { terms, is_tls: false }), expected("https", "bank.example"));
    // Ports that go without saying are not said.
    let named = TestRequest::get().uri("/").insert_header(("host", "Bank.Example:80")).to_http_request();
    assert_eq!(Message::of(&named, &verifier()).authority, "bank.example");
    let other = TestRequest::get().uri("/").insert_header(("host", "Bank.Example:8080")).to_http_request();
    assert_eq!(Message::of(&other, &verifier()).authority, "bank.example:8080");
}

#[test]
fn what_cannot_be_read_is_refused_and_never_passes_for_a_signature() {
    let keys = [key("k", SignatureAlgorithm::HmacSha256, vec![7; 32])];
    let refused = |input: &str, signature: &str| {
        let request = example().insert_header((SIGNATURE_INPUT, input)).insert_header((SIGNATURE, signature));
        let read = input::read(request.to_http_request().headers(), &keys);
        read.err().map(|error| error.code())
    };
    let good = r#"s=("@method");created=1;keyid="k""#;
    assert_eq!(refused(good, "s=:AAAA:"), None);
    let invalid = Some(Code::SignatureInvalid);
    for (input, signature) in [
        ("(", "s=:AAAA:"),
        (good, "s=("),
        (good, "t=:AAAA:"),
        (good, "s=\"AAAA\""),
        (good, "s=(:AAAA:)"),
        (r#"s="@method";created=1;keyid="k""#, "s=:AAAA:"),
        (r#"s=("@method");keyid="k""#, "s=:AAAA:"),
        (r#"s=("@method");created="1";keyid="k""#, "s=:AAAA:"),
        (r#"s=("@method");created=1;expires=soon;keyid="k""#, "s=:AAAA:"),
        (r#"s=("@method");created=1;alg=hmac-sha256;keyid="k""#, "s=:AAAA:"),
        (r#"s=("@method" "@method");created=1;keyid="k""#, "s=:AAAA:"),
        (r#"s=(method);created=1;keyid="k""#, "s=:AAAA:"),
        (r#"s=("@query-param";name="a");created=1;keyid="k""#, "s=:AAAA:"),
    ] {
        assert_eq!(refused(input, signature), invalid, "{input} {signature}");
    }
    // A signature by somebody else is of no interest.
    assert_eq!(refused(r#"s=("@method");created=1;keyid="other""#, "s=:AAAA:"), None);
    let many: Vec<String> = (0..9).map(|number| format!(r#"s{number}=();keyid="other""#)).collect();
    assert_eq!(refused(&many.join(", "), "s=:AAAA:"), invalid);
}
