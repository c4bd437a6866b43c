//! What traces cost: one process on SQLite that exports none, a tenth, and all of them; and the calls that stay when none are
//! exported.

use std::hint::black_box;
use std::io;
use std::sync::Arc;

use postonce_shared::ports::spans::SpanKind;
use postonce_shared::testing::prelude::*;
use postonce_shared::tracer::Tracer;
use postonce_tests::process_probe::by_label;
use postonce_tests::wait::Stopwatch;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::bench::prelude::*;

const CONNECTIONS: usize = 64;
const ACCOUNTS: usize = 10_000;

const OFF: &str = "no traces";
const TENTH: &str = "a tenth of the traces";
const ALL: &str = "all traces";
/// The arms, in the order of the series: a goal compares an arm with a later one.
const SAMPLINGS: [(&str, Option<&str>); 3] = [(ALL, Some("1")), (TENTH, Some("0.1")), (OFF, None)];
const GOALS: [GoalOf; 2] =
    [(TENTH, POSTED, Goal::TimesTheOther(OFF, 95)), (TENTH, PROCESSOR, Goal::TimesTheOtherAtMost(OFF, 105))];

/// The calls of the tracer for a payment through the queue, in a process that exports nothing.
const CALLS: Measure = Measure::of("calls of the tracer for a payment", Unit::Nanoseconds);
/// Payments whose calls are measured.
const PAYMENTS: u64 = 10_000_000;

/// Measures all ways of the requests.
pub async fn measure(options: &Options, machine: &Machine) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port on loopback");
    let endpoint = format!("http://{}", listener.local_addr().expect("a listener has an address"));
    let mut collector = JoinSet::new();
    collector.spawn(collect(listener));
    let mut report = Report::of("traces");
    for way in Way::ALL {
        let mut arms = Vec::new();
        for (name, sampling) in SAMPLINGS {
            let settings: &[_] = match sampling {
                Some(part) => {
                    &[("POSTONCE_OTLP_ENDPOINT", endpoint.as_str()), ("POSTONCE_TRACE_SAMPLING", part)]
                }
                None => &[],
            };
            let arm = arms::embedded_with(machine.directory(), way, settings).await;
            let accounts = arm.open(options.accounts(ACCOUNTS)).await;
            arms.push((name, (arm, accounts)));
        }
        let phase = way.name();
        let name = format!("traces, {phase}");
        let series = interleave(&name, options.rounds(), &arms, machine, async |(arm, accounts)| {
            throughput(arm, accounts, CONNECTIONS, options.lasting(LASTING)).await
        })
        .await;
        report.add(phase, &series, &GOALS);
        for (name, (arm, _)) in &arms {
            println!("{phase}, {name}: {}", spans(arm).await);
        }
    }
    report.add("no requests", &Series::of_round(vec![(OFF, Sample::from([(CALLS, calls_ns())]))]), &[]);
    report.finish(machine);
}

/// Measures the calls of the tracer for a payment without an exporter, in nanoseconds.
fn calls_ns() -> u64 {
    let tracer = Tracer::new(Arc::new(SystemWorld::new()));
    let place =
        TraceParent::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").expect("a valid place");
    let mut origin = Origin { request_id: None, traceparent: Some(place) };
    let watch = Stopwatch::start();
    for _ in 0..PAYMENTS {
        let tracer = black_box(&tracer);
        let place = origin.traceparent.take().map(|place| tracer.sample(place));
        origin.traceparent = black_box(place);
        let request = origin.traceparent.as_ref();
        let request =
            request.and_then(|place| tracer.begin(format_args!("request"), SpanKind::Server, place, None));
        drop(black_box(request));
        for (name, kind) in
            [("accept", SpanKind::Database), ("send", SpanKind::Sender), ("commit", SpanKind::Database)]
        {
            drop(black_box(tracer.begin_shared(format_args!("{name}"), kind, [&origin].into_iter())));
        }
        drop(black_box(tracer.enter(format_args!("process"), SpanKind::Consumer, &mut origin)));
        black_box(origin.traceparent.as_ref().is_some_and(|place| tracer.records(place)));
    }
    let each = watch.elapsed().as_nanos().checked_div(PAYMENTS.into());
    each.and_then(|each| u64::try_from(each).ok()).unwrap_or(u64::MAX)
}

/// Returns how many spans the processes of an arm recorded and exported.
async fn spans(arm: &Arm) -> String {
    let mut texts = Vec::new();
    for source in &arm.counts {
        let Source::Metrics(probe) = source else { continue };
        let metrics = probe.metrics().await;
        let count = |name| by_label(&metrics, name, "").into_values().sum::<u64>();
        let (recorded, exported) = (count("spans_recorded"), count("spans_exported"));
        texts.push(format!("{recorded} spans, {exported} exported"));
    }
    texts.join("; ")
}

/// A collector that costs as little as possible: it reads requests, and answers them. It ends with its task.
async fn collect(listener: TcpListener) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(answer(stream));
    }
}

async fn answer(stream: TcpStream) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    let mut length = 0_u64;
    while stream.read_line(&mut line).await? > 0 {
        let lower = line.to_ascii_lowercase();
        if let Some(value) = lower.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
        if line.trim().is_empty() {
            let mut body = (&mut stream).take(length);
            tokio::io::copy(&mut body, &mut tokio::io::sink()).await?;
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await?;
        }
        line.clear();
    }
    Ok(())
}
