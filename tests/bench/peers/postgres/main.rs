//! What the bank is compared with: the service that an able engineer would build on PostgreSQL for the
//! same request. actix-web, a pooled client, and **one database transaction a posting**: the transaction
//! row under its unique key, the balance under its guard, a row of the journal, then COMMIT at default
//! durability. It answers only after the commit, so a 200 here is what `posted` is at the bank.
//!
//! It serves the part of the API that the benchmark uses, in the bank's own words (paths, headers, members,
//! codes of refusals), and prints `listening on http://…` when it is ready.
//!
//! | choice | why |
//! |---|---|
//! | one statement that writes the three tables | one round trip; the statements one by one in a pipeline cost more, so does a function in PL/pgSQL, or to lock the account first |
//! | the balance first, then plain inserts | least work for the database: `ON CONFLICT DO NOTHING` there needs a join to undo the balance, and the unique key decides anyhow |
//! | [turns](turns) before the pool | halves what a posting costs the database when ten accounts take all |
//! | 64 connections | with a slow disk more commits share one flush; with turns no posting holds a connection only to wait for a row |
//! | two threads for HTTP, a pool each | one of them can't keep up; a shared pool wakes across threads |
//! | a Unix socket, prepared statements | no TCP, no planning |
//!
//! What it does not do is to collect postings of several requests into one database transaction: then it would
//! be another design, and the comparison is with this one.

mod accounts;
mod answer;
mod counts;
mod credentials;
mod fault;
mod ledger;
mod money;
mod request;
mod routes;
mod schema;
mod transaction;
mod turns;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use actix_web::{App, HttpServer};
use anyhow::Context as _;
use clap::Parser;
use deadpool_postgres::{Manager, ManagerConfig, Pool, QueueMode, RecyclingMethod};
use tokio_postgres::NoTls;

use crate::accounts::Accounts;
use crate::counts::Counts;
use crate::credentials::Credentials;
use crate::ledger::Ledger;
use crate::turns::Turns;

/// The same allocator as the bank has.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long an idle connection of a client is kept.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// How it is started.
#[derive(Debug, Parser)]
#[command(name = "postonce-peer-postgres", about = "The peer of the benchmarks that stands on PostgreSQL")]
struct Settings {
    /// Where to listen; port 0 picks a free one
    #[arg(long, default_value = "127.0.0.1:0")]
    bind: String,
    /// How to reach the database, such as "host=/run/postgresql user=postonce dbname=postonce"
    #[arg(long)]
    database: tokio_postgres::Config,
    /// Connections to the database, over all threads
    #[arg(long, default_value = "64")]
    pool: NonZeroUsize,
    /// Threads that serve HTTP
    #[arg(long, default_value = "2")]
    threads: NonZeroUsize,
    /// Let postings to one account meet in the database, at the lock of its row
    #[arg(long)]
    without_turns: bool,
    /// The API key that clients send
    #[arg(long)]
    key: String,
}

#[actix_web::main]
async fn main() -> anyhow::Result<()> {
    let Settings { bind, database, pool, threads, without_turns, key } = Settings::parse();
    schema::create(&database).await.context("the tables cannot be created")?;
    let accounts = Arc::new(Accounts::default());
    let turns = Arc::new(if without_turns { Turns::none() } else { Turns::default() });
    let counts = Data::new(Counts::default());
    let credentials = Data::new(Credentials::of(&key));
    let connections_of_a_thread = pool.get().div_ceil(threads.get());
    let serving = {
        let counts = counts.clone();
        move || {
            // A pool of its own for each thread: a connection and the requests that use it are then woken
            // on the thread that they are on.
            let pool = pool_of(&database, connections_of_a_thread);
            let (accounts, turns) = (Arc::clone(&accounts), Arc::clone(&turns));
            App::new()
                .app_data(Data::new(Ledger::new(pool, accounts, turns, counts.clone().into_inner())))
                .app_data(counts.clone())
                .app_data(credentials.clone())
                .configure(routes::all)
        }
    };
    let server = HttpServer::new(serving)
        .workers(threads.get())
        .keep_alive(KEEP_ALIVE)
        .bind(&bind)
        .with_context(|| format!("cannot listen on {bind}"))?;
    for address in server.addrs() {
        println!("listening on http://{address}");
    }
    // Ends on SIGTERM and Ctrl-C, when the requests in hand are answered.
    server.run().await.context("the server failed")
}

/// A pool that hands out the connection that was used last: fewer of them are then in use, and those are
/// warm. Nothing is asked of a connection before it is used again.
fn pool_of(database: &tokio_postgres::Config, connections: usize) -> Pool {
    let terms = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(database.clone(), NoTls, terms);
    let pool = Pool::builder(manager).max_size(connections).queue_mode(QueueMode::Lifo).build();
    pool.expect("a pool without timeouts needs no runtime")
}
