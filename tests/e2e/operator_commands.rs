//! Commands for operators beside a running bank: what they print for people and for programs, and their exit codes.

use postonce_tests::prelude::*;
use serde_json::Value;

use super::backup::{Ended, run};

on_both_stores![
    workers_and_queues_are_listed_with_processes_that_do_not_answer,
    accounts_and_transactions_are_found_for_programs,
];

#[test]
fn a_plan_is_estimated_without_a_store() {
    let estimate = |arguments: &str| {
        let mut command = std::process::Command::new(Binary::Web.path());
        command.args(["costs", "estimate"]).args(arguments.split_whitespace());
        // Nothing of the environment is read.
        let ended = command.env_clear().env("POSTONCE_STORAGE", "nothing").output().expect("it runs");
        let printed = String::from_utf8(if ended.status.success() { ended.stdout } else { ended.stderr });
        (ended.status.code(), printed.expect("text"))
    };
    let (code, table) = estimate("--hours 22 --price 0.01");
    let polling = table.lines().nth(1).expect("a line for polling").split_whitespace();
    assert_eq!(
        (code, polling.collect::<Vec<_>>()),
        (Some(0), vec!["polling", "79200", "0.08", "2376000", "2.38"])
    );
    let (_, all) = estimate("--listeners 200 --hours 22 --price 0.01 --messages 1000 --json");
    let all: Value = serde_json::from_str(&all).expect("JSON");
    let expected = serde_json::json!({
        "operations_per_day": 15_843_000, "price_usd_per_day": "15.843000000",
        "operations_per_month": 475_290_000, "price_usd_per_month": "475.290000000",
    });
    assert_eq!(all["polling"], expected);
    assert_eq!(all["notifications"]["operations_per_day"], 200 * 22 * 6 + 3000);
    for (wrong, named) in
        [("--hours 25", "--hours"), ("--price 1e3", "decimal number"), ("--threads 0", "--threads")]
    {
        let (code, error) = estimate(wrong);
        assert!(code == Some(2) && error.contains(named), "{wrong}: {error}");
    }
}

/// Exit code when a registered process does not answer.
const INCOMPLETE: i32 = 5;
/// Exit code when nothing is found.
const NOT_FOUND: i32 = 4;

/// Runs a command with `--json`. Returns its exit code and its object.
async fn json_of(bank: &Scenario, arguments: &[&str]) -> (Option<i32>, Value) {
    let Ended { status, printed } = run(bank, &[arguments, &["--json"]].concat()).await;
    // Without the lines of the log, which are on the other stream and can arrive in between.
    let lines = printed.lines().filter(|line| line.starts_with([' ', '{', '}']));
    let lines = lines.skip_while(|line| *line != "{");
    let object: Vec<&str> = lines.take_while(|line| *line != "}").chain(["}"]).collect();
    let object = serde_json::from_str(&object.join("\n"));
    (status.code(), object.unwrap_or_else(|error| panic!("{arguments:?}: {error}: {printed}")))
}

async fn workers_and_queues_are_listed_with_processes_that_do_not_answer(store_kind: StoreKind) {
    let plan = Plan::on(store_kind).processes(1, 1).through_the_queue();
    let mut bank = plan.with("POSTONCE_RECEIVERS_RULE", "10:1,50:2,100:4").start().await;
    bank.until_workers_ready().await;
    let client = bank.client(0);
    let addresses = [bank.webs[0].internal_address(), bank.workers[0].internal_address()];
    wait::until("both processes are registered", wait::TIMEOUT, async || {
        let (code, listed) = json_of(&bank, &["workers"]).await;
        let processes = listed["processes"].as_array().expect("processes");
        let is_listed = |address: &String| {
            processes
                .iter()
                .any(|it| it["address"] == **address && it["answers"] == true && it["seen_at"].is_string())
        };
        if code == Some(0) && addresses.iter().all(is_listed) {
            Ok(())
        } else {
            Err(format!("{code:?} {listed}"))
        }
    })
    .await;
    let table = run(&bank, &["workers"]).await.printed;
    assert!(table.contains("PROCESS") && table.contains("workers wanted: "), "{table}");

    let account = fresh_account();
    client.open(account).await;
    client.hold(2).await;
    drop(client.submit_until_accepted(account, fresh_id(), &Submission::deposit("1.00")).await);
    let (code, costs) = json_of(&bank, &["costs", "show"]).await;
    let processes: Vec<&Value> = costs["processes"].as_array().expect("processes").iter().collect();
    assert_eq!((code, processes.len()), (Some(0), 2), "the command itself is none of them: {costs:#}");
    assert!(
        costs["count"].as_u64() > Some(0) && costs["projected_price_usd_per_month"].is_null(),
        "{costs:#}"
    );
    let table = run(&bank, &["costs", "show"]).await.printed;
    assert!(table.contains("PROCESS") && table.contains("A projection needs 10 minutes"), "{table}");

    let (code, queues) = json_of(&bank, &["queues"]).await;
    let queues = queues["queues"].as_array().expect("queues").clone();
    let depth: u64 = queues.iter().filter_map(|queue| queue["depth"].as_u64()).sum();
    assert_eq!((code, depth), (Some(0), 1), "{queues:#?}");
    let listening: u64 = queues.iter().filter_map(|queue| queue["listeners_max"].as_u64()).sum();
    assert!(listening > 0, "{queues:#?}");
    let table = run(&bank, &["queues"]).await.printed;
    assert!(table.contains("receivers-rule: 10:1,50:2,100:4"), "{table}");
    let rules = client.get("/v1/admin/queues").await.expect(200).body;
    assert_eq!(rules["receivers_rules"], serde_json::json!(["10:1,50:2,100:4"]), "{rules}");

    bank.workers[0].kill();
    let (code, listed) = json_of(&bank, &["workers"]).await;
    let silent: Vec<&Value> = listed["processes"]
        .as_array()
        .expect("processes")
        .iter()
        .filter(|it| it["answers"] == false)
        .collect();
    assert_eq!((code, silent.len()), (Some(INCOMPLETE), 1), "{listed:#}");
    assert_eq!(silent[0]["address"], *addresses[1]);
    let table = run(&bank, &["workers"]).await;
    assert!(table.printed.contains("does not answer"), "{table:?}");
}

async fn accounts_and_transactions_are_found_for_programs(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 1).start().await;
    bank.until_workers_ready().await;
    let (client, account, id) = (bank.client(0), fresh_account(), fresh_id());
    client.open(account).await;
    drop(client.post(account, id, &Submission::deposit("1.25")).await);
    let name = path_of(account).replace("/v1/users/", "").replace("/accounts/", "/");
    let (user, _) = name.split_once('/').expect("a user and an account");

    let (code, listed) = json_of(&bank, &["accounts", "list", user]).await;
    assert_eq!((code, listed["accounts"].as_array().map(Vec::len)), (Some(0), Some(1)), "{listed:#}");
    let (code, shown) = json_of(&bank, &["accounts", "show", &name]).await;
    assert_eq!((code, &shown["balance"]), (Some(0), &"1.25".into()), "{shown:#}");
    let (code, statement) = json_of(&bank, &["accounts", "statement", &name]).await;
    assert_eq!((code, statement.to_string().contains(&id.to_string())), (Some(0), true), "{statement:#}");
    let message = id.to_string();
    let (code, found) = json_of(&bank, &["transactions", "--account", &name, "--message-id", &message]).await;
    assert_eq!(
        (code, &found["transactions"][0]["transaction"]["amount"]),
        (Some(0), &"1.25".into()),
        "{found:#}"
    );

    let unknown = fresh_id().to_string();
    for arguments in [
        vec!["accounts", "show", &*format!("{user}/{unknown}")],
        vec!["transactions", "--account", &name, "--message-id", &unknown],
    ] {
        let ended = run(&bank, &arguments).await;
        assert_eq!(ended.status.code(), Some(NOT_FOUND), "{ended:?}");
        assert!(["found", "does not exist"].iter().any(|text| ended.printed.contains(text)), "{ended:?}");
    }
}
