//! Headers of requests and responses that protect clients: repeated ones, caching, and what browsers must not do.

use std::io::Read as _;

use actix_web::test::TestRequest;
use flate2::read::GzDecoder;
use postonce_shared::config::SignatureTerms;
use postonce_web::access::signatures::Verifier;
use postonce_web::server::App;

use super::test_bank::{ACCOUNT, TestBank, json, submission, with_key};

#[actix_web::test]
async fn headers_that_decide_about_a_request_are_accepted_once() {
    let bank = TestBank::with_account().await;
    let deposit = || submission("deposits", 1, r#"{"amount":"1","currency":"EUR"}"#);
    for (name, value) in [
        ("authorization", "Bearer po_of-another-partner"),
        ("content-type", "application/xml"),
        ("content-encoding", "identity"),
    ] {
        let request = with_key(deposit(), bank.key());
        let refused = bank.call(request.append_header((name, value)).append_header((name, value))).await;
        assert_eq!(refused.problem(), (400, "header_repeated"), "{name}");
        assert!(refused.text.contains(name), "{refused:?}");
    }
    assert_eq!(bank.queued().await, 0, "nothing was accepted");
    assert_eq!(bank.call_as_shop(deposit()).await.status, 202);
}

#[actix_web::test]
async fn a_query_outside_of_the_grammar_is_refused() {
    let bank = TestBank::with_account().await;
    let statement = format!("{ACCOUNT}/transactions");
    for (query, expected) in [
        ("reference=100%", "the % at character 14 must be followed by two hexadecimal digits"),
        ("reference=%zz", "the % at character 11"),
        ("reference=%ff", "must be UTF-8"),
        ("reference=a&reference=b", "must not occur more than once"),
        ("reference=a&limit=1&limit=1", "must not occur more than once"),
        ("from=2026-11-01x00:00:00Z", "must be a time of RFC 3339"),
        ("from=2026-11-01+00:00:00Z", "must be a time of RFC 3339"),
    ] {
        let refused = bank.get(&format!("{statement}?{query}")).await;
        assert_eq!(refused.problem(), (400, "query_invalid"), "{query}");
        assert!(refused.text.contains(expected), "{query}: {refused:?}");
    }
    let found =
        bank.get(&format!("{statement}?reference=100%25+%C3%BC&from=2026-11-01T00:00:00%2B01:00")).await;
    assert_eq!(found.status, 200, "{found:?}");
}

#[actix_web::test]
async fn a_condition_outside_of_the_grammar_changes_nothing() {
    let bank = TestBank::with_account().await;
    let version = bank.get(ACCOUNT).await.body["version"].as_u64().unwrap();
    let body = r#"{"overdraft_limit":"1.00"}"#;
    for condition in [
        format!("\"{version}-json"),
        format!("\"0{version}-json\""),
        format!("\"+{version}-json\""),
        "*, \"1-json\"".to_owned(),
    ] {
        let request =
            json(TestRequest::patch().uri(ACCOUNT), body).insert_header(("if-match", condition.clone()));
        assert_eq!(bank.call_as_shop(request).await.problem(), (412, "precondition_failed"), "{condition}");
    }
    for condition in ["*", "\"*", "1-json"] {
        let request = json(TestRequest::put().uri(ACCOUNT), r#"{"currency":"EUR"}"#);
        let request = request.insert_header(("if-none-match", condition));
        assert_eq!(bank.call_as_shop(request).await.problem(), (412, "precondition_failed"), "{condition}");
    }
}

#[actix_web::test]
async fn browsers_guess_no_content_type_and_use_tls_if_the_service_does() {
    let mut bank = TestBank::with_account().await;
    let documents = ["/openapi.json", "/openapi-strict.json", "/docs", "/docs/swagger-ui.css"];
    let paths = [ACCOUNT, "/nowhere", "/livez", "/readyz", "/soap"].into_iter().chain(documents);
    for is_tls in [false, true] {
        let verifier = Verifier { terms: SignatureTerms::default(), is_tls };
        bank.app = App { verifier, ..bank.app };
        for path in paths.clone() {
            for request in [
                TestRequest::get().uri(path),
                TestRequest::default().method("BREW".parse().unwrap()).uri(path),
            ] {
                let answer = bank.call(request).await;
                assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
                assert_eq!(answer.header("strict-transport-security").is_some(), is_tls, "{path}");
            }
        }
    }
}

#[actix_web::test]
async fn the_documentation_is_compressed_and_sent_once() {
    let bank = TestBank::new().await;
    let page = ["/docs", "/docs/index.html", "/docs/swagger-ui-bundle.js"];
    for path in ["/openapi.json", "/openapi-strict.json"].into_iter().chain(page) {
        let get = async |name: &'static str, value: &str| {
            bank.call_for_bytes(TestRequest::get().uri(path).insert_header((name, value.to_owned()))).await
        };
        let (plain, bytes) = get("accept", "*/*").await;
        assert_eq!((plain.status, plain.header("content-encoding")), (200, None), "{path}");
        let tag = plain.header("etag").unwrap().to_owned();
        let (zipped, compressed) = get("accept-encoding", "br, gzip;q=0.8").await;
        assert_eq!(zipped.header("content-encoding"), Some("gzip"), "{path}");
        assert_eq!((zipped.header("vary"), zipped.header("etag")), (Some("Accept-Encoding"), Some(&*tag)));
        let mut expanded = Vec::new();
        GzDecoder::new(&*compressed).read_to_end(&mut expanded).unwrap();
        assert!(expanded == bytes, "{path}");
        assert!(compressed.len() < bytes.len(), "{path}");
        for refused in ["gzip;q=0", "identity", "br"] {
            assert_eq!(get("accept-encoding", refused).await.0.header("content-encoding"), None, "{refused}");
        }
        for known in [tag.clone(), tag.replace("W/", ""), format!("\"other\", {tag}"), "*".to_owned()] {
            let (unchanged, nothing) = get("if-none-match", &known).await;
            assert_eq!((unchanged.status, nothing.len()), (304, 0), "{path} {known}");
        }
        assert_eq!(get("if-none-match", "\"other\"").await.0.status, 200);
        if path.starts_with("/docs") {
            let policy = plain.header("content-security-policy").unwrap_or_default();
            assert!(
                policy.contains("default-src 'self'") && policy.contains("frame-ancestors 'none'"),
                "{path}"
            );
        }
    }
}

#[actix_web::test]
async fn a_description_with_the_address_of_one_client_is_not_cached_for_others() {
    let bank = TestBank::new().await;
    let request =
        TestRequest::get().uri("/soap/UserAccountService?wsdl").insert_header(("host", "evil.example"));
    let answer = bank.call(request).await;
    assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")));
}

#[actix_web::test]
async fn every_answer_has_the_id_of_its_request() {
    let bank = TestBank::with_account().await;
    let id = async |request: TestRequest| {
        let answer = bank.call_as_shop(request).await;
        (answer.status, answer.header("x-request-id").expect("each answer has it").to_owned())
    };
    let mut made = std::collections::BTreeSet::new();
    for (path, status) in
        [(ACCOUNT, 200), ("/nowhere", 404), ("/livez", 200), ("/soap", 404), ("/v1/users/1/accounts", 400)]
    {
        let (answered, new) = id(TestRequest::get().uri(path)).await;
        assert_eq!(answered, status, "{path}");
        assert!(made.insert(new.clone()), "{path}: {new} was used before");
        let request = TestRequest::get().uri(path).insert_header(("x-request-id", "client-7"));
        assert_eq!(id(request).await, (status, "client-7".to_owned()), "{path}");
        // A SOAP fault has no such member.
        if status >= 400 && path != "/soap" {
            let answer = bank.call_as_shop(TestRequest::get().uri(path)).await;
            assert_eq!(answer.body["request_id"].as_str(), answer.header("x-request-id"), "{answer:?}");
        }
    }
    // One that cannot stand in log lines is replaced.
    let (status, new) = id(TestRequest::get().uri(ACCOUNT).insert_header(("x-request-id", "a\tb"))).await;
    assert_eq!((status, new.len()), (200, 32));
    let act = TestRequest::patch().uri("/v1/admin/gate").insert_header(("x-request-id", "act-1"));
    assert_eq!(id(act).await.1, "act-1", "also in the answers of administrative acts");
}
