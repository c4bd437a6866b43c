//! schemathesis against the running service: every operation of both OpenAPI documents, with examples, limits, random data
//! and sequences of requests, with all checks and one exception.

use std::time::Duration;

use postonce_tests::prelude::*;

/// Maximum number of requests for each operation and phase, of the strict document and of the plain one. Most requests by
/// the plain one are the same as by the strict one, so it needs fewer.
const EXAMPLES_MAX: &str = "40";
const PLAIN_EXAMPLES_MAX: &str = "15";
/// Longest run; it takes about 30 s on an idle machine.
const RUN_TIME_MAX: Duration = Duration::from_secs(600);

/// The check that is left out: a cancelled batch can still be read, so `DELETE` does not remove it. In sequences of requests,
/// an exception for the single operation has no effect.
const LEFT_OUT: &str = "use_after_free";

#[tokio::test]
async fn schemathesis_finds_nothing_by_the_strict_document() {
    finds_nothing("openapi-strict.json", EXAMPLES_MAX).await;
}

#[tokio::test]
async fn schemathesis_finds_nothing_by_the_plain_document() {
    finds_nothing("openapi.json", PLAIN_EXAMPLES_MAX).await;
}

async fn finds_nothing(document: &str, examples_max: &str) {
    let bank = Plan::on(StoreKind::Sqlite).start().await;
    let address = bank.webs.first().expect("the bank has a web process").address();
    let folder = tempfile::tempdir().expect("a folder can be created");
    let authorization = format!("Authorization: Bearer {}", bank.key());
    let arguments = ["-m", "schemathesis.cli", "run", "--checks", "all", "--exclude-checks", LEFT_OUT];
    let known = ["--seed", "1", "--max-examples", examples_max, "--generation-database", "none"];
    let output = ["--no-color", "--continue-on-failure", "--header", &authorization];
    let mut launch = Launch::of("schemathesis", python::program(), folder.path())
        .arguments(arguments.into_iter().chain(known).chain(output))
        .arguments([format!("{address}/{document}")]);
    // These hooks create valid data where a schema cannot describe it.
    launch.environment.insert("SCHEMATHESIS_HOOKS".to_owned(), "valid_data".to_owned());
    launch.environment.insert("PYTHONPATH".to_owned(), python::directory().display().to_string());
    let mut run = Process::start(&launch);
    let status = wait::until("schemathesis ends", RUN_TIME_MAX, async || {
        run.ended().ok_or_else(|| run.log().lines().last().cloned().unwrap_or_default())
    })
    .await;
    run.wait_for_output();
    let report = run.log().lines().join("\n");
    assert!(status.success(), "schemathesis ended with {status}:\n{report}");
    // Every phase must have run.
    let all = ["Examples", "Coverage", "Fuzzing", "Stateful"]
        .iter()
        .all(|phase| report.lines().any(|line| line.contains(&format!("✅  {phase}"))));
    assert!(all, "a phase is missing:\n{report}");
}
