//! Hostile batch documents: each gets a clear answer, uses a bounded amount of memory, and posts nothing.

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use postonce_shared::testing::prelude::*;
use postonce_tests::prelude::*;
use postonce_tests::process_probe::memory_peak_kib;

use super::{Item, batch_request, completed, ndjson, results, text, xml};

/// Longest time for an answer on a busy machine.
const SOON: Duration = Duration::from_secs(60);
/// Longest time to check a document of a GiB on a busy machine, without optimizations.
const CHECKED: Duration = Duration::from_secs(300);
/// Largest memory that an upload needs, in KiB.
const GROWTH_KIB_MAX: u64 = 32 * 1024;

struct Target {
    bank: Scenario,
    client: Client,
    account: AccountKey,
    memory_before_kib: u64,
}

impl Target {
    async fn start() -> Self {
        Self::start_with(Plan::on(StoreKind::Sqlite)).await
    }

    async fn start_with(plan: Plan) -> Self {
        let plan = plan.with("POSTONCE_BODY_TIMEOUT_S", "2").with("POSTONCE_REQUESTS_PER_SECOND", "1000000");
        let bank = plan.with("POSTONCE_REQUESTS_BURST", "1000000").start().await;
        let (client, account) = (bank.client(0), fresh_account());
        client.open(account).await;
        let memory_before_kib = memory_peak_kib(bank.webs[0].pid());
        Self { bank, client, account, memory_before_kib }
    }

    async fn send(&self, encoding: &str, body: Vec<u8>) -> Answer {
        // A large document is a debt of its partner, also if it is refused.
        wait::until("the debt is paid", CHECKED, async || {
            let request = batch_request(&self.client, fresh_id(), "application/x-ndjson", body.clone());
            let answer =
                self.client.send(request.header("Content-Encoding", encoding).timeout(CHECKED)).await;
            if answer.status == 429 { Err(format!("{answer:?}")) } else { Ok(answer) }
        })
        .await
    }

    async fn refuses(&self, encoding: &str, body: Vec<u8>, (status, code): (u16, &str), detail: &str) {
        let answer = self.send(encoding, body).await.expect(status);
        assert_eq!(answer.code(), code, "{answer:?}");
        assert!(answer.text_at("/detail").contains(detail), "{answer:?}");
    }

    fn growth_kib(&self) -> u64 {
        memory_peak_kib(self.bank.webs[0].pid()).saturating_sub(self.memory_before_kib)
    }

    /// Nothing was posted, and little memory was used.
    async fn assert_unharmed(&self) {
        assert_eq!(self.client.balance(self.account).await, "0.00");
        let batches = self.client.get("/v1/batches").await.expect(200);
        assert_eq!(batches.body.pointer("/batches").and_then(|it| it.as_array()).map(Vec::len), Some(0));
        let growth = self.growth_kib();
        println!("{growth} KiB more than before");
        assert!(growth <= GROWTH_KIB_MAX, "{growth} KiB more than before");
    }

    fn document(&self, items: usize) -> String {
        let items: Vec<Item> = (0..items).map(|_| Item::new(self.account, "deposit", "1.00")).collect();
        ndjson(&items)
    }
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// Compresses one block many times.
fn bomb(block: &[u8], count: usize) -> (Vec<u8>, Vec<u8>) {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    let mut zstd = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("memory");
    for _ in 0..count {
        gzip.write_all(block).expect("memory");
        zstd.write_all(block).expect("memory");
    }
    (gzip.finish().expect("memory"), zstd.finish().expect("memory"))
}

#[tokio::test]
async fn a_line_without_an_end_is_refused() {
    let target = Target::start().await;
    let start = format!("{}{{\"user_id\":\"", target.document(10));
    let body = [start.as_bytes(), &vec![b'x'; 1 << 20]].concat();
    target.refuses("identity", body, (400, "body_invalid"), "65536 bytes").await;
    let cell = format!("user_id,reference\n1,\"{}", "x".repeat(1 << 20));
    let request = batch_request(&target.client, fresh_id(), "text/csv", cell);
    assert_eq!(target.client.send(request).await.expect(400).code(), "body_invalid");
    target.assert_unharmed().await;
}

#[tokio::test]
async fn hostile_xml_is_refused() {
    let target = Target::start().await;
    let start = "<BatchRequest xmlns=\"urn:postonce:xml:1\">";
    let items: Vec<Item> = (0..20_000).map(|_| Item::new(target.account, "deposit", "1.00")).collect();
    let good = xml(&items, true);
    let open = good.strip_suffix("</BatchRequest>\n").expect("its end");
    let long = "x".repeat(1 << 20);
    let entities: String = (0..40).map(|n| format!("<!ENTITY e{} \"&e{n};&e{n};\">", n + 1)).collect();
    let mut damaged = good.clone().into_bytes();
    let last = damaged.len() - 60;
    damaged[last] = 0xff;
    let check = async |body: Vec<u8>, detail: &str| {
        let request = batch_request(&target.client, fresh_id(), "application/xml", body);
        let answer = target.client.send(request).await.expect(400);
        assert_eq!(answer.code(), "body_invalid", "{answer:?}");
        assert!(answer.text_at("/detail").contains(detail), "{detail}: {answer:?}");
    };
    check(format!("<!DOCTYPE a [{entities}]>{start}&e40;").into_bytes(), "document type").await;
    check(
        format!("{open}&e40;</BatchRequest>").into_bytes(),
        "After 20000 items, the body refers to the undefined",
    )
    .await;
    check(format!("{open}{}", "<a>".repeat(100_000)).into_bytes(), "deeper than 32").await;
    check(format!("{open}{}", "<a/>".repeat(100_000)).into_bytes(), "ends before its last").await;
    check(format!("{open}<TransactionRequest><Reference>{long}").into_bytes(), "65536 bytes").await;
    check(format!("{open}<TransactionRequest a=\"{long}").into_bytes(), "65536 bytes").await;
    check(format!("{open}<!--{long}").into_bytes(), "65536 bytes").await;
    check(format!("{start}{}", " ".repeat(1 << 20)).into_bytes(), "65536 bytes").await;
    check(good.as_bytes()[..good.len() / 2].to_vec(), "After 9999 items, the body").await;
    check(format!("{good}{good}").into_bytes(), "After 20000 items, the body must end after").await;
    check(damaged, "After 19999 items, the body must be in UTF-8").await;
    let (bomb, _) = bomb(" ".repeat(1 << 20).as_bytes(), 2048);
    let request =
        batch_request(&target.client, fresh_id(), "application/xml", [gzip(open.as_bytes()), bomb].concat());
    let answer = target.client.send(request.header("Content-Encoding", "gzip")).await.expect(400);
    assert!(answer.text_at("/detail").contains("65536 bytes"), "{answer:?}");
    let none =
        batch_request(&target.client, fresh_id(), "application/xml", format!("{start}</BatchRequest>"));
    assert_eq!(target.client.send(none).await.expect(422).text_at("/violations/0/field"), "body");
    target.assert_unharmed().await;
}

#[tokio::test]
async fn bombs_are_not_expanded_into_memory() {
    let target = Target::start().await;
    // One endless line, endless empty lines, and items up to the largest size.
    let (gzip, zstd) = bomb(&vec![b'x'; 1 << 20], 2048);
    target.refuses("gzip", gzip, (400, "body_invalid"), "65536 bytes").await;
    target.refuses("zstd", zstd, (400, "body_invalid"), "65536 bytes").await;
    let (gzip, zstd) = bomb(&vec![b'\n'; 1 << 20], 2048);
    target.refuses("gzip", gzip, (400, "body_invalid"), "empty lines").await;
    target.refuses("zstd", zstd, (400, "body_invalid"), "empty lines").await;
    let items = format!("{{}}{}\n", " ".repeat(60_000)).repeat(17);
    let (gzip, zstd) = bomb(items.as_bytes(), 1100);
    target.refuses("gzip", gzip, (413, "body_too_large"), "1 GiB").await;
    target.refuses("zstd", zstd, (413, "body_too_large"), "1 GiB").await;
    target.assert_unharmed().await;
}

#[tokio::test]
async fn a_damaged_compression_is_refused() {
    let target = Target::start().await;
    let document = target.document(1000);
    let mut damaged = gzip(document.as_bytes());
    let end = damaged.len() - 5;
    target.refuses("gzip", damaged[..end].to_vec(), (400, "body_invalid"), "").await;
    damaged[end] ^= 1;
    target.refuses("gzip", damaged, (400, "body_invalid"), "").await;
    let zstd = zstd::bulk::compress(document.as_bytes(), 1).expect("memory");
    target.refuses("zstd", zstd[..zstd.len() / 2].to_vec(), (400, "body_invalid"), "").await;
    target.refuses("br", zstd, (415, "media_type_unsupported"), "gzip, zstd").await;
    target.assert_unharmed().await;
}

#[tokio::test]
async fn broken_text_late_in_a_document_is_one_invalid_item() {
    let target = Target::start().await;
    let mut body = target.document(20_000).into_bytes();
    let last = body.len() - 20;
    body[last] = 0xff;
    let answer = target.send("identity", body).await.expect(422);
    assert_eq!(answer.text_at("/violations/0/field"), "line 20000", "{answer:?}");
    target.assert_unharmed().await;
}

#[tokio::test]
async fn too_many_items_and_none_are_refused() {
    let target =
        Target::start_with(Plan::on(StoreKind::Sqlite).with("POSTONCE_BATCH_ITEMS_MAX", "20000")).await;
    let answer = target.send("identity", b"\n\n \n".to_vec()).await.expect(422);
    assert_eq!(answer.text_at("/violations/0/message"), "must contain at least one item");
    let (gzip, _) = bomb(b"{}\n".repeat(1000).as_slice(), 21);
    target.refuses("gzip", gzip, (413, "body_too_large"), "at most 20000 items").await;
    target.assert_unharmed().await;
}

#[tokio::test]
async fn hostile_control_totals_are_refused() {
    let target = Target::start().await;
    let refuses = async |encoding: &str, body: Vec<u8>, field: &str, message: &str| {
        let answer = target.send(encoding, body).await.expect(422);
        assert_eq!(answer.text_at("/violations/0/field"), field, "{answer:?}");
        assert!(answer.text_at("/violations/0/message").contains(message), "{answer:?}");
    };
    let record = "{\"control\":{\"count\":1}}\n";
    let (many, _) = bomb(record.repeat(40_000).as_bytes(), 1000);
    refuses("gzip", many, "control", "more than one record").await;
    let last = format!("{}{record}", target.document(20_000));
    refuses("identity", last.into_bytes(), "control", "not after 20000 items").await;
    // The second number is larger than any that JSON parsers can read.
    for (digits, field, message) in
        [(300, "control.count", "whole number"), (60_000, "line 1", "not valid JSON")]
    {
        let count = "9".repeat(digits);
        let huge = format!("{{\"control\":{{\"count\":{count}}}}}\n{}", target.document(1));
        refuses("identity", huge.into_bytes(), field, message).await;
    }
    let codes: String = (0..4000).map(|number| format!("\"{number}\":\"1\",")).collect();
    let sums = format!("{{\"control\":{{\"sums\":{{{codes}\"EUR\":\"1\"}}}}}}\n{}", target.document(1));
    refuses("identity", sums.into_bytes(), "control.sums", "is not a currency code").await;
    let endless = format!("{{\"control\":{{\"sums\":{{\"EUR\":\"{}", "1".repeat(1 << 20));
    target.refuses("identity", endless.into_bytes(), (400, "body_invalid"), "65536 bytes").await;
    target.assert_unharmed().await;
}

#[tokio::test]
async fn one_id_many_times_is_posted_once() {
    let target = Target::start().await;
    let line = target.document(1);
    let id = fresh_id();
    let request = batch_request(&target.client, id, "application/x-ndjson", line.repeat(30_000));
    drop(target.client.send(request).await.expect(202));
    let batch = completed(&target.client, id).await;
    assert_eq!((batch.number_at("/posted"), batch.number_at("/replayed")), (1, 29_999));
    assert_eq!(target.client.balance(target.account).await, "1.00");
    assert!(results(&target.client, id).await.iter().skip(1).all(|it| text(it, "status") == "replayed"));
}

#[tokio::test]
async fn a_broken_connection_and_a_slow_one_leave_nothing() {
    let target = Target::start().await;
    let document = target.document(40_000);
    let head = |length: usize| {
        format!(
            "POST /v1/batches HTTP/1.1\r\nHost: bank\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {}\r\n\
             Content-Type: application/x-ndjson\r\nContent-Length: {length}\r\n\r\n",
            target.bank.key(),
            fresh_id(),
        )
    };
    let address = target.bank.webs[0].address();
    let mut broken = RawConnection::open(address).await;
    assert!(broken.send(head(document.len())).await);
    assert!(broken.send(&document[..document.len() / 2]).await);
    drop(broken);
    let mut slow = RawConnection::open(address).await;
    assert!(slow.send(head(document.len())).await);
    assert!(slow.send(&document[..1000]).await);
    let answer = slow.answer(SOON).await.expect("an answer");
    assert_eq!((answer.status, answer.code()), (408, "request_timeout"));
    target.assert_unharmed().await;
}
