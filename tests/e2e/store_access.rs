//! External access to internals of a bank: other users of the machine cannot read the embedded store, and
//! the port of the API accepts no requests of the bank's own processes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use futures::future::join;
use postonce_shared::adapters::http::COMPLETIONS_PATH;
use postonce_shared::adapters::http::signature::{
    ADDRESSEE_HEADER, NONCE_HEADER, SIGNATURE_HEADER, Stamp, TIMESTAMP_HEADER,
};
use postonce_shared::cluster::completions::reply_body;
use postonce_shared::testing::prelude::*;
use postonce_tests::attack_findings::AttackFindings;
use postonce_tests::prelude::*;
use tempfile::TempDir;

on_both_stores![the_port_of_the_api_accepts_no_completions];

/// Mode bits without the type of the file.
const PERMISSIONS: u32 = 0o7777;

#[test]
fn only_the_owner_can_read_the_embedded_store() {
    let mut findings = Vec::new();
    for umask in ["022", "000"] {
        let directory = TempDir::with_prefix("postonce-test-").expect("a directory for a test");
        let folder = directory.path().join("data");
        let _service = start(umask, directory.path(), &folder.join("postonce.db"));
        let names = ["", "postonce.db", "postonce.db-wal", "postonce.db-shm", "postonce.db.lock"];
        for name in names {
            let expected = if name.is_empty() { 0o700 } else { 0o600 };
            let path = if name.is_empty() { folder.clone() } else { folder.join(name) };
            let found = fs::metadata(&path).map(|it| it.permissions().mode() & PERMISSIONS);
            let found = found.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            if found != expected {
                findings.push(format!("umask {umask}: data/{name} has {found:o}, expected {expected:o}"));
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// Starts a web process that hosts a worker under this umask, on a store that does not exist yet.
fn start(umask: &str, directory: &Path, store: &Path) -> Process {
    let settings = Settings::default()
        .with("POSTONCE_STORAGE", format!("sqlite:{}", store.display()))
        .with("POSTONCE_BIND", "127.0.0.1:0")
        .with("POSTONCE_BOOTSTRAP_KEY", "a-key-that-opens-this-test-only-0123456789");
    let mut launch = launch(Binary::Web, &settings, &["--with-worker"], directory);
    let script = format!("umask {umask} && exec \"$0\" \"$@\"");
    let program = std::mem::replace(&mut launch.program, "sh".into()).into_os_string();
    launch.arguments.splice(0..0, ["-c".into(), script.into(), program]);
    let mut process = Process::start(&launch);
    process.wait_for_line("listening on http…", wait::TIMEOUT, |line| {
        line.contains("listening on http").then_some(())
    });
    process
}

/// Completions are refused even if they are signed with the secret of the processes.
async fn the_port_of_the_api_accepts_no_completions(store_kind: StoreKind) {
    const SECRET: &str = "a-secret-of-the-processes-0123456789";
    let bank = Plan::on(store_kind)
        .processes(1, 0)
        .through_the_queue()
        .with("POSTONCE_RING_SECRET", SECRET)
        .start()
        .await;
    let client = bank.client(0);
    let (account, id) = (fresh_account(), fresh_id());
    client.open(account).await;
    let partner = PartnerId::parse("bootstrap").expect("a sound name");
    let world = SystemWorld::new();
    let outcome = Outcome::Posted {
        order_number: OrderNumber::from_counter(7),
        sequence: 1,
        balance_after: Balance::try_new(500_000_000, Currency::parse("EUR").expect("a currency"))
            .expect("a balance"),
        posted_at: world.now(),
    };
    let key = TransactionKey { account, partner, message: id };
    let body = reply_body::encode(&[Completion { key, outcome }]);
    let keys = DoorbellKeys::parse(SECRET).expect("a sound secret");
    let forge = async || {
        let addressee = Address::parse(&bank.webs[0].internal_address()).expect("an address");
        let stamp = Stamp::new(world.uuid(), world.now(), &addressee);
        let signature = stamp.on("POST", COMPLETIONS_PATH, &body).sign(&keys);
        let request = reqwest::Client::new()
            .post(format!("{}{COMPLETIONS_PATH}", bank.webs[0].address()))
            .header(TIMESTAMP_HEADER, stamp.timestamp)
            .header(NONCE_HEADER, stamp.nonce)
            .header(ADDRESSEE_HEADER, stamp.addressee)
            .header(SIGNATURE_HEADER, signature)
            .body(body.clone());
        request.send().await.expect("the process answers").status().as_u16()
    };
    let waiting = client.submission(account, id, &Submission::deposit("10.00")).header("Prefer", "wait=5");
    let (answer, forged) = join(client.send(waiting), async {
        // The request registers its wait before the transaction is accepted.
        wait::until("the deposit is accepted", wait::TIMEOUT, async || {
            match client.transaction(account, id).await.status {
                200 => Ok(()),
                other => Err(other.to_string()),
            }
        })
        .await;
        forge().await
    })
    .await;
    let mut findings = AttackFindings::default();
    let unsigned = reqwest::Client::new().post(format!("{}{COMPLETIONS_PATH}", bank.webs[0].address()));
    let unsigned = unsigned.timeout(Duration::from_secs(20)).send().await.expect("the process answers");
    findings.compare("status of a signed completion", &forged, &404);
    findings.compare("status of an unsigned one", &unsigned.status().as_u16(), &404);
    let answered = (answer.status, answer.transaction_status().to_owned(), answer.text_at("/balance_after"));
    findings.compare("answer to the waiting client", &answered, &(202, "accepted".to_owned(), ""));
    findings.conclude(&bank).await;
}
