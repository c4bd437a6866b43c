//! The wires of the adapter in a simulated world. [`SimulatedWire`] sends the requests of one process over the network. In
//! addition to the faults of every request, the response to a write may be an error although it was executed, and the response
//! to a batch may be truncated. [`DirectWire`] is for the auditor, without delays and faults.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::{Either, select};
use hyper::Method;
use hyper::header::{HeaderValue, RETRY_AFTER};
use hyper::http::uri::PathAndQuery;
use parking_lot::Mutex;
use postonce_shared::adapters::azure::wire::{Wire, WireFault, WireRequest, WireResponse};
use postonce_shared::testing::prelude::*;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use super::tables::{Tables, date};
use crate::simulation::faults::Fault;
use crate::simulation::network::{Lateness, Network, StoreRequest};
use crate::simulation::process_world::store_time;
use crate::simulation::scheduler::{ProcessId, Scheduler};
use crate::storage_proxy::Service;
use crate::storage_proxy::error_responses::{BUSY, FAILED, ProxiedResponse, stale};
use crate::storage_proxy::pages::{self, Page};
use crate::storage_proxy::request::ProxiedRequest;
use crate::storage_proxy::rules;

/// Maximum times after which a late write is executed: during the read-back of its sender, during the next decision, or much
/// later.
const LATE_MAX: [Duration; 3] = [Duration::from_millis(300), Duration::from_secs(2), Duration::from_secs(90)];

/// Number of lost writes, per thousand, that arrive late. Read-backs exist for these.
const LATE_PERMILLE: u32 = 500;

/// Checks the store after a request of a port call. The flag tells whether the request wrote rows or was refused.
pub type Check = Arc<dyn Fn(&Network, bool) + Send + Sync>;

tokio::task_local! {
    static CHECK: Check;
}

/// Runs a port call. After each of its write requests, the check runs in the same step, even if the request is late or repeated.
pub async fn checked<T>(
    check: impl Fn(&Network, bool) + Send + Sync + 'static,
    call: impl Future<Output = T>,
) -> T {
    let check: Check = Arc::new(check);
    CHECK.scope(check, call).await
}

/// Sends the requests of one process.
pub struct SimulatedWire {
    network: Arc<Network>,
    process_id: ProcessId,
    tables: Arc<Mutex<Tables>>,
}

impl fmt::Debug for SimulatedWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedWire").field("process_id", &self.process_id).finish_non_exhaustive()
    }
}

impl SimulatedWire {
    /// Creates the wire of a process to these tables.
    pub const fn new(network: Arc<Network>, process_id: ProcessId, tables: Arc<Mutex<Tables>>) -> Self {
        Self { network, process_id, tables }
    }

    /// Draws the response to a query: an empty page, or `None` for a page of the tables.
    fn page(&self, request: &mut ProxiedRequest) -> Option<ProxiedResponse> {
        if request.method != Method::GET || !request.target.path().ends_with("()") {
            return None;
        }
        let mut rng = StdRng::seed_from_u64(self.network.scheduler.random());
        match pages::draw(&request.target, &mut rng) {
            Page::Empty(empty) => Some(empty),
            Page::Forward(target) => {
                request.target = target;
                None
            }
        }
    }

    /// Returns what the sender receives if a response is lost: nothing, an error, or a part of the response to a batch.
    fn remains(&self, is_batch: bool, answer: Option<ProxiedResponse>) -> Result<ProxiedResponse, Fault> {
        let scheduler = &self.network.scheduler;
        match (scheduler.below(3), answer) {
            (0, Some(mut answer)) if is_batch => {
                let length = u64::try_from(answer.body.len()).unwrap_or(u64::MAX);
                let length = usize::try_from(scheduler.below(length.max(1))).unwrap_or(0);
                answer.body.truncate(length);
                self.note(&format!("{length} bytes of the answer arrive"));
                Ok(answer)
            }
            (1, Some(_)) => Ok(dated(FAILED.response(Service::Table), scheduler)),
            _ => Err(Fault::AnswerLost),
        }
    }

    /// Returns the response to a batch with a condition that does not hold.
    pub(super) fn stale_batch(&self) -> WireResponse {
        answered(dated(stale(Service::Table, true), &self.network.scheduler))
    }

    /// Adds an event of the process to the trace.
    pub(super) fn note(&self, what: &str) {
        self.network.note(format!("{} {what}", self.process_id.number()));
    }
}

#[async_trait]
impl Wire for SimulatedWire {
    async fn send(&self, request: WireRequest) -> Result<WireResponse, WireFault> {
        let (network, scheduler) = (&self.network, &self.network.scheduler);
        let timeout = request.timeout;
        let mut request = proxied(request);
        // The Azure crates sign with the clock of this machine.
        if let Err(refusal) = rules::check(Service::Table, &request, SystemWorld::new().now()) {
            network.auditor.report(refusal.finding(&request));
        }
        let (page, is_batch) = (self.page(&mut request), request.is_batch());
        let check = CHECK.try_with(Arc::clone).ok();
        let (tables, answer) = (Arc::clone(&self.tables), Arc::new(Mutex::new(None)));
        let late_max = scheduler.one_of(&LATE_MAX);
        let lateness = Lateness { gives_up_max: timeout, late_max, late_permille: LATE_PERMILLE };
        let store_request = StoreRequest { lateness, ..store_request(&request) };
        let last = Arc::clone(&answer);
        let operation = move |network: &Network| {
            let at = store_time(&network.scheduler);
            let applied = match &page {
                Some(empty) => dated(empty.clone(), &network.scheduler),
                None => {
                    let applied = tables.lock().apply(&request, at);
                    if let Some(check) = check.as_ref().filter(|_| request.method != Method::GET) {
                        check(network, applied.is_written);
                    }
                    applied.response
                }
            };
            *last.lock() = Some(applied.clone());
            Ok(applied)
        };
        let exchange = network.exchange(self.process_id, store_request, operation).boxed();
        let waits = scheduler.sleep(self.process_id, timeout).boxed();
        let arrived = match select(exchange, waits).await {
            Either::Left((arrived, _)) => arrived,
            Either::Right(_) => return Err(WireFault::Unanswered("it took too long".into())),
        };
        let arrived = match arrived {
            Err(Fault::AnswerLost) => self.remains(is_batch, answer.lock().take()),
            Err(Fault::Throttled) => {
                let mut busy = BUSY.response(Service::Table);
                busy.headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
                Ok(dated(busy, scheduler))
            }
            Err(Fault::Outage) => return Err(WireFault::Unsent(Fault::Outage.name().into())),
            Err(fault) => Err(fault),
            Ok(arrived) => Ok(arrived.expect("the tables answer every request")),
        };
        arrived.map(answered).map_err(|fault| WireFault::Unanswered(fault.name().into()))
    }
}

/// Sends requests without delays and faults.
pub struct DirectWire {
    /// Source of the time.
    pub scheduler: Scheduler,
    /// The tables.
    pub tables: Arc<Mutex<Tables>>,
}

impl fmt::Debug for DirectWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectWire").finish_non_exhaustive()
    }
}

#[async_trait]
impl Wire for DirectWire {
    async fn send(&self, request: WireRequest) -> Result<WireResponse, WireFault> {
        let at = store_time(&self.scheduler);
        Ok(answered(self.tables.lock().apply(&proxied(request), at).response))
    }
}

fn dated(mut response: ProxiedResponse, scheduler: &Scheduler) -> ProxiedResponse {
    date(&mut response, store_time(scheduler));
    response
}

/// Converts a request for the rules and the tables.
pub(crate) fn proxied(request: WireRequest) -> ProxiedRequest {
    let WireRequest { method, url, headers, body, timeout: _ } = request;
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let target: PathAndQuery = format!("{}{query}", url.path()).parse().expect("a URL has a path");
    ProxiedRequest { method, target, headers, body }
}

pub(crate) fn answered(response: ProxiedResponse) -> WireResponse {
    let ProxiedResponse { status, headers, body } = response;
    WireResponse { status: status.as_u16(), headers, body }
}

/// Converts a request for the network. Proxies on the way may repeat any write.
fn store_request(request: &ProxiedRequest) -> StoreRequest {
    let path = request.target.path();
    let target = path.rsplit('/').next().unwrap_or_default();
    match request.method.as_str() {
        "GET" if path.ends_with("()") => StoreRequest::read("table-query", target),
        "GET" => StoreRequest::read("table-get", target),
        _ if request.is_batch() => StoreRequest::write("table-batch", ""),
        _ => StoreRequest::write("table-write", target),
    }
}
