//! Traces, as a collector of OpenTelemetry receives them from running processes.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;

use postonce_tests::certificates::{Authority, TlsFiles};
use postonce_tests::collector::{CollectedSpan, Collector};
use postonce_tests::prelude::*;
use reqwest::Method;
use serde_json::{Value, json};

on_both_stores![
    a_payment_is_one_trace_from_the_client_to_the_commit;
    on_sqlite:
    a_commit_for_many_payments_is_in_the_trace_of_each,
];

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CLIENT_SPAN: &str = "00f067aa0ba902b7";
/// Time between two exports of a process, in milliseconds.
const EXPORT_EVERY_MS: &str = "100";

/// Longest time for the end of a process.
const STOP_TIME_MAX: Duration = Duration::from_secs(15);

/// Two processes, all of whose traces go to the collector.
fn traced(store_kind: StoreKind, collector: &Collector) -> Plan {
    Plan::on(store_kind)
        .processes(1, 1)
        .with("POSTONCE_OTLP_ENDPOINT", &collector.endpoint())
        .with("POSTONCE_TRACE_SAMPLING", "1")
        .with("POSTONCE_LOG_FORMAT", "json")
        // A variable for all programs of a machine does not apply.
        .with("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")
        .with("OTEL_BSP_SCHEDULE_DELAY", EXPORT_EVERY_MS)
}

fn of_trace<'s>(spans: &'s [CollectedSpan], trace: &str) -> Vec<&'s CollectedSpan> {
    spans.iter().filter(|span| span.trace == trace).collect()
}

/// Returns the only span of a trace whose name begins so.
fn named<'s>(spans: &[&'s CollectedSpan], name: &str) -> Option<&'s CollectedSpan> {
    let mut found = spans.iter().filter(|span| span.name.starts_with(name));
    let only = found.next()?;
    assert!(found.next().is_none(), "{name} occurs once in {spans:#?}");
    Some(only)
}

fn traceparent(trace: &str) -> String {
    // The client does not record its trace, which has no effect on the bank.
    format!("00-{trace}-{CLIENT_SPAN}-00")
}

async fn a_payment_is_one_trace_from_the_client_to_the_commit(store_kind: StoreKind) {
    let collector = Collector::start();
    let bank = traced(store_kind, &collector).through_the_queue().start().await;
    bank.until_workers_ready().await;
    let (client, account, id) = (bank.client(0), fresh_account(), fresh_id());
    client.open(account).await;
    let request = client
        .submission(account, id, &Submission::deposit("1.00").with("reference", "secret purpose"))
        .header("prefer", "wait=20")
        .header("traceparent", traceparent(TRACE));
    let answer = client.send(request).await.expect(200);
    let number = answer.text_at("/order_number").to_owned();

    let spans = collector
        .until("the trace is complete", |spans| {
            let spans: Vec<_> = of_trace(spans, TRACE).into_iter().cloned().collect();
            let complete = ["POST", "process", "commit"]
                .iter()
                .all(|name| spans.iter().any(|it| it.name.starts_with(name)));
            complete.then_some(spans)
        })
        .await;
    let spans: Vec<&CollectedSpan> = spans.iter().collect();
    let find = |name| named(&spans, name).unwrap_or_else(|| panic!("{name} is missing in {spans:#?}"));
    let (server, accept, process, commit) = (find("POST"), find("accept"), find("process"), find("commit"));
    let route = "/v1/users/{user_id}/accounts/{account_id}/deposits";
    assert_eq!((&*server.name, &*server.kind), (&*format!("POST {route}"), "SPAN_KIND_SERVER"));
    assert_eq!(answer.header("traceresponse"), format!("00-{TRACE}-{}-01", server.span));

    let caused =
        [(server, CLIENT_SPAN), (accept, &server.span), (process, &server.span), (commit, &process.span)];
    for (span, parent) in caused {
        assert_eq!(span.parent, parent, "{span:#?}");
        assert!(span.begun_ns <= span.ended_ns && span.status == "STATUS_CODE_UNSET", "{span:#?}");
    }
    let service = |span: &CollectedSpan| span.resource["service.name"].as_str().map(str::to_owned);
    assert_eq!(service(server).as_deref(), Some("postonce-web"));
    assert_eq!(service(process).as_deref(), Some("postonce-worker"));
    assert_ne!(server.resource["service.instance.id"], process.resource["service.instance.id"]);

    assert_eq!(attribute(server, "postonce.order_number"), &*number);
    assert_eq!(attribute(server, "postonce.message_id"), &*id.to_string());
    assert_conventions(store_kind, server, process, commit);
    if store_kind == StoreKind::Azurite {
        let (send, name) = (find("send"), "messaging.destination.name");
        assert_eq!((&*send.kind, &send.parent), ("SPAN_KIND_CLIENT", &server.span));
        assert_eq!(attribute(send, name), attribute(process, name));
    }

    // The lines of both processes about the payment name its spans.
    for (log, span) in [(bank.webs[0].log(), server), (bank.workers[0].log(), process)] {
        let line = log.find(|line| (line.contains(TRACE) && line.contains(&number)).then(|| line.to_owned()));
        let line = line.unwrap_or_else(|| panic!("no line about {number}"));
        assert!(line.contains(&format!("\"span_id\":\"{}\"", span.span)), "{line} names {span:#?}");
    }
    let all = format!("{:?}", collector.spans());
    assert!(!all.contains("secret purpose") && !all.contains(bank.key()), "{all}");
}

fn attribute<'s>(span: &'s CollectedSpan, name: &str) -> &'s Value {
    span.attributes.get(name).unwrap_or_else(|| panic!("{name} is missing in {span:#?}"))
}

/// Asserts the attributes that the semantic conventions of OpenTelemetry name.
fn assert_conventions(
    store_kind: StoreKind,
    server: &CollectedSpan,
    process: &CollectedSpan,
    commit: &CollectedSpan,
) {
    let (database, queue) = match store_kind {
        StoreKind::Sqlite => ("sqlite", "sqlite"),
        StoreKind::Azurite => ("azure.table_storage", "azure.queue_storage"),
    };
    for (span, name, value) in [
        (server, "http.request.method", "POST"),
        (server, "http.route", server.name.trim_start_matches("POST ")),
        (server, "url.scheme", "http"),
        (process, "messaging.system", queue),
        (process, "messaging.operation.type", "process"),
        (process, "messaging.destination.name", process.name.trim_start_matches("process ")),
        (commit, "db.system.name", database),
        (commit, "db.operation.name", "commit"),
        (commit, "postonce.commit.result", "done"),
    ] {
        assert_eq!(attribute(span, name), value, "{name}");
    }
    assert_eq!(attribute(server, "http.response.status_code"), 200);
    let path = attribute(server, "url.path").as_str().expect("a path");
    assert!(path.starts_with("/v1/users/") && path.ends_with("/deposits") && !path.contains('{'), "{path}");
}

async fn a_commit_for_many_payments_is_in_the_trace_of_each(store_kind: StoreKind) {
    let collector = Collector::start();
    let bank = traced(store_kind, &collector).start().await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    client.hold(2).await;
    let traces: Vec<String> = (1..=3).map(|n| format!("{n:032x}")).collect();
    for trace in &traces {
        let request = client.submission(account, fresh_id(), &Submission::deposit("1.00"));
        drop(client.send(request.header("traceparent", traceparent(trace))).await.expect(202));
    }
    client.release(2).await;
    let commits = collector
        .until("the commit is in all traces", |spans| {
            let commits = traces.iter().map(|trace| named(&of_trace(spans, trace), "commit").cloned());
            commits.collect::<Option<Vec<_>>>()
        })
        .await;
    let place = |span: &CollectedSpan| format!("{}-{}", span.trace, span.span);
    let places: BTreeSet<String> = commits.iter().map(place).collect();
    let mut linked = BTreeSet::new();
    for commit in &commits {
        assert_eq!(commit.attributes["db.operation.batch.size"], 3, "{commit:#?}");
        linked.insert(place(commit));
        linked.extend(commit.links.iter().cloned());
    }
    assert_eq!(linked, places);
    assert_eq!(commits.iter().map(|commit| commit.links.len()).sum::<usize>(), 4, "{commits:#?}");
}

#[tokio::test]
async fn only_the_part_of_the_traces_that_is_sampled_is_exported() {
    let collector = Collector::start();
    let plan = traced(StoreKind::Sqlite, &collector).with("POSTONCE_TRACE_SAMPLING", "0.5");
    let bank = plan.start().await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    // The last 56 bits of a trace id decide.
    let (low, high) = ("000000000000000000ffffffffffffff", "0000000000000000ff00000000000001");
    for trace in [high, low] {
        let request = client.submission(account, fresh_id(), &Submission::deposit("1.00"));
        let sampled_by_client = format!("00-{trace}-{CLIENT_SPAN}-01");
        let answer =
            client.send(request.header("prefer", "wait=20").header("traceparent", sampled_by_client)).await;
        let flags = answer.header("traceresponse").rsplit('-').next().map(str::to_owned);
        assert_eq!(flags.as_deref(), Some(if trace == low { "01" } else { "00" }));
    }
    let complete = |spans: &[CollectedSpan], trace: &str| {
        let spans = of_trace(spans, trace);
        Some((named(&spans, "POST")?.clone(), named(&spans, "commit")?.clone()))
    };
    collector.until("the sampled trace is complete", |spans| complete(spans, low)).await;
    assert!(of_trace(&collector.spans(), high).is_empty(), "{:#?}", collector.spans());

    // A request that is posted at once, which the first ones may not be, has its commit below it.
    let mut attempts = 1_u64..;
    wait::until("a request is posted at once", wait::TIMEOUT, async || {
        let trace = format!("{:016x}{}", attempts.next().expect("it has no end"), "f".repeat(16));
        let request = client.submission(account, fresh_id(), &Submission::deposit("1.00"));
        let request = request.header("prefer", "wait=20").header("traceparent", traceparent(&trace));
        drop(client.send(request).await.expect(200));
        let found = collector.until("the trace is complete", |spans| complete(spans, &trace)).await;
        if found.1.parent == found.0.span { Ok(()) } else { Err(format!("{found:#?}")) }
    })
    .await;
}

#[tokio::test]
async fn a_collector_that_is_not_available_delays_no_payment() {
    let collector = Collector::start();
    let port = collector.port();
    let plan = traced(StoreKind::Sqlite, &collector);
    drop(collector);
    let bank = plan.start().await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    let pay = async || {
        drop(client.submit_and_wait(account, fresh_id(), &Submission::deposit("1.00")).await.expect(200));
    };
    let warnings = || {
        let lines = bank.webs[0].log().lines();
        lines.into_iter().filter(|line| line.contains("Traces are lost until")).count()
    };
    wait::until("the outage is told", wait::TIMEOUT, async || {
        pay().await;
        if warnings() > 0 { Ok(()) } else { Err("no warning".to_owned()) }
    })
    .await;
    let collector = Collector::start_at(port);
    collector
        .until("the collector takes traces again", |spans| {
            spans.iter().find(|span| span.name == "commit").cloned()
        })
        .await;
    assert_eq!(warnings(), 1, "{:#?}", bank.webs[0].log().lines());
    let probe = ProcessProbe::with_key(bank.webs[0].address(), bank.key());
    let (exported, recorded) = wait::until("exported spans are counted", wait::TIMEOUT, async || {
        match (probe.count("spans_exported").await, probe.count("spans_recorded").await) {
            (0, recorded) => Err(format!("none of {recorded}")),
            counts => Ok(counts),
        }
    })
    .await;
    assert!(exported < recorded, "{exported} of {recorded}: those of the outage are lost");
}

#[tokio::test]
async fn what_a_client_sends_in_the_place_of_an_id_is_in_no_span() {
    let collector = Collector::start();
    let bank = traced(StoreKind::Sqlite, &collector).start().await;
    let request = bank
        .client(0)
        .request(Method::from_bytes(b"SECRET").expect("a method"), "/v1/batches/SECRET?SECRET=1");
    let request = request.header("user-agent", "SECRET").header("traceparent", traceparent(TRACE));
    let answer = bank.client(0).send(request).await;
    assert!(answer.status >= 400, "{answer:?}");
    let server = collector
        .until("the request is recorded", |spans| of_trace(spans, TRACE).first().map(|span| (*span).clone()))
        .await;
    assert_eq!(
        (&*server.name, attribute(&server, "http.request.method")),
        ("HTTP /v1/batches/{batch_id}", &json!("_OTHER"))
    );
    let all = format!("{:?}", collector.spans());
    assert!(!all.contains("SECRET"), "{all}");
}

#[tokio::test]
async fn the_last_spans_are_sent_when_a_process_ends() {
    let collector = Collector::start();
    let plan = traced(StoreKind::Sqlite, &collector).with("OTEL_BSP_SCHEDULE_DELAY", "3600000");
    let mut bank = plan.through_the_queue().start().await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    let request = client.submission(account, fresh_id(), &Submission::deposit("1.00"));
    drop(
        client
            .send(request.header("prefer", "wait=20").header("traceparent", traceparent(TRACE)))
            .await
            .expect(200),
    );
    assert!(collector.spans().is_empty(), "{:#?}", collector.spans());
    assert!(bank.webs[0].process().terminate(wait::TIMEOUT).success());
    assert!(bank.workers[0].process().terminate(wait::TIMEOUT).success());
    collector
        .until("the spans of both processes are there", |spans| {
            let spans = of_trace(spans, TRACE);
            ["POST", "process", "commit"].iter().all(|name| named(&spans, name).is_some()).then_some(())
        })
        .await;
}

#[tokio::test]
async fn spans_are_sent_over_tls_with_the_authority_of_the_bank() {
    let directory = tempfile::tempdir().expect("a folder");
    let (authority, files) = (Authority::named("authority of the bank"), TlsFiles::within(directory.path()));
    files.write(&authority.certify("collector"));
    std::fs::write(&files.authorities, authority.pem()).expect("a file");
    let collector = Collector::start_with_tls(&files);
    let plan = traced(StoreKind::Sqlite, &collector);
    let bank = plan.with("POSTONCE_OTLP_CA", &files.authorities.to_string_lossy()).start().await;
    bank.client(0).open(fresh_account()).await;
    collector.until("a span arrives", |spans| spans.first().cloned()).await;
}

/// Starts a bank whose collector accepts no spans, and makes payments until its log reports the outage.
async fn without_success(endpoint: &str) -> Scenario {
    let plan = Plan::on(StoreKind::Sqlite).processes(1, 1).with("POSTONCE_TRACE_SAMPLING", "1");
    let plan = plan.with("POSTONCE_OTLP_ENDPOINT", endpoint);
    let bank = plan.with("OTEL_BSP_SCHEDULE_DELAY", EXPORT_EVERY_MS).start().await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    wait::until("the outage is told", wait::TIMEOUT, async || {
        drop(client.submit_and_wait(account, fresh_id(), &Submission::deposit("1.00")).await.expect(200));
        let line = bank.webs[0].log().find(|line| line.contains("Traces are lost until").then_some(()));
        line.ok_or_else(|| "no warning".to_owned())
    })
    .await;
    let probe = ProcessProbe::with_key(bank.webs[0].address(), bank.key());
    assert_eq!(probe.count("spans_exported").await, 0);
    bank
}

#[tokio::test]
async fn a_collector_that_never_answers_delays_neither_payments_nor_the_end() {
    // The system accepts connections for it.
    let silent = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    for scheme in ["http", "https"] {
        let endpoint = format!("{scheme}://{}", silent.local_addr().expect("an address"));
        let mut bank = without_success(&endpoint).await;
        // They wait for the collector at most for two seconds each, and for nothing else.
        assert!(bank.webs[0].process().terminate(STOP_TIME_MAX).success());
        assert!(bank.workers[0].process().terminate(STOP_TIME_MAX).success());
    }
}

#[tokio::test]
async fn an_answer_that_leads_elsewhere_is_no_success() {
    let gateway = Collector::redirecting();
    drop(without_success(&gateway.endpoint()).await);
}
