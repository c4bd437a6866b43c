//! Signed requests against the real processes: a request that was changed in transit is refused, a repeated request
//! moves money once, and a repeated change is refused.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;
use postonce_tests::signer::{Signer, UnsignedRequest};
use reqwest::Method;

on_both_stores![
    a_signed_change_is_accepted_once_by_all_processes;
    on_sqlite:
    a_signed_request_cannot_be_changed_in_transit,
];

const BODY: &str = r#"{"amount":"5.00","currency":"EUR"}"#;
const SCOPES: [&str; 5] = ["read", "accounts", "credit", "deposit", "withdraw"];

/// A deposit to send, with signed headers.
struct Sent<'a> {
    client: &'a Client,
    path: String,
    id: String,
    body: String,
    headers: Vec<(&'static str, String)>,
}

impl Sent<'_> {
    async fn answer(&self) -> Answer {
        let request = self.client.request(Method::POST, &self.path);
        let request = request.header("Idempotency-Key", &self.id).header("Content-Type", "application/json");
        let request =
            self.headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
        self.client.send(request.body(self.body.clone())).await
    }

    async fn refused(&self, code: &str) {
        let answer = self.answer().await;
        assert!([400, 401].contains(&answer.status) && answer.code() == code, "not {code}: {answer:?}");
    }
}

/// A deposit with a valid signature.
fn signed<'a>(bank: &Scenario, client: &'a Client, account: AccountKey, signer: &Signer) -> Sent<'a> {
    let (path, id) = (format!("{}/deposits", path_of(account)), format!("\"{}\"", fresh_id()));
    let address = bank.webs.first().expect("a web process").address();
    let draft = UnsignedRequest { method: "POST", address, path: &path, id: &id, body: BODY };
    let headers = signer.headers(draft, SystemWorld::new().now());
    Sent { client, path, id, body: BODY.to_owned(), headers }
}

/// Requires signatures of a partner by a change of the store; the processes have nothing in their caches
/// yet.
async fn require_signatures(bank: &Scenario, partner: &str, keys: Vec<SignatureKey>) {
    let id = PartnerId::parse(partner).expect("a name");
    let partners = PartnerRecords::new(&bank.store().await);
    let found = partners.find(&id).await.expect("the store answers");
    let Versioned { value, revision } = found.expect("the partner has a record");
    let changed = Partner { signature_required: true, signature_keys: keys, ..value };
    let saved = partners.save(&changed, Some(&revision)).await.expect("the store answers");
    assert!(matches!(saved, Swapped::Done(_)), "the record changed concurrently");
}

async fn a_signed_request_cannot_be_changed_in_transit(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).with("POSTONCE_SIGNATURE_AGE_MAX_S", "60").start().await;
    let account = fresh_account();
    bank.client(0).open(account).await;
    let secret = [7; 32];
    let signers = [Signer::hmac("shop-hmac", &secret), Signer::ed25519("shop-ed25519", secret)];
    let other = Signer::hmac("other-hmac", &[8; 32]);
    let shop = bank.client(0).with_key(&bank.add_partner("shop", &SCOPES));
    let other_key = bank.add_partner("other", &SCOPES);
    require_signatures(&bank, "shop", signers.iter().map(Signer::known_as).collect()).await;
    require_signatures(&bank, "other", vec![other.known_as()]).await;

    for signer in &signers {
        let sent = signed(&bank, &shop, account, signer);
        drop(sent.answer().await.expect(202));
        // A repetition within the lifetime of the signature is accepted as a replay.
        assert_eq!(sent.answer().await.header("Idempotent-Replayed"), "true");

        let fresh = || signed(&bank, &shop, account, signer);
        let amount = Sent { body: BODY.replace('5', "9"), ..fresh() };
        amount.refused("content_digest_mismatch").await;
        Sent { path: fresh().path.replace("/deposits", "/withdrawals"), ..fresh() }
            .refused("signature_invalid")
            .await;
        Sent { id: format!("\"{}\"", fresh_id()), ..fresh() }.refused("signature_invalid").await;
        let mut unsigned = fresh();
        unsigned.headers.clear();
        unsigned.refused("signature_missing").await;
        for left_out in ["@method", "@target-uri", "content-digest", "idempotency-key"] {
            let mut careless = signer.clone();
            careless.components.retain(|name| *name != left_out);
            signed(&bank, &shop, account, &careless).refused("signature_incomplete").await;
        }
        let mut old = signer.clone();
        old.age = Duration::from_secs(90);
        signed(&bank, &shop, account, &old).refused("signature_expired").await;
    }
    // A valid key is accepted only for its own partner.
    signed(&bank, &shop, account, &other).refused("signature_invalid").await;
    let thief = bank.client(0).with_key(&other_key);
    signed(&bank, &thief, account, &signers[0]).refused("signature_invalid").await;

    bank.client(0).until_drained(postonce_tests::wait::TIMEOUT).await;
    assert_eq!(bank.client(0).balance(account).await, "10.00", "one deposit of each signer");
    // Each refusal is in the audit trail, with the partner and without the signature.
    let web = bank.webs.first().expect("a web process");
    let refusals = web.log().lines().into_iter().filter(|line| line.contains("signature_expired")).count();
    assert_eq!(refusals, signers.len(), "{}", web.log().lines().join("\n"));
}

/// A partner signs with a new key before the bank forgets the old one.
#[tokio::test]
async fn a_signature_key_is_replaced_while_it_is_used() {
    let bank = Plan::on(StoreKind::Sqlite).start().await;
    let account = fresh_account();
    bank.client(0).open(account).await;
    let shop = bank.client(0).with_key(&bank.add_partner("shop", &SCOPES));
    let add = |name: &str, secret: [u8; 32]| {
        let file = bank.directory().join(name);
        std::fs::write(&file, STANDARD.encode(secret)).expect("a file can be written");
        let file = file.to_str().expect("a plain path");
        let add = ["partners", "signature-keys", "add", "shop", name, "--algorithm", "hmac-sha256"];
        drop(bank.operate(&[&add[..], &["--file", file]].concat()));
        Signer::hmac(name, &secret)
    };
    let old = add("2025", [7; 32]);
    drop(bank.operate(&["partners", "change", "shop", "--require-signature", "true"]));
    drop(signed(&bank, &shop, account, &old).answer().await.expect(202));
    let new = add("2026", [8; 32]);
    for both in [&old, &new] {
        drop(signed(&bank, &shop, account, both).answer().await.expect(202));
    }
    drop(bank.operate(&["partners", "signature-keys", "remove", "shop", "2025"]));
    signed(&bank, &shop, account, &old).refused("signature_invalid").await;
    drop(signed(&bank, &shop, account, &new).answer().await.expect(202));
}

/// A captured change is sent to two processes at the same time: one of them accepts it.
async fn a_signed_change_is_accepted_once_by_all_processes(store_kind: StoreKind) {
    const ROUNDS: u32 = 10;
    const COPIES: usize = 4;
    let bank = Plan::on(store_kind).processes(2, 1).start().await;
    let account = fresh_account();
    bank.client(0).open(account).await;
    let mut signer = Signer::ed25519("shop-ed25519", [7; 32]);
    signer.components.retain(|name| *name != "idempotency-key");
    let key = bank.add_partner("shop", &SCOPES);
    require_signatures(&bank, "shop", vec![signer.known_as()]).await;
    let path = path_of(account);
    // Both processes are the bank that the client signs for.
    let address = bank.webs.first().expect("a web process").address();
    let host = address.split_once("://").map_or(address, |(_, host)| host);
    let shops = [bank.client(0).with_key(&key), bank.client(1).with_key(&key)];
    for round in 1..=ROUNDS {
        let body = format!(r#"{{"overdraft_limit":"{round}.00"}}"#);
        let draft = UnsignedRequest { method: "PATCH", address, path: &path, id: "", body: &body };
        let headers = signer.headers(draft, SystemWorld::new().now());
        let send = async |shop: &Client| {
            let request = shop.request(Method::PATCH, &path).header("Host", host);
            let request = request.header("Content-Type", "application/json").body(body.clone());
            let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, value));
            shop.send(request).await
        };
        let copies = (0..COPIES).flat_map(|_| &shops).map(send);
        let answers = futures::future::join_all(copies).await;
        let (done, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
        assert_eq!(done.len(), 1, "round {round}: {done:#?} {refused:#?}");
        for answer in refused {
            assert_eq!((answer.status, answer.code()), (401, "signature_used"), "{answer:?}");
        }
    }
}
