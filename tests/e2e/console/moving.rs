//! Pages that change by themselves: figures, queues, processes and plots while work is posted, without loading the page again.

use std::cell::Cell;
use std::collections::BTreeMap;

use futures::future::join;
use postonce_shared::domain::ids::AccountKey;
use postonce_tests::prelude::*;
use serde_json::{Value, json};

use super::shown::{list, text};
use super::visit::Visit;

/// Messages that wait.
const WAITING: usize = 12;
/// Points of the plots while work is posted.
const POINTS: usize = 8;
/// The figures of the overview by their names, as numbers.
const FIGURES: &str = "const figures = Object.fromEntries([...document.querySelectorAll('#figures .tile')].map((tile) =>
    [tile.querySelector('dt').textContent, Number.parseFloat(tile.querySelector('.tile-value').textContent)]));";
/// The latest values of the first plot, and the time that stands below it.
const LATEST: &str = "const plot = document.querySelector('[data-plot=decided]');
    const values = () => [...plot.querySelectorAll('[data-value]')].map((it) => Number.parseFloat(it.textContent));
    const time = () => plot.querySelector('[data-time]').textContent;";
/// The largest value of each series of the first plot near its right end, as its legend shows them while the cursor is there.
const AT_CURSOR: &str = "const over = plot.querySelector('.u-over');
    const {right, top} = over.getBoundingClientRect();
    const found = [];
    for (let back = 1; back < 100; back++) {
        const place = {clientX: right - back, clientY: top + 9, movementX: 1, movementY: 1, bubbles: true};
        over.dispatchEvent(new MouseEvent('mousemove', place));
        found.push(values());
    }
    over.dispatchEvent(new MouseEvent('mouseleave'));
    return [0, 1, 2].map((series) => Math.max(...found.map((at) => at[series])));";

on_both_stores![figures_and_plots_move_while_work_is_posted, queues_and_workers_are_shown_as_they_change,];

/// Opens a page that changes by itself, and marks it.
async fn open(bank: &Scenario, path: &str) -> Visit {
    let visit = Visit::sign_in(bank, 0, bank.key()).await;
    visit.open(path).await;
    visit.until_live().await;
    visit.mark().await;
    visit
}

/// Checks that the page was not loaded again, and found nothing wrong.
async fn check_same_page(visit: &Visit) {
    assert!(visit.is_marked().await, "it was loaded again");
    assert_eq!(visit.browser.messages().await, Vec::<String>::new());
}

async fn figures_and_plots_move_while_work_is_posted(store_kind: StoreKind) {
    let bank = Plan::on(store_kind).processes(1, 1).start().await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    let visit = open(&bank, "/console").await;
    let browser = &visit.browser;
    let rates = "[figures.Accepted, figures.Posted, figures.Rejected]";
    let idle = browser.run(&format!("{FIGURES} return {rates}")).await;
    assert_eq!(numbers(&idle), ["0", "0", "0"]);
    browser
        .wait_until(
            "the plots are drawn",
            "return document.querySelector('[data-plot=decided] canvas') !== null",
        )
        .await;
    assert_eq!(numbers(&browser.run(&format!("{LATEST} {AT_CURSOR}")).await), ["0", "0", "0"]);

    let is_seen = Cell::new(false);
    let watch = async {
        let all_move = format!("{FIGURES} return {rates}.every((rate) => rate > 0)");
        browser.wait_until("the figures move", &all_move).await;
        // So many that the cursor meets some of them: the plot has an hour in a few hundred pixels.
        let points = format!(
            "{LATEST} window.times ??= new Set(); if (values().every((it) => it > 0)) window.times.add(time());
            return window.times.size >= {POINTS}"
        );
        browser.wait_until("the plot gets points", &points).await;
        let overview = client.get("/v1/admin/overview?seconds=60").await.expect(200);
        for rate in ["accepted", "posted", "rejected"] {
            assert_ne!(overview.text_at(&format!("/per_second/{rate}")), "0.0", "{overview:?}");
        }
        is_seen.set(true);
    };
    join(watch, work_until(&client, account, &is_seen)).await;
    // Work ends: the figures are those of the last seconds, and the points stay.
    let rest = format!("{FIGURES} {LATEST} return [...{rates}, ...values()].every((it) => it === 0)");
    browser.wait_until("the figures are at rest", &rest).await;
    let largest = browser.run(&format!("{LATEST} {AT_CURSOR}")).await;
    assert!(numbers(&largest).iter().all(|it| it != "0"), "the plot has no points of the work: {largest}");
    check_same_page(&visit).await;
}

fn numbers(of: &Value) -> Vec<String> {
    of.as_array().into_iter().flatten().map(Value::to_string).collect()
}

/// Posts and has rejected, one after the other, until the flag is set.
async fn work_until(client: &Client, account: AccountKey, is_seen: &Cell<bool>) {
    while !is_seen.get() {
        drop(client.post(account, fresh_id(), &Submission::deposit("1.00")).await);
        let rejected = client.submit_and_wait(account, fresh_id(), &Submission::withdrawal("99999.00")).await;
        assert_eq!(rejected.expect(200).transaction_status(), "rejected");
    }
}

async fn queues_and_workers_are_shown_as_they_change(store_kind: StoreKind) {
    let mut bank = Plan::on(store_kind).processes(1, 1).start().await;
    bank.until_workers_ready().await;
    let (client, account) = (bank.client(0), fresh_account());
    client.open(account).await;
    let overview = open(&bank, "/console").await;
    let queues = open(&bank, "/console/queues").await;
    let until = async |name: &str, number: usize| {
        let script = format!("{FIGURES} return figures[{}] === {number}", Value::from(name));
        overview.browser.wait_until(&format!("{name}: {number}"), &script).await;
    };
    until("Workers running", 1).await;
    drop(client.set_gate(&json!({"state": "held", "reason": "count"})).await.expect(200));
    let sent = client.queue_up(&[account], WAITING, bank.queue_count()).await;
    assert_eq!(client.over_queues("depth").await, 12);
    until("In the queues", WAITING).await;
    // All messages of an account are in one queue, which stands first.
    let first =
        format!("return document.querySelector('#queues tbody tr').cells[1].textContent === '{WAITING}'");
    queues.browser.wait_until("the queue is shown with its messages", &first).await;
    let known = client.get("/v1/admin/overview?seconds=60").await.expect(200).body;
    let known: BTreeMap<String, String> = list(&known, "queues")
        .iter()
        .map(|queue| (text(queue, "name").to_owned(), queue["depth"].to_string()))
        .collect();
    let shown = queues.rows("Queues").await.into_iter().map(|row| (row[0].clone(), row[1].clone()));
    assert_eq!(shown.collect::<BTreeMap<_, _>>(), known);
    queues.browser.wait_text("#gate", "The gate is held").await;

    drop(client.set_gate(&json!({"state": "released"})).await.expect(200));
    for (account, id) in sent {
        drop(client.until_final(account, id).await);
    }
    until("In the queues", 0).await;
    queues.browser.wait_gone("#gate .notice").await;
    bank.start_worker();
    until("Workers running", 2).await;
    let workers = async |number: usize| {
        let script = format!(
            "return [...document.querySelectorAll('#processes tbody tr')].filter((row) => row.cells[1].textContent === 'worker')
                .length === {number}"
        );
        queues.browser.wait_until(&format!("{number} workers are listed"), &script).await;
    };
    workers(2).await;
    bank.workers[1].drain().await;
    until("Workers running", 1).await;
    workers(1).await;
    for visit in [&overview, &queues] {
        check_same_page(visit).await;
    }
}
