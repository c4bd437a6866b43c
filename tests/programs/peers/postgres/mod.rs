//! A service on PostgreSQL with which the bank is compared, as an experienced engineer would build it for the
//! same requests: actix-web, a pooled client, and **one database transaction a posting** (the transaction row
//! under its unique key, the conditional update of the balance, a row of the journal, then COMMIT at default
//! durability). It answers after the commit, so its 200 corresponds to `posted` in the bank.
//!
//! It serves the part of the API that the benchmark uses, with the paths, headers, members and codes of the bank,
//! and prints `listening on http://…` when it is ready.
//!
//! | choice | why |
//! |---|---|
//! | one statement that writes the three tables | one round trip; the same statements in a pipeline, a function in PL/pgSQL, and a lock of the account first all cost more |
//! | the balance first, then plain inserts | least work for the database: with `ON CONFLICT DO NOTHING` it would need a join to undo the balance, and the unique key decides anyway |
//! | [locks of accounts](account_locks) before the pool | halve the cost of a posting for the database when ten accounts get all deposits |
//! | 64 connections | on a slow disk more commits share one flush; with the locks, no posting holds a connection while it waits for a row |
//! | two threads for HTTP, each with its own pool | one thread is too slow; a shared pool wakes across threads |
//! | a Unix socket, prepared statements | no TCP, no planning |
//!
//! It does not collect postings of several requests into one database transaction: that would be a different
//! design. A [batch] is one request, and one database transaction.

mod account_locks;
mod accounts;
mod answer;
mod batch;
mod counts;
mod credentials;
mod fault;
mod ledger;
mod money;
mod request;
mod routes;
mod schema;
mod transaction;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use actix_web::{App, HttpServer};
use anyhow::Context as _;
use clap::Args;
use deadpool_postgres::{Manager, ManagerConfig, Pool, QueueMode, RecyclingMethod};
use tokio_postgres::NoTls;

use crate::peers::postgres::account_locks::AccountLocks;
use crate::peers::postgres::accounts::Accounts;
use crate::peers::postgres::batch::Batches;
use crate::peers::postgres::counts::Counts;
use crate::peers::postgres::credentials::Credentials;
use crate::peers::postgres::ledger::Ledger;

/// Longest idle time of a client's connection.
const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// A service on PostgreSQL, with which the benchmark compares the bank
#[derive(Debug, Args)]
pub struct Settings {
    /// Address to listen on; port 0 picks a free port
    #[arg(long, default_value = "127.0.0.1:0")]
    bind: String,
    /// Connection string of the database, such as "host=/run/postgresql user=postonce dbname=postonce"
    #[arg(long)]
    database: tokio_postgres::Config,
    /// Connections to the database, in all threads together
    #[arg(long, default_value = "64")]
    pool: NonZeroUsize,
    /// Threads that serve HTTP
    #[arg(long, default_value = "2")]
    threads: NonZeroUsize,
    /// Let concurrent postings to an account wait in the database, for the lock of its row
    #[arg(long)]
    without_account_locks: bool,
    /// The API key of the clients
    #[arg(long)]
    key: String,
}

/// Runs the service until it is asked to stop.
#[actix_web::main]
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    let Settings { bind, database, pool, threads, without_account_locks, key } = settings;
    schema::create(&database).await.context("the tables cannot be created")?;
    let accounts = Arc::new(Accounts::default());
    let account_locks =
        Arc::new(if without_account_locks { AccountLocks::none() } else { AccountLocks::default() });
    let counts = Data::new(Counts::default());
    let credentials = Data::new(Credentials::of(&key));
    let connections_of_a_thread = pool.get().div_ceil(threads.get());
    let serving = {
        let counts = counts.clone();
        move || {
            // Each thread has its own pool, so that a connection and its requests are woken on the same
            // thread.
            let pool = pool_of(&database, connections_of_a_thread);
            let (accounts, account_locks) = (Arc::clone(&accounts), Arc::clone(&account_locks));
            App::new()
                .app_data(Data::new(Batches::new(pool.clone(), counts.clone().into_inner())))
                .app_data(Data::new(Ledger::new(pool, accounts, account_locks, counts.clone().into_inner())))
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
    // Ends on SIGTERM and Ctrl-C, after the requests in progress are answered.
    server.run().await.context("the server failed")
}

/// A pool that hands out the most recently used connection, so that fewer connections are in use and those stay
/// warm. Connections are not tested before they are used again.
fn pool_of(database: &tokio_postgres::Config, connections: usize) -> Pool {
    let terms = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(database.clone(), NoTls, terms);
    let pool = Pool::builder(manager).max_size(connections).queue_mode(QueueMode::Lifo).build();
    pool.expect("a pool without timeouts needs no runtime")
}
