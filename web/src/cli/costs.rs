//! `postonce-web costs`: the storage operations of the running service and their price, and an estimate before it runs.

use std::io::Write;
use std::time::Duration;

use clap::{Args, Subcommand, value_parser};
use postonce_schemas::json::{ProcessCost, StorageOperations};
use postonce_shared::oversight::estimate::{DAYS_PER_MONTH, Estimate, Plan};
use postonce_shared::oversight::prices::{Price, defaults};
use serde::Serialize;

use crate::admin::service::AdminService;
use crate::api::views;
use crate::cli::output::{json, table};

/// The subcommands of `costs`.
#[derive(Debug, Clone, Subcommand)]
pub enum CostsCommand {
    /// Print the storage operations of the running processes, their price, and a projection of the month
    Show(ShowCosts),
    /// Estimate the queue operations of a plan and their price, for listeners that poll and for notified ones. Needs no store
    Estimate(EstimateCosts),
}

/// Arguments of `costs show`.
#[derive(Debug, Clone, Args)]
pub struct ShowCosts {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `costs estimate`.
#[derive(Debug, Clone, Args)]
pub struct EstimateCosts {
    /// Listening processes
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = value_parser!(u64).range(1..=100_000))]
    listeners: u64,
    /// Polling threads of each listener
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = value_parser!(u64).range(1..=10_000))]
    threads: u64,
    /// Queues that each thread polls
    #[arg(long, value_name = "NUMBER", default_value = "1", value_parser = value_parser!(u64).range(1..=10_000))]
    queues: u64,
    /// Time between two polls of an empty queue
    #[arg(
        long, value_name = "MILLISECONDS", default_value = "1000",
        value_parser = value_parser!(u64).range(1..=86_400_000)
    )]
    poll_interval_ms: u64,
    /// Hours a day during which the listeners run
    #[arg(long, value_name = "NUMBER", default_value = "24", value_parser = value_parser!(u64).range(1..=24))]
    hours: u64,
    /// Messages a day; each is sent, received and deleted
    #[arg(
        long, value_name = "NUMBER", default_value = "0",
        value_parser = value_parser!(u64).range(0..=1_000_000_000_000)
    )]
    messages: u64,
    /// Price of 10,000 queue operations in US dollars
    #[arg(long, value_name = "USD", default_value = defaults::QUEUE, value_parser = parse_price)]
    price: Price,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn parse_price(text: &str) -> Result<Price, String> {
    let wanted = "must be a decimal number of US dollars from 0 to 1000, with at most 9 decimals";
    Price::parse(text).ok_or_else(|| wanted.to_owned())
}

/// Prints the costs that `/v1/admin/storage-operations` answers.
///
/// # Errors
/// When the output fails.
pub async fn show(
    ShowCosts { json: as_json }: ShowCosts,
    admin: &AdminService,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let costs = views::costs(&admin.costs().await, admin.prices());
    if as_json {
        return json(&costs, out);
    }
    let StorageOperations { count, price_usd, projected_price_usd_per_month, processes, .. } = costs;
    let row = |cost: &ProcessCost| {
        let ProcessCost { process, postings, count, price_usd, .. } = cost.clone();
        [process, postings.to_string(), count.to_string(), price_usd]
    };
    table(["PROCESS", "POSTINGS", "OPERATIONS", "USD"], processes.iter().map(row), out)?;
    writeln!(out, "{count} operations for {price_usd} dollars since the processes started")?;
    match projected_price_usd_per_month {
        Some(usd) => writeln!(out, "{usd} dollars in {DAYS_PER_MONTH} days at this rate")?,
        None => writeln!(out, "A projection needs 10 minutes of each process")?,
    }
    Ok(())
}

/// The result of `costs estimate` as JSON.
#[derive(Debug, Serialize)]
struct Estimates {
    polling: EstimateOfWay,
    notifications: EstimateOfWay,
}

#[derive(Debug, Serialize)]
struct EstimateOfWay {
    operations_per_day: u64,
    price_usd_per_day: String,
    operations_per_month: u64,
    price_usd_per_month: String,
}

impl From<Estimate> for EstimateOfWay {
    fn from(estimate: Estimate) -> Self {
        let Estimate { operations_per_day, operations_per_month, per_day, per_month } = estimate;
        Self {
            operations_per_day,
            price_usd_per_day: per_day.usd(),
            operations_per_month,
            price_usd_per_month: per_month.usd(),
        }
    }
}

/// Prints the estimate.
///
/// # Errors
/// When the output fails.
pub fn estimate(command: EstimateCosts, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let EstimateCosts { listeners, threads, queues, poll_interval_ms, hours, messages, price, json: as_json } =
        command;
    let plan = Plan {
        listeners,
        threads,
        queues,
        poll_interval: Duration::from_millis(poll_interval_ms),
        running: Duration::from_secs(hours.saturating_mul(3600)),
        messages,
    };
    let [polling, notified] = [plan.polling(), plan.notified()].map(|count| Estimate::of(count, price));
    if as_json {
        return json(&Estimates { polling: polling.into(), notifications: notified.into() }, out);
    }
    let row = |(name, estimate): (&str, Estimate)| {
        let Estimate { operations_per_day, operations_per_month, per_day, per_month } = estimate;
        let (day, month) = (operations_per_day.to_string(), operations_per_month.to_string());
        [name.to_owned(), day, per_day.dollars(), month, per_month.dollars()]
    };
    let head = ["", "OPERATIONS/DAY", "USD/DAY", "OPERATIONS/MONTH", "USD/MONTH"];
    table(head, [("polling", polling), ("notifications", notified)].into_iter().map(row), out)?;
    writeln!(
        out,
        "Queue operations only, in a month of {DAYS_PER_MONTH} days. Notified listeners also poll one queue every 10 minutes, in \
         case a notification was lost. `costs show` prints what a running service costs, with all of its operations."
    )?;
    Ok(())
}
