//! What traces cost: one process on SQLite that exports none, a tenth, and all of them.

use std::io;

use postonce_tests::process_probe::by_label;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::Options;
use crate::arm::{Arm, Source};
use crate::arms;
use crate::load::Way;
use crate::machine::Machine;
use crate::report::{Goal, GoalOf, Report};
use crate::rounds::interleave;
use crate::throughput::{LASTING, POSTED, PROCESSOR, throughput};

const CONNECTIONS: usize = 64;
const ACCOUNTS: usize = 10_000;

const OFF: &str = "no traces";
const TENTH: &str = "a tenth of the traces";
const ALL: &str = "all traces";
/// The arms, in the order of the series: a goal compares an arm with a later one.
const SAMPLINGS: [(&str, Option<&str>); 3] = [(ALL, Some("1")), (TENTH, Some("0.1")), (OFF, None)];
const GOALS: [GoalOf; 2] =
    [(TENTH, POSTED, Goal::TimesTheOther(OFF, 95)), (TENTH, PROCESSOR, Goal::TimesTheOtherAtMost(OFF, 105))];

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
    report.finish(machine);
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
