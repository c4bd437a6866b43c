//! Counts of a process since its start, for the benchmark: `GET /bench/counts`.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use actix_web::dev::Server;
use actix_web::web::{Data, Json, ServiceConfig, get};
use actix_web::{App, HttpServer, Responder};
use parking_lot::Mutex;
use serde::Serialize;

/// Counts of one process.
#[derive(Debug, Default)]
pub struct Counts {
    posted: AtomicU64,
    conflicts: AtomicU64,
    requests: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
}

/// The counts in the response.
#[derive(Debug, Serialize)]
struct Counted {
    /// Posted transactions whose log row this process inserted.
    posted: u64,
    /// Requests to the storage.
    storage_operations: u64,
    /// Conflicts: balances that were changed between their read and their write.
    conflicts: u64,
    /// The requests by service and method, such as `table GET`.
    requests: BTreeMap<String, u64>,
}

impl Counts {
    /// Counts a request to the storage.
    pub fn note_request(&self, service: &'static str, method: &'static str) {
        let mut requests = self.requests.lock();
        let count = requests.entry((service, method)).or_default();
        *count = count.saturating_add(1);
    }

    /// Counts a posted transaction.
    pub fn note_posted(&self) {
        self.posted.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a conflict.
    pub fn note_conflict(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    fn counted(&self) -> Counted {
        let requests = self.requests.lock();
        Counted {
            posted: self.posted.load(Ordering::Relaxed),
            conflicts: self.conflicts.load(Ordering::Relaxed),
            storage_operations: requests.values().sum(),
            requests: requests
                .iter()
                .map(|((service, method), count)| (format!("{service} {method}"), *count))
                .collect(),
        }
    }
}

/// Adds the route of the counts to an application that has them as its data.
pub fn configure(config: &mut ServiceConfig) {
    config.route("/bench/counts", get().to(answer));
}

async fn answer(counts: Data<Counts>) -> impl Responder {
    Json(counts.counted())
}

/// A server of the counts only, for the worker.
pub fn serve(counts: Arc<Counts>, listener: TcpListener) -> std::io::Result<Server> {
    let server =
        HttpServer::new(move || App::new().app_data(Data::from(Arc::clone(&counts))).configure(configure));
    Ok(server.workers(1).disable_signals().listen(listener)?.run())
}
