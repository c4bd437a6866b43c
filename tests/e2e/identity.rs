//! Banks whose storage account has no key: their processes authenticate with tokens of Microsoft Entra ID, and each may do only
//! what its roles include. And banks with a shared access signature.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::future::join;
use postonce_shared::testing::prelude::*;
use postonce_tests::azurite::KEY;
use postonce_tests::entra::{Entra, HEADER, Principal, Role};
use postonce_tests::load::Load;
use postonce_tests::prelude::*;
use postonce_tests::scenario::fresh_prefix;
use postonce_tests::shared_access::{ALL, LATER, connection_string, signature};
use reqwest::Method;
use tempfile::TempDir;

/// The first key of every bank.
const BANK_KEY: &str = "test-key-of-a-bank-without-keys";
/// The roles of web processes, as the documentation says.
const WEB: &[Role] = Principal::Web.roles();
/// The roles of worker processes, as the documentation says.
const WORKER: &[Role] = Principal::Worker.roles();

fn settings() -> Settings {
    Settings::default()
        .with("POSTONCE_BIND", "127.0.0.1:0")
        .with("POSTONCE_WORKER_BIND", "127.0.0.1:0")
        .with("POSTONCE_BOOTSTRAP_KEY", BANK_KEY)
        // Tokens must not be in a log of any level.
        .with("POSTONCE_LOG", "trace")
}

/// A web and a worker process, each with its settings.
struct Bank {
    web: Service,
    worker: Service,
    client: Client,
    _directory: TempDir,
}

impl Bank {
    /// Starts the worker first, because it creates the queues.
    async fn start(web: &Settings, worker: &Settings) -> Self {
        let directory = TempDir::with_prefix("postonce-identity-").expect("a directory");
        let worker = Service::start(Binary::Worker, worker, &[], directory.path());
        ProcessProbe::of(worker.address()).until_ready().await;
        let web = Service::start(Binary::Web, web, &["--no-worker"], directory.path());
        let client = Client::new(web.address(), BANK_KEY);
        client.until_ready().await;
        Self { web, worker, client, _directory: directory }
    }

    /// Posts a deposit at once, and one through the queue.
    async fn post(&self) {
        let account = fresh_account();
        self.client.open(account).await;
        let (immediate, queued) = (fresh_id(), fresh_id());
        let deposit = Submission::deposit("1.00");
        let answer = self.client.submit_and_wait(account, immediate, &deposit).await.expect(200);
        assert_eq!(answer.transaction_status(), "posted");
        drop(self.client.submit_until_accepted(account, queued, &deposit).await);
        self.client.until_final(account, queued).await;
        assert_eq!(self.client.balance(account).await, "2.00");
    }

    /// Posts a batch with one deposit.
    async fn post_batch(&self) {
        let (account, id) = (fresh_account(), fresh_id());
        self.client.open(account).await;
        let (user, number, message) = (account.user, account.account, fresh_id());
        let csv = format!(
            "user_id,account_id,message_id,type,amount,currency\n{user},{number},{message},deposit,5.00,EUR\n"
        );
        let request =
            self.client.request(Method::POST, "/v1/batches").header("Idempotency-Key", id.to_string());
        drop(self.client.send(request.header("Content-Type", "text/csv").body(csv)).await.expect(202));
        wait::until("the batch is posted", wait::TIMEOUT, async || {
            let answer = self.client.get(&format!("/v1/batches/{id}")).await.expect(200);
            if answer.text_at("/phase") == "completed" { Ok(()) } else { Err(format!("{answer:?}")) }
        })
        .await;
        assert_eq!(self.client.balance(account).await, "5.00");
    }

    fn log(&self) -> Vec<String> {
        self.web.log().lines().into_iter().chain(self.worker.log().lines()).collect()
    }

    /// Checks that no line of a log contains a token: each begins with the same characters, `{"alg":` in base64.
    fn logs_no_token(&self) {
        let lines = self.log();
        let found: Vec<&String> = lines.iter().filter(|line| line.contains("eyJhbGci")).collect();
        assert!(found.is_empty(), "{found:#?}");
        assert!(!lines.iter().any(|line| line.contains(HEADER)), "{lines:#?}");
        assert!(
            lines.iter().any(|line| line.contains("A token for Azure Storage was obtained")),
            "{lines:#?}"
        );
    }
}

#[tokio::test]
async fn managed_identities_with_the_documented_roles_are_enough() {
    let entra = Entra::start(WEB, WORKER);
    let web = entra.on_machine(settings(), Principal::Web);
    let worker = entra.in_container_app(settings(), Principal::Worker);
    let bank = Bank::start(&web, &worker).await;
    bank.post().await;
    bank.post_batch().await;
    bank.logs_no_token();
    assert!(!bank.log().iter().any(|line| line.contains(" ERROR ")), "{:#?}", bank.log());
    assert_eq!(entra.refused(), Vec::<String>::new());
    assert_eq!(entra.issued(), 2, "one token for each process");
}

#[tokio::test]
async fn a_workload_identity_reads_the_token_of_its_pod_again_for_each_token() {
    let entra = Entra::start(WEB, WORKER);
    entra.set_lifetime(Duration::from_secs(6));
    let settings = |principal| entra.in_pod(settings(), principal);
    let bank = Bank::start(&settings(Principal::Web), &settings(Principal::Worker)).await;
    entra.replace_pod_token("another token of the pod");
    // A token of Entra ID that was exchanged for the first one is used until it expires.
    let before = entra.issued();
    wait::until("each process has a token for the new one", wait::TIMEOUT, async || {
        bank.post().await;
        let since = entra.issued().saturating_sub(before);
        if since >= 6 { Ok(()) } else { Err(format!("{since} tokens")) }
    })
    .await;
    bank.logs_no_token();
    assert_eq!(entra.refused(), Vec::<String>::new());
}

#[tokio::test]
async fn a_process_starts_while_no_token_is_issued_and_says_why_it_is_not_ready() {
    let entra = Entra::start(WEB, WORKER);
    entra.set_failing(true);
    let directory = TempDir::with_prefix("postonce-identity-").expect("a directory");
    let web = entra.on_machine(settings(), Principal::Web);
    let web = Service::start(Binary::Web, &web, &["--with-worker"], directory.path());
    let client = Client::new(web.address(), BANK_KEY);
    web.until_logged("there is no token: the endpoint of the managed identity http://127.0.0.1:").await;
    assert_eq!(client.ready().await.status, 503);
    entra.assign(Principal::Web, WORKER);
    entra.set_failing(false);
    client.until_ready().await;
}

#[tokio::test]
async fn while_no_token_is_issued_the_present_one_is_used() {
    let entra = Entra::start(WEB, WORKER);
    let web = entra.on_machine(settings(), Principal::Web);
    let worker = entra.on_machine(settings(), Principal::Worker);
    let bank = Bank::start(&web, &worker).await;
    entra.set_failing(true);
    bank.post().await;
    assert_eq!(entra.issued(), 2);
}

#[tokio::test]
async fn a_developer_uses_the_azure_cli() {
    let entra = Entra::start(WEB, WORKER);
    let directory = TempDir::with_prefix("postonce-cli-").expect("a directory");
    let program = directory.path().join("az");
    let token = entra.token_of(Principal::Worker);
    let expires_on = i64::MAX.div_euclid(1 << 32);
    let answer = format!(
        r#"{{"accessToken":"{token}","expiresOn":"2099-01-01 00:00:00.000000","expires_on":{expires_on},"subscription":"s","tenant":"t","tokenType":"Bearer"}}"#
    );
    let script = format!(
        "#!/bin/sh\ntest \"$*\" = 'account get-access-token --output json --scope https://storage.azure.com/.default' && echo '{answer}'\n"
    );
    fs::write(&program, script).expect("a file can be written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a file can be made executable");
    let path = std::env::var("PATH").expect("a path");
    let with_cli = |settings: Settings| {
        entra.with_cli(settings).with("PATH", format!("{}:{path}", directory.path().display()))
    };
    let bank = Bank::start(&with_cli(settings()), &with_cli(settings())).await;
    bank.post().await;
    bank.logs_no_token();
}

#[tokio::test]
async fn a_shared_access_signature_is_enough() {
    let proxies = StorageProxies::before(Azurite::shared().ports(), Likeness::Rules);
    // The rules of Azure demand https for a signature, unless it allows http as well.
    let signature = signature(ALL, LATER);
    let storage = format!("azure:{}", connection_string(proxies.ports(), &signature));
    let settings = settings()
        .with("POSTONCE_STORAGE", storage)
        .with("POSTONCE_AZURE_IDENTITY", "sas")
        .with("POSTONCE_NAME_PREFIX", fresh_prefix());
    let bank = Bank::start(&settings, &settings).await;
    bank.post().await;
    let secret = signature.rsplit("sig=").next().expect("a signature");
    let lines = bank.log();
    let found: Vec<&String> = lines.iter().filter(|line| line.contains(secret)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[tokio::test]
async fn a_missing_right_is_named_and_its_assignment_needs_no_restart() {
    let entra = Entra::start(&[Role::TableReader, Role::QueueReader], &[Role::TableContributor]);
    let directory = TempDir::with_prefix("postonce-identity-").expect("a directory");
    let web = entra.on_machine(settings(), Principal::Web);
    let web = Service::start(Binary::Web, &web, &["--no-worker"], directory.path());
    let worker = entra.on_machine(settings(), Principal::Worker);
    let worker = Service::start(Binary::Worker, &worker, &[], directory.path());
    web.until_logged(
        "tableServices/tables/entities/write, which the role Storage Table Data Contributor includes",
    )
    .await;
    worker.until_logged("queueServices/queues/").await;
    let client = Client::new(web.address(), BANK_KEY);
    assert_eq!(client.ready().await.status, 503);
    entra.assign(Principal::Web, WEB);
    entra.assign(Principal::Worker, WORKER);
    client.until_ready().await;
    ProcessProbe::of(worker.address()).until_ready().await;
}

#[tokio::test]
async fn secrets_are_read_from_files_again_when_they_change() {
    let ports = Azurite::shared().ports();
    let directory = TempDir::with_prefix("postonce-secrets-").expect("a directory");
    let write = |name: &str, secret: &str| {
        let path = directory.path().join(name);
        fs::write(&path, format!("{secret}\n")).expect("a file can be written");
        path.to_string_lossy().into_owned()
    };
    let storage = |signature: &str| format!("azure:{}", connection_string(ports, signature));
    let soon = SystemWorld::new().now().after(Duration::from_secs(40)).to_string();
    let first = signature(ALL, &soon);
    let settings = settings()
        .without("POSTONCE_BOOTSTRAP_KEY")
        .with("POSTONCE_BOOTSTRAP_KEY_FILE", write("key", BANK_KEY))
        .with("POSTONCE_RING_SECRET_FILE", write("ring", "the-first-secret-of-all"))
        .with("POSTONCE_STORAGE_FILE", write("storage", &storage(&first)))
        .with("POSTONCE_AZURE_IDENTITY", "sas")
        .with("POSTONCE_NAME_PREFIX", fresh_prefix());
    let bank = Bank::start(&settings, &settings).await;
    bank.post().await;

    let changes = [
        ("ring", "the-first-secret-of-all,another-secret-of-all"),
        ("ring", "another-secret-of-all,the-first-secret-of-all"),
        ("storage", &storage(&signature(ALL, LATER))),
        ("ring", "another-secret-of-all"),
    ];
    for ((name, secret), expected) in changes.into_iter().zip(1..) {
        write(name, secret);
        for process in [&bank.web, &bank.worker] {
            wait::until("the file is read again", wait::TIMEOUT, async || {
                let count = count_lines(process, &["Read ", " again from "]);
                if count == expected { Ok(()) } else { Err(format!("{count} of {expected}")) }
            })
            .await;
        }
    }
    write("ring", "short");
    bank.worker.until_logged("The present ring-secret stays in use").await;
    // The first signature is refused from now on.
    let url = format!("http://127.0.0.1:{}/devstoreaccount1?comp=list&{first}", ports.queue);
    wait::until("the first signature expires", wait::TIMEOUT, async || {
        let status = reqwest::get(&url).await.map_err(|error| error.to_string())?.status().as_u16();
        if status == 403 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    bank.post().await;
    ProcessProbe::of(bank.worker.address()).until_ready().await;
    bank.client.until_ready().await;
}

#[tokio::test]
async fn the_key_of_the_storage_account_is_replaced_without_a_failed_request() {
    let [second, renewed] = [[2; 64], [3; 64]].map(|key| STANDARD.encode(key));
    let mut azurite = Azurite::private();
    azurite.restart_with_keys(&[KEY, &second]);
    let directory = TempDir::with_prefix("postonce-keys-").expect("a directory");
    let file = directory.path().join("storage");
    let ports = azurite.ports();
    let storage = |key: &str| format!("azure:{}", ports.connection_string().replace(KEY, key));
    let (first_storage, second_storage) = (storage(KEY), storage(&second));
    fs::write(&file, &first_storage).expect("a file can be written");
    let settings = settings().with("POSTONCE_STORAGE_FILE", file.to_string_lossy());
    let bank = Bank::start(&settings, &settings).await;

    let load = Load::begin(vec![bank.client.clone()]).await;
    let steps = async {
        load.until_more_is_accepted().await;
        fs::write(&file, &second_storage).expect("a file can be written");
        for process in [&bank.web, &bank.worker] {
            process.until_logged("Read storage again from").await;
        }
        load.until_more_is_accepted().await;
        load.end();
    };
    join(load.run(), steps).await;
    load.none_failed("while the key is replaced");

    // Azure renews a key without an interruption; Azurite has to be started again.
    azurite.restart_with_keys(&[&renewed, &second]);
    let show_gate = |storage: &str| {
        let settings = Settings::default().with("POSTONCE_STORAGE", storage);
        launch(Binary::Web, &settings, &["gate", "show"], directory.path()).run(wait::TIMEOUT)
    };
    let (status, printed) = show_gate(&first_storage);
    assert!(!status.success() && printed.join("").contains("403"), "{printed:#?}");
    assert!(show_gate(&storage(&renewed)).0.success());
    bank.client.until_ready().await;
    bank.post().await;
    load.until_each_is_posted_once().await;
}

/// The number of lines that contain all of these texts.
fn count_lines(process: &Service, texts: &[&str]) -> usize {
    let has_all = |line: &&String| texts.iter().all(|text| line.contains(text));
    process.log().lines().iter().filter(has_all).count()
}

#[test]
fn contradictions_between_the_identity_and_the_storage_are_errors_of_the_start() {
    let endpoints = "BlobEndpoint=https://b/;QueueEndpoint=https://q/;TableEndpoint=https://t/";
    let cases = [
        (format!("azure:{endpoints}"), "key", "it needs an AccountKey for azure-identity = key"),
        (format!("azure:{endpoints}"), "sas", "it needs a SharedAccessSignature"),
        ("azure:UseDevelopmentStorage=true".to_owned(), "managed", "must have no AccountKey"),
        (format!("azure:{}", endpoints.replace("https", "http")), "workload", "must have https endpoints"),
        ("sqlite:bank.db".to_owned(), "managed", "it needs a storage that begins with azure:"),
        (format!("azure:{endpoints}"), "kerberos", "must be one of key, sas, managed, workload, cli"),
        (format!("azure:{endpoints}"), "workload", "needs the variable AZURE_CLIENT_ID"),
    ];
    let directory = TempDir::with_prefix("postonce-identity-").expect("a directory");
    for (storage, identity, expected) in cases {
        let settings =
            settings().with("POSTONCE_STORAGE", &storage).with("POSTONCE_AZURE_IDENTITY", identity);
        let (status, lines) = launch(Binary::Web, &settings, &[], directory.path()).run(wait::TIMEOUT);
        let printed = lines.join("\n");
        assert!(!status.success() && printed.contains(expected), "{storage} {identity}: {printed}");
    }
}
