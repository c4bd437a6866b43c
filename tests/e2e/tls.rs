//! TLS of the web process: partners use it, the processes of the bank still reach each other, certificates
//! are renewed without a restart, and plain connections are closed soon.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use postonce_process::http::start;
use postonce_shared::config::{HttpLimits, TlsConfig};
use postonce_shared::testing::prelude::*;
use postonce_tests::certificates::{Authority, TlsFiles};
use postonce_tests::prelude::*;
use postonce_web::edge::tls::Tls;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned};
use tempfile::TempDir;

on_both_stores![deposits_work_over_tls_and_the_processes_still_reach_each_other];

/// Longest time on a busy machine for a step without a reason to wait.
const SOON: Duration = Duration::from_secs(20);

/// An authority, and the files of a bank with a certificate of it.
pub struct Certificates {
    pub authority: Authority,
    pub files: TlsFiles,
    _directory: TempDir,
}

impl Certificates {
    /// A certificate of a new authority.
    pub fn new() -> Self {
        let directory = TempDir::with_prefix("postonce-tls-").expect("a directory");
        let (authority, files) = (Authority::named("test authority"), TlsFiles::within(directory.path()));
        files.write(&authority.certify("bank"));
        Self { authority, files, _directory: directory }
    }

    fn plan(&self) -> Plan {
        self.files.serve(Plan::on(StoreKind::Sqlite), &self.authority)
    }
}

fn address_of(bank: &Scenario) -> String {
    bank.webs.first().expect("a web process").address().to_owned()
}

/// The same address without the scheme.
fn socket_of(bank: &Scenario) -> String {
    address_of(bank).trim_start_matches("https://").to_owned()
}

async fn deposits_work_over_tls_and_the_processes_still_reach_each_other(store_kind: StoreKind) {
    let certificates = Certificates::new();
    let plan = Plan::on(store_kind).processes(1, 1);
    let bank = certificates.files.serve(plan, &certificates.authority).start().await;
    bank.until_workers_ready().await;
    assert!(address_of(&bank).starts_with("https://"));
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    // The worker polls once a minute unless it is rung, and only its reply ends the wait early.
    let started = Stopwatch::start();
    let answer = client.submit_and_wait(account, fresh_id(), &Submission::deposit("12.50")).await.expect(200);
    assert_eq!(answer.transaction_status(), "posted");
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
    assert_eq!(client.balance(account).await, "12.50");

    // Partners and processes use separate ports.
    assert_eq!(client.get("/internal/status").await.status, 404);
    let web = bank.webs.first().expect("a web process");
    let peers = web.internal_address();
    assert_ne!(peers, web.address());
    // Not with the client of the API, since this port is not in the OpenAPI document.
    let http = reqwest::Client::new();
    for (path, status) in
        [("/livez", 404), ("/metrics", 404), (&path_of(account), 404), ("/internal/status", 401)]
    {
        let answer = http
            .get(format!("{peers}{path}"))
            .bearer_auth(bank.key())
            .send()
            .await
            .expect("the process answers");
        assert_eq!(answer.status().as_u16(), status, "{path}");
    }
}

#[tokio::test]
async fn a_connection_without_tls_is_closed_soon() {
    let certificates = Certificates::new();
    let bank = certificates.plan().start().await;
    let mut plain = RawConnection::open(&socket_of(&bank)).await;
    let started = Stopwatch::start();
    assert!(plain.send("GET /livez HTTP/1.1\r\nHost: bank\r\n\r\n").await);
    assert_eq!(plain.answer(SOON).await, None, "nothing is sent without TLS");
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    // A client that trusts another authority does not connect.
    let outsider = Client::trusting(&address_of(&bank), bank.key(), Authority::named("other").pem(), None);
    assert!(outsider.try_send(outsider.request(reqwest::Method::GET, "/livez")).await.is_err());
    bank.client(0).until_ready().await;
}

#[tokio::test]
async fn slow_handshakes_time_out_and_delay_no_other_request() {
    let certificates = Certificates::new();
    let bank = certificates.plan().start().await;
    let mut slow = Vec::new();
    for _ in 0..600 {
        let mut connection = RawConnection::open(&socket_of(&bank)).await;
        // The start of a record, and nothing more.
        assert!(connection.send([22, 3, 1]).await);
        slow.push(connection);
    }
    let started = Stopwatch::start();
    let regular = bank.client(0).on_own_connections();
    drop(regular.get("/livez").await.expect(200));
    assert!(started.elapsed() < Duration::from_secs(4), "a regular client waited {:?}", started.elapsed());
    let ended = join_all(slow.iter_mut().map(async |connection| connection.answer(SOON).await)).await;
    assert!(ended.iter().all(Option::is_none));
    assert!(started.elapsed() < SOON, "a handshake has no timeout: {:?}", started.elapsed());
}

#[tokio::test]
async fn certificates_of_clients_are_optional_or_required() {
    let certificates = Certificates::new();
    let (partners, others) = (Authority::named("partners"), Authority::named("others"));
    fs::write(&certificates.files.authorities, partners.pem()).expect("a file can be written");
    let plan = || {
        let authorities = certificates.files.authorities.to_string_lossy().into_owned();
        certificates.plan().with("POSTONCE_TLS_CLIENT_CA", &authorities)
    };
    let (known, unknown) = (partners.certify("shop"), others.certify("shop"));
    let answers = async |bank: &Scenario, identity| {
        let trusted = certificates.authority.pem();
        let client = Client::trusting(&address_of(bank), bank.key(), trusted, identity);
        client.try_send(client.request(reqwest::Method::GET, "/livez")).await.is_ok()
    };
    let optional = plan().start().await;
    assert!(answers(&optional, None).await);
    assert!(answers(&optional, Some(&known)).await);
    assert!(!answers(&optional, Some(&unknown)).await, "a certificate that is sent must be valid");
    let required = plan().with("POSTONCE_TLS_CLIENT_CERTIFICATES", "required");
    let required = required.with("POSTONCE_ADMIN_BIND", "127.0.0.1:0").identified(&known).start().await;
    assert!(!answers(&required, None).await);
    assert!(answers(&required, Some(&known)).await);
    assert!(!answers(&required, Some(&unknown)).await);
    // Operators, and the health check of a container, have no certificates.
    let operators = required.webs[0].operators_address().expect("it has an address for operators");
    let client = Client::trusting(&operators, required.key(), certificates.authority.pem(), None);
    drop(client.get("/v1/admin/gate").await.expect(200));
    let address = operators.trim_start_matches("https://");
    let settings = required.settings.clone().with("POSTONCE_ADMIN_BIND", address);
    let health = service::launch(Binary::Web, &settings, &["health"], &required.directory());
    let (status, lines) = health.run(wait::TIMEOUT);
    assert!(status.success(), "{lines:?}");
}

#[tokio::test]
async fn a_renewed_certificate_is_used_and_an_invalid_one_is_not() {
    let certificates = Certificates::new();
    let bank = certificates.plan().start().await;
    let renewed = Authority::named("renewed");
    let until_trusted = async |authority: &Authority| {
        wait::until("the certificate of that authority is served", wait::TIMEOUT, async || {
            let client = Client::trusting(&address_of(&bank), bank.key(), authority.pem(), None);
            let answer = client.try_send(client.request(reqwest::Method::GET, "/livez")).await;
            answer.map(drop).map_err(|error| format!("{error:?}"))
        })
        .await;
    };
    until_trusted(&certificates.authority).await;
    fs::write(&certificates.files.key, "not a key").expect("a file can be written");
    let web = bank.webs.first().expect("a web process");
    let warned = wait::until("the invalid files are logged", wait::TIMEOUT, async || {
        let line = web.log().find(|line| line.contains("TLS keeps").then(|| line.to_owned()));
        line.ok_or_else(|| web.log().lines().join("\n"))
    })
    .await;
    assert!(warned.contains("tls-key") && warned.contains("no private key"), "{warned}");
    until_trusted(&certificates.authority).await;

    certificates.files.write(&renewed.certify("bank"));
    until_trusted(&renewed).await;
    let old = bank.client(0).on_own_connections();
    assert!(old.try_send(old.request(reqwest::Method::GET, "/livez")).await.is_err());
}

#[tokio::test]
async fn a_process_with_an_expired_certificate_is_not_ready_until_it_is_renewed() {
    let certificates = Certificates::new();
    let bank = certificates.plan().start().await;
    bank.client(0).until_ready().await;
    certificates.files.write(&certificates.authority.certify_expired("bank"));
    let careless = reqwest::Client::builder()
        .danger_accept_invalid_certs(true)
        .build()
        .expect("a client without checks");
    wait::until("it is not ready", wait::TIMEOUT, async || {
        let answer = careless.get(format!("{}/readyz", address_of(&bank))).send().await;
        let answer = answer.map_err(|error| format!("{error:?}"))?;
        let (status, text) = (answer.status().as_u16(), answer.text().await.unwrap_or_default());
        let is_told = status == 503 && text.contains(r#""missing":["certificate"]"#);
        if is_told { Ok(()) } else { Err(format!("{status} {text}")) }
    })
    .await;
    certificates.files.write(&certificates.authority.certify("bank"));
    wait::until("it is ready", wait::TIMEOUT, async || {
        let client = bank.client(0).on_own_connections();
        let answer = client.try_send(client.request(reqwest::Method::GET, "/readyz")).await;
        let answer = answer.map_err(|error| format!("{error:?}"))?;
        if answer.status == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;
}

#[test]
fn unusable_files_stop_the_start_with_setting_file_and_reason() {
    let certificates = Certificates::new();
    let TlsFiles { certificate, key, authorities } = &certificates.files;
    let directory = certificate.parent().expect("the file is in a directory");
    let [other, empty, absent] = ["other.pem", "empty.pem", "absent.pem"].map(|name| directory.join(name));
    fs::write(&other, certificates.authority.certify("other").key).expect("a file can be written");
    fs::write(&empty, "nothing here").expect("a file can be written");
    fs::write(authorities, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").expect("a file");
    let check = |settings: &[(&str, &str)], words: &[&str]| {
        let storage = format!("sqlite:{}", directory.join("postonce.db").display());
        let base = Settings::default().with("POSTONCE_STORAGE", storage).with("POSTONCE_BIND", "127.0.0.1:0");
        let settings = settings.iter().fold(base, |all, (name, value)| all.with(name, *value));
        let mut process = Process::start(&launch(Binary::Web, &settings, &[], directory));
        let status = process.wait(wait::TIMEOUT);
        process.wait_for_output();
        let said = process.log().lines().join("\n");
        assert!(!status.success() && words.iter().all(|word| said.contains(word)), "{words:?} in:\n{said}");
    };
    let [certificate, key, authorities, other, empty, absent] =
        [certificate, key, authorities, &other, &empty, &absent].map(|path| path.to_str().expect("a path"));
    let (with, of) = ("POSTONCE_TLS_CERTIFICATE", "POSTONCE_TLS_KEY");
    check(&[(with, certificate)], &["tls-certificate", certificate, "needs tls-key"]);
    check(&[(of, key)], &["tls-key", key, "needs tls-certificate"]);
    check(&[(with, absent), (of, key)], &["tls-certificate", absent, "cannot be read", "No such file"]);
    check(&[(with, empty), (of, key)], &["tls-certificate", empty, "no certificate in PEM form"]);
    check(&[(with, certificate), (of, empty)], &["tls-key", empty, "no private key in PEM form"]);
    check(&[(with, certificate), (of, other)], &["tls-key", other, "does not belong to", certificate]);
    let both = [(with, certificate), (of, key)];
    let clients = "POSTONCE_TLS_CLIENT_CA";
    check(&[both[0], both[1], (clients, authorities)], &["tls-client-ca", authorities, "cannot be used"]);
    check(&[(clients, authorities)], &["tls-client-ca", "needs TLS"]);
    let asked = "POSTONCE_TLS_CLIENT_CERTIFICATES";
    check(&[both[0], both[1], (asked, "required")], &["tls-client-certificates", "needs tls-client-ca"]);
    check(&[both[0], both[1], (asked, "perhaps")], &["tls-client-certificates", "optional or required"]);
}

#[tokio::test]
async fn half_a_head_times_out_and_http_2_is_offered() {
    let certificates = Certificates::new();
    let bank = certificates
        .plan()
        .with("POSTONCE_KEEP_ALIVE_S", "2")
        .with("POSTONCE_HEAD_TIMEOUT_S", "2")
        .start()
        .await;
    let (address, trusted) = (socket_of(&bank), certificates.authority.pem().to_owned());
    let talk = move || {
        let mut stream = connect(&address, &trusted, b"http/1.1");
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: bank\r\n\r\n").expect("it listens");
        let mut some = [0; 4096];
        let count = stream.read(&mut some).expect("it answers");
        assert!(some[..count].starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&some[..count]));
        stream.write_all(b"GET /li").expect("it listens");
        stream.sock.set_read_timeout(Some(SOON)).expect("a socket option");
        // The rest of the answer, possibly a 408, and then the end.
        let ended = std::iter::repeat_with(|| stream.read(&mut some)).find(|read| !matches!(read, Ok(1..)));
        let is_timeout = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
        assert!(
            !matches!(&ended, Some(Err(error)) if is_timeout(error)),
            "half a head has no timeout: {ended:?}"
        );
        let mut second = connect(&address, &trusted, b"h2");
        second.flush().expect("a handshake");
        assert_eq!(second.conn.alpn_protocol(), Some(b"h2".as_slice()));
    };
    tokio::task::spawn_blocking(talk).await.expect("the exchange succeeds");
}

/// The server library has one limit of unfinished handshakes per process, which only a server with TLS may set.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_does_not_limit_the_handshakes_of_another() {
    let certificates = Certificates::new();
    let TlsFiles { certificate, key, .. } = certificates.files.clone();
    let tls = Tls::open(&TlsConfig { certificate, key, clients: None }).expect("valid files");
    let tls = tls.for_partners().expect("a valid configuration");
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let serve = |connections_max: usize, tls: Option<ServerConfig>| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address").to_string();
        let limits = HttpLimits { connections_max, ..HttpLimits::default() };
        let server = start(actix_web::App::new, &world, &limits, 1, 1, listener, (tls, Arc::default()))
            .expect("it starts");
        (address, server)
    };
    let (address, with_tls) = serve(64, Some(tls));
    let (_, without_tls) = serve(1, None);
    let handles = [with_tls.handle(), without_tls.handle()];
    let connecting = async {
        // Connections that never begin their handshake. If one at a time were accepted, their timeouts would add up.
        let silent: Vec<TcpStream> =
            (0..32).map(|_| TcpStream::connect(&address).expect("it listens")).collect();
        let (address, trusted) = (address.clone(), certificates.authority.pem().to_owned());
        let handshake = tokio::task::spawn_blocking(move || drop(connect(&address, &trusted, b"http/1.1")));
        let done = tokio::time::timeout(SOON, handshake).await;
        drop(silent);
        join_all(handles.iter().map(|handle| handle.stop(false))).await;
        done.expect("the handshake waits for others").expect("a connection");
    };
    let (with_tls, without_tls, ()) = futures::join!(with_tls, without_tls, connecting);
    with_tls.and(without_tls).expect("both servers stop");
}

/// Whoever has all the connections that an address may have closes the oldest of them with the next one, and other addresses have
/// room, although no handshake is complete.
#[tokio::test]
async fn unfinished_handshakes_have_the_limit_of_an_address() {
    const OVER: usize = 8;
    let certificates = Certificates::new();
    let bank = certificates.plan().with("POSTONCE_CONNECTIONS_PER_ADDRESS_MAX", "24").start().await;
    let mut unfinished = Vec::new();
    let started = Stopwatch::start();
    for _ in 0..24 + OVER {
        let mut connection = RawConnection::open_from(Ipv4Addr::new(127, 0, 0, 9), &socket_of(&bank)).await;
        assert!(connection.send([22, 3, 1]).await);
        unfinished.push(connection);
    }
    let answers = unfinished.iter_mut().enumerate();
    let answers = answers.map(async |(place, connection)| (place, connection.answer(SOON).await));
    let mut answers: FuturesUnordered<_> = answers.collect();
    for _ in 0..OVER {
        let (place, answer) = answers.next().await.expect("a connection");
        // Two threads accept them, so their order is not exact.
        assert!(answer.is_none() && place < 2 * OVER, "connection {place} is not one of the oldest");
    }
    let elapsed = started.elapsed();
    assert!(elapsed < Duration::from_secs(4), "they were closed by the timeout of handshakes: {elapsed:?}");
    assert!(answers.next().now_or_never().is_none(), "the others are still open");
}

/// A TLS connection for bytes that are written directly.
fn connect(address: &str, trusted: &str, protocol: &[u8]) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(trusted.as_bytes()).expect("a certificate"))
        .expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = config.expect("known versions").with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.to_vec()];
    let name = "localhost".try_into().expect("a name");
    let client = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut stream = StreamOwned::new(client, TcpStream::connect(address).expect("it listens"));
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock).expect("a handshake");
    }
    stream
}
