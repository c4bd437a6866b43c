//! Signed requests, from the header to the posting.

use actix_web::http::Method;
use actix_web::test::TestRequest;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use postonce_shared::domain::partner::{SignatureAlgorithm, SignatureKey};
use sha2::{Digest as _, Sha256};

use super::test_bank::{ACCOUNT, Answer, TestBank, id};

const BODY: &str = r#"{"amount":"5.00","currency":"EUR"}"#;

/// The parameters of a signature; each test makes one of them invalid.
pub struct Signing {
    secret: Vec<u8>,
    key_id: &'static str,
    pub method: &'static str,
    pub components: Vec<&'static str>,
    created: i64,
    /// Further parameters.
    pub more: String,
}

fn secret() -> Vec<u8> {
    b"a secret of at least thirty-two bytes".to_vec()
}

pub fn hmac_key(id: &str) -> SignatureKey {
    SignatureKey { id: id.to_owned(), algorithm: SignatureAlgorithm::HmacSha256, material: secret() }
}

impl Signing {
    pub fn now(bank: &TestBank) -> Self {
        let created = bank.app.world.now().unix_ms() / 1000;
        let components = vec!["@method", "@authority", "@path", "content-digest", "idempotency-key"];
        Self { secret: secret(), key_id: "shop-1", method: "POST", components, created, more: String::new() }
    }

    /// The headers of a signature over a deposit with that body, sent to that path.
    pub fn headers(&self, path: &str, body: &str) -> [(&'static str, String); 3] {
        let digest = format!("sha-256=:{}:", BASE64_STANDARD.encode(Sha256::digest(body)));
        let covered: Vec<String> = self.components.iter().map(|name| format!("\"{name}\"")).collect();
        let params = format!(
            "({});created={};keyid=\"{}\"{}",
            covered.join(" "),
            self.created,
            self.key_id,
            self.more
        );
        let value = |name: &str| match name {
            "@method" => self.method.to_owned(),
            "@authority" => "localhost:8080".to_owned(),
            "@path" => path.split('?').next().unwrap().to_owned(),
            "@query" => format!("?{}", path.split_once('?').map_or("", |(_, query)| query)),
            "@target-uri" => format!("http://localhost:8080{path}"),
            "content-digest" => digest.clone(),
            "idempotency-key" => format!("\"{}\"", id(1)),
            other => panic!("no value for {other}"),
        };
        let lines = self.components.iter().map(|name| format!("\"{name}\": {}\n", value(name)));
        let base = format!("{}\"@signature-params\": {params}", lines.collect::<String>());
        let mac = Hmac::<Sha256>::new_from_slice(&self.secret).unwrap().chain_update(base).finalize();
        let signature = format!("sig=:{}:", BASE64_STANDARD.encode(mac.into_bytes()));
        [("content-digest", digest), ("signature-input", format!("sig={params}")), ("signature", signature)]
    }
}

/// Submits a deposit with these headers.
async fn deposit(bank: &TestBank, path: &str, body: &str, headers: &[(&'static str, String)]) -> Answer {
    let request = TestRequest::default().method(Method::POST).uri(path);
    let request = request
        .insert_header(("host", "localhost:8080"))
        .insert_header(("content-type", "application/json"))
        .insert_header(("content-length", body.len()))
        .insert_header(("idempotency-key", format!("\"{}\"", id(1))))
        .set_payload(body.to_owned());
    let request = headers.iter().fold(request, |request, header| request.insert_header(header.clone()));
    bank.call_as_shop(request).await
}

async fn bank_that_requires_signatures() -> (TestBank, String) {
    let bank = TestBank::with_account().await;
    bank.set_signing("shop", &[hmac_key("shop-1"), hmac_key("shop-2")], true).await;
    (bank, format!("{ACCOUNT}/deposits"))
}

#[actix_web::test]
async fn a_signed_request_is_accepted_and_its_repetition_posts_nothing() {
    let (bank, path) = bank_that_requires_signatures().await;
    let headers = Signing::now(&bank).headers(&path, BODY);
    assert_eq!(deposit(&bank, &path, BODY, &headers).await.status, 202);
    let again = deposit(&bank, &path, BODY, &headers).await;
    assert_eq!((again.status, again.header("idempotent-replayed")), (202, Some("true")));
    // Later the signature has expired, for new requests and for replays.
    bank.world.advance(std::time::Duration::from_secs(301));
    assert_eq!(deposit(&bank, &path, BODY, &headers).await.problem(), (401, "signature_expired"));
    // Any key of the partner is valid, and so is the whole address as a component.
    let components = vec!["@method", "@target-uri", "content-digest", "idempotency-key"];
    let signing = Signing { key_id: "shop-2", components, ..Signing::now(&bank) };
    let other = deposit(&bank, &path, BODY, &signing.headers(&path, BODY)).await;
    assert_eq!(other.status, 202, "{other:?}");
    let with_query = format!("{path}?a=b");
    let refused = deposit(&bank, &with_query, BODY, &signing.headers(&with_query, BODY)).await;
    assert_eq!(refused.problem(), (400, "query_invalid"), "its signature is valid");
}

#[actix_web::test]
async fn missing_invalid_and_incomplete_signatures_are_refused() {
    let (bank, path) = bank_that_requires_signatures().await;
    assert_eq!(deposit(&bank, &path, BODY, &[]).await.problem(), (401, "signature_missing"));
    // Reads need a signature, too: a stolen API key alone gives no access.
    assert_eq!(bank.get(ACCOUNT).await.problem(), (401, "signature_missing"));
    let check = async |signing: Signing, expected: &str| {
        let answer = deposit(&bank, &path, BODY, &signing.headers(&path, BODY)).await;
        assert_eq!(answer.problem(), (401, expected), "{answer:?}");
    };
    let now = || Signing::now(&bank);
    let created = now().created;
    check(Signing { secret: b"another secret of thirty-two bytes".to_vec(), ..now() }, "signature_invalid")
        .await;
    check(Signing { key_id: "other-1", ..now() }, "signature_invalid").await;
    check(Signing { more: r#";alg="ed25519""#.to_owned(), ..now() }, "signature_invalid").await;
    check(Signing { created: created - 301, ..now() }, "signature_expired").await;
    check(Signing { created: created + 61, ..now() }, "signature_expired").await;
    check(Signing { more: format!(";expires={}", created - 1), ..now() }, "signature_expired").await;
    for component in ["@method", "@authority", "@path", "content-digest", "idempotency-key"] {
        let components = now().components.into_iter().filter(|name| *name != component).collect();
        check(Signing { components, ..now() }, "signature_incomplete").await;
    }
    // Signed for one request, sent with another.
    let refused = async |headers: &[(&'static str, String)], path: &str, body: &str| {
        let answer = deposit(&bank, path, body, headers).await;
        assert!([400, 401].contains(&answer.status), "{answer:?}");
        answer.body["code"].as_str().unwrap().to_owned()
    };
    let signed = now().headers(&path, BODY);
    assert_eq!(refused(&signed, &path, &BODY.replace("5.00", "9.00")).await, "content_digest_mismatch");
    assert_eq!(refused(&signed, &format!("{ACCOUNT}/withdrawals"), BODY).await, "signature_invalid");
    assert_eq!(refused(&signed, &format!("{path}?a=b"), BODY).await, "signature_incomplete");
    let mut forged = now().headers(&path, &BODY.replace("5.00", "9.00"));
    forged[2] = signed[2].clone();
    assert_eq!(refused(&forged, &path, &BODY.replace("5.00", "9.00")).await, "signature_invalid");
    assert_eq!(refused(&signed[..2], &path, BODY).await, "signature_invalid");
    assert_eq!(refused(&signed[..1], &path, BODY).await, "signature_missing");
    // No request had an effect.
    bank.set_signing("shop", &[], false).await;
    assert_eq!(bank.get(&format!("{ACCOUNT}/transactions/{}", id(1))).await.status, 404);
}

#[actix_web::test]
async fn an_optional_signature_must_be_valid() {
    let (bank, path) = bank_that_requires_signatures().await;
    bank.set_signing("shop", &[hmac_key("shop-1")], false).await;
    assert_eq!(deposit(&bank, &path, BODY, &[]).await.status, 202);
    let wrong = Signing { secret: b"another secret of thirty-two bytes".to_vec(), ..Signing::now(&bank) };
    let answer = deposit(&bank, &path, BODY, &wrong.headers(&path, BODY)).await;
    assert_eq!(answer.problem(), (401, "signature_invalid"));
    // Without keys of the partner a signature is ignored, but a digest is always checked.
    bank.set_signing("shop", &[], false).await;
    assert_eq!(deposit(&bank, &path, BODY, &wrong.headers(&path, BODY)).await.status, 202);
    let digest = |value: &str| [("content-digest", value.to_owned())];
    let answer = deposit(&bank, &path, BODY, &digest("sha-256=:AAAA:")).await;
    assert_eq!(answer.problem(), (400, "content_digest_mismatch"));
    let answer = deposit(&bank, &path, BODY, &digest("md5=:AAAA:")).await;
    assert_eq!(answer.problem(), (400, "content_digest_invalid"));
}

#[actix_web::test]
async fn a_body_without_an_announced_length_must_be_signed_as_well() {
    let (bank, path) = bank_that_requires_signatures().await;
    let components = vec!["@method", "@target-uri", "idempotency-key"];
    let headers = Signing { components, ..Signing::now(&bank) }.headers(&path, BODY);
    // As over HTTP/2: neither a length nor chunks.
    let request = TestRequest::post()
        .uri(&path)
        .insert_header(("host", "localhost:8080"))
        .insert_header(("content-type", "application/json"))
        .insert_header(("idempotency-key", format!("\"{}\"", id(1))))
        .set_payload(BODY);
    let request = headers.iter().fold(request, |request, header| request.insert_header(header.clone()));
    assert_eq!(bank.call_as_shop(request).await.problem(), (401, "signature_incomplete"));
}
