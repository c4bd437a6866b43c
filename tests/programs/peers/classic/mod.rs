//! The classic design of such a service on Azure Storage, with which the bank is compared.
//!
//! `web` accepts deposits and withdrawals: a point read of the log for the id, then one string message
//! `userid|accountid|transactionid|amount`. `worker` receives 32 messages at a time and, for each of them, reads
//! the balance, writes it with If-Match, inserts the transaction, inserts the log row, and deletes the
//! message. The implementation ([`storage`], [`worker`]) is as fast as the design
//! allows.
//!
//! The weaknesses of the design are kept: a worker that ends between the write of the balance and the
//! delete of the message posts the same money again when the message is received again, and so does an id
//! that is sent twice before it was posted. The three tables are not written atomically, so they may
//! disagree after a crash.

mod account_locks;
mod connection;
mod counts;
mod entry;
mod storage;
mod transport;
mod web;
mod worker;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use actix_web::dev::Server;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use postonce_process::drain::drain;
use postonce_process::signals::Signals;
use postonce_shared::testing::prelude::*;

use crate::peers::classic::connection::Connection;
use crate::peers::classic::counts::Counts;
use crate::peers::classic::storage::Storage;
use crate::peers::classic::worker::{Concurrency, Worker};

/// The classic design on Azure Storage, with which the benchmark compares the bank
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    process: Process,
}

#[derive(Debug, Subcommand)]
enum Process {
    /// Accepts deposits and withdrawals over HTTP
    Web(WebSettings),
    /// Posts accepted transactions
    Worker(WorkerSettings),
}

#[derive(Debug, Args)]
struct WebSettings {
    #[command(flatten)]
    common: Settings,
    /// The API key that callers must send
    #[arg(long)]
    key: String,
    /// Most submissions at once
    #[arg(long, default_value_t = web::PARALLEL)]
    parallel: usize,
}

#[derive(Debug, Args)]
struct WorkerSettings {
    #[command(flatten)]
    common: Settings,
    /// Most messages processed at once
    #[arg(long, default_value_t = worker::PARALLEL)]
    parallel: usize,
    /// Number of tasks that receive messages
    #[arg(long, default_value_t = worker::RECEIVERS)]
    receivers: usize,
}

/// The settings of both processes.
#[derive(Debug, Args)]
struct Settings {
    /// Address to listen on; port 0 picks a free port
    #[arg(long, default_value = "127.0.0.1:0")]
    bind: SocketAddr,
    /// The connection string of the storage account
    #[arg(long)]
    storage: String,
    /// Prefix of the names of the tables and of the queue
    #[arg(long)]
    prefix: String,
}

/// Runs a process until it is asked to stop.
#[tokio::main]
pub async fn run(arguments: Arguments) -> anyhow::Result<()> {
    match arguments.process {
        Process::Web(WebSettings { common, key, parallel }) => {
            let (storage, counts, listener) = open(&common).await?;
            let server = web::serve(storage, counts, &key, parallel, listener.try_clone()?)?;
            announce(&listener)?;
            until_stopped(server).await
        }
        Process::Worker(WorkerSettings { common, parallel, receivers }) => {
            let (storage, counts, listener) = open(&common).await?;
            let server = counts::serve(Arc::clone(&counts), listener.try_clone()?)?;
            let (starter, drain) = drain();
            let worker = Worker::new(storage, counts, Concurrency { parallel, receivers });
            announce(&listener)?;
            let work = worker.run(drain);
            let stop = async {
                let stopped = until_stopped(server).await;
                starter.start();
                stopped
            };
            tokio::join!(work, stop).1
        }
    }
}

/// The storage with its tables and queue, and a bound address.
async fn open(settings: &Settings) -> anyhow::Result<(Storage, Arc<Counts>, TcpListener)> {
    let Settings { bind, storage, prefix } = settings;
    let counts: Arc<Counts> = Arc::default();
    let storage = Storage::new(&Connection::parse(storage)?, prefix, &counts)?;
    storage.create().await.context("the tables and the queue cannot be created")?;
    let listener = TcpListener::bind(bind).with_context(|| format!("cannot listen on {bind}"))?;
    Ok((storage, counts, listener))
}

fn announce(listener: &TcpListener) -> anyhow::Result<()> {
    println!("listening on http://{}", listener.local_addr()?);
    Ok(())
}

/// Serves until the process is asked to stop, and finishes the requests in progress.
async fn until_stopped(server: Server) -> anyhow::Result<()> {
    let handle = server.handle();
    let world: Arc<dyn World> = Arc::new(SystemWorld::new());
    let signals = Signals::handle(&world).context("the signals cannot be handled")?;
    let stop = async {
        signals.until_stop().await;
        handle.stop(true).await;
    };
    let (served, ()) = tokio::join!(server, stop);
    served.context("the HTTP server failed")
}
