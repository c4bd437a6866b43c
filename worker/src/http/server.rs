//! The server of a worker process.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::http::StatusCode;
use actix_web::middleware::from_fn;
use actix_web::web::{Data, get};
use actix_web::{App, HttpResponse, HttpServer};
use futures::FutureExt as _;
use postonce_shared::oversight::prices::Prices;
use serde_json::json;

use super::{Connections, PeerState, Refusal, attend, configure};
use crate::meter::Meter;
use crate::metrics::{OPENMETRICS, WorkerMetrics};
use crate::readiness::{Part, Readiness};

/// How long a client may take to send the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// How long an idle connection is kept: longer than the clients of other processes keep it.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// Most connections at the same time: the other processes of the bank, and whoever watches.
const CONNECTIONS_MAX: usize = 512;
/// How long requests in hand may take to end when the server stops.
const DRAIN_S: u64 = 1;

/// What the server of a worker process needs.
pub struct WorkerApp {
    /// What the process is to others.
    pub callee: PeerState,
    /// What storage operations cost.
    pub prices: Prices,
}

/// What a worker's health is read from.
struct Vitals {
    readiness: Arc<Readiness>,
    meter: Arc<Meter>,
    /// Faults that were taken note of.
    queue_faults: AtomicU64,
    ledger_faults: AtomicU64,
}

impl Vitals {
    /// What is missing. Faults since the last look count: then the part is probed until it is back.
    fn missing(&self) -> Vec<&'static str> {
        let faults = [
            (Part::Queue, &self.meter.queue_faults, &self.queue_faults),
            (Part::Ledger, &self.meter.ledger_faults, &self.ledger_faults),
        ];
        for (part, counter, noted) in faults {
            let count = counter.get();
            if noted.swap(count, Ordering::Relaxed) != count {
                self.readiness.lose(part);
            }
        }
        self.readiness.missing()
    }
}

/// Starts to serve on a bound address. The caller awaits the server, and stops it through its handle.
///
/// # Errors
/// When the address cannot be listened on.
pub fn serve(app: WorkerApp, listener: TcpListener) -> std::io::Result<Server> {
    let WorkerApp { callee, prices } = app;
    let metrics = Data::new(WorkerMetrics::new(&callee.meter, &callee.operations, &prices));
    let (meter, readiness) = (Arc::clone(&callee.meter), Arc::clone(&callee.readiness));
    let (queue_faults, ledger_faults) = (AtomicU64::new(0), AtomicU64::new(0));
    let vitals = Data::new(Vitals { readiness, meter, queue_faults, ledger_faults });
    let connections = Connections::new(Arc::clone(&callee.world), KEEP_ALIVE.saturating_add(HEAD_PATIENCE));
    callee.world.spawn(Arc::clone(&connections).watch().boxed());
    let callee = Data::new(callee);
    let server = HttpServer::new(move || {
        App::new()
            .app_data(Data::clone(&callee))
            .app_data(Data::clone(&vitals))
            .app_data(Data::clone(&metrics))
            .route("/livez", get().to(livez))
            .route("/readyz", get().to(readyz))
            .route("/metrics", get().to(text_of_metrics))
            .configure(configure)
            .default_service(actix_web::web::to(not_found))
            .wrap(from_fn(attend))
    })
    .on_connect(move |stream, data| connections.admit(stream, data))
    // Small requests, now and then: the cores are for posting.
    .workers(1)
    .max_connections(CONNECTIONS_MAX)
    .client_request_timeout(HEAD_PATIENCE)
    .keep_alive(KEEP_ALIVE)
    .shutdown_timeout(DRAIN_S)
    .disable_signals()
    .listen(listener)?;
    Ok(server.run())
}

/// Starts to serve on a bound address what the other processes of the bank ask, and nothing else: for a
/// process whose other server is for partners. The caller awaits the server, and stops it through its
/// handle.
///
/// # Errors
/// When the address cannot be listened on.
pub fn serve_peers(callee: PeerState, listener: TcpListener) -> std::io::Result<Server> {
    let connections = Connections::new(Arc::clone(&callee.world), KEEP_ALIVE.saturating_add(HEAD_PATIENCE));
    callee.world.spawn(Arc::clone(&connections).watch().boxed());
    let callee = Data::new(callee);
    let server = HttpServer::new(move || {
        App::new()
            .app_data(Data::clone(&callee))
            .configure(configure)
            .default_service(actix_web::web::to(not_for_partners))
            .wrap(from_fn(attend))
    })
    .on_connect(move |stream, data| connections.admit(stream, data))
    .workers(1)
    .max_connections(CONNECTIONS_MAX)
    .client_request_timeout(HEAD_PATIENCE)
    .keep_alive(KEEP_ALIVE)
    .shutdown_timeout(DRAIN_S)
    .disable_signals()
    .listen(listener)?;
    Ok(server.run())
}

async fn not_for_partners() -> Result<HttpResponse, Refusal> {
    Err(Refusal::new(StatusCode::NOT_FOUND, "Only other processes of the bank are served here."))
}

async fn livez() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "status": "ok" }))
}

async fn readyz(vitals: Data<Vitals>) -> HttpResponse {
    let missing = vitals.missing();
    if missing.is_empty() {
        return HttpResponse::Ok().json(json!({ "status": "ok" }));
    }
    HttpResponse::ServiceUnavailable().json(json!({ "status": "unavailable", "missing": missing }))
}

async fn text_of_metrics(metrics: Data<WorkerMetrics>) -> Result<HttpResponse, Refusal> {
    let failed = |_| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "The metrics cannot be written.");
    Ok(HttpResponse::Ok().content_type(OPENMETRICS).body(metrics.text().map_err(failed)?))
}

async fn not_found() -> Result<HttpResponse, Refusal> {
    Err(Refusal::new(StatusCode::NOT_FOUND, "A worker has /livez, /readyz and /metrics."))
}
