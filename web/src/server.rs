//! The HTTP server: state of the handlers, actix-web application, and listener. `main` and the tests build the same
//! application.

use std::net::TcpListener;
use std::num::NonZeroUsize;
use std::sync::Arc;

use actix_web::dev::Server;
use actix_web::http::header::{STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS};
use actix_web::middleware::{DefaultHeaders, from_fn};
use actix_web::web::Data;
use postonce_process::http::{Application, ForgetPartner, PeerState, start, track_request};
use postonce_process::meter::Meter;
use postonce_process::process_gate::ProcessGate;
use postonce_process::readiness::Readiness;
use postonce_shared::access::used_signatures::UsedSignatures;
use postonce_shared::adapters::http::PeerNetwork;
use postonce_shared::bank::Bank;
use postonce_shared::config::{ConsoleTerms, HttpLimits, SignatureTerms, TrustedProxies};
use postonce_shared::oversight::anchors::AnchorLog;
use postonce_shared::oversight::audit::AuditTrail;
use postonce_shared::ports::process_registry::Address;
use postonce_shared::ports::world::World;
use postonce_shared::protocol::accept::Acceptor;
use postonce_shared::tracer::Tracer;
use rustls::ServerConfig;

use crate::access::keyring::Keyring;
use crate::access::partner_broadcast::PartnerBroadcast;
use crate::access::partner_service::PartnerService;
use crate::access::rates::Rates;
use crate::access::shares::PartnerShares;
use crate::access::signatures::Verifier;
use crate::admin::gate::GateService;
use crate::admin::overview::OverviewService;
use crate::admin::service::{AdminService, AdminTerms};
use crate::admin::workers::AllWorkers;
use crate::api::account_service::AccountService;
use crate::api::batch_service::BatchService;
use crate::api::ingest_bells::IngestBells;
use crate::api::negotiate::refuse_in_format;
use crate::api::routes;
use crate::api::surface::Surface;
use crate::console::context::Console;
use crate::console::local_api::LocalApi;
use crate::console::routes as console_routes;
use crate::edge::limits::{ConcurrencyLimit, bound_heads, limit_concurrency};
use crate::edge::observe::{Observer, observe};
use crate::metrics::Metrics;

/// Maximum time in seconds for requests in progress to finish after a shutdown.
const DRAIN_S: u64 = 10;
/// `Strict-Transport-Security` for responses over TLS: browsers use only TLS for a year (RFC 6797).
const TLS_ONLY: &str = "max-age=31536000";

/// State of the handlers, by role. A handler extracts the parts that it uses.
#[derive(Clone)]
pub struct App {
    /// Accepts deposits and withdrawals.
    pub acceptor: Arc<Acceptor>,
    /// Receives batches and reports their results.
    pub batches: Arc<BatchService>,
    /// Manages accounts and reads transactions.
    pub accounts_service: Arc<AccountService>,
    /// Reports and repairs for operators.
    pub admin: Arc<AdminService>,
    /// The gate, which holds and releases all posting.
    pub gate: Arc<GateService>,
    /// The overview of the whole bank.
    pub overview: Arc<OverviewService>,
    /// Looks up API keys.
    pub keyring: Arc<Keyring>,
    /// Manages partners.
    pub partners: Arc<PartnerService>,
    /// The trail of administrative acts.
    pub audit: Arc<AuditTrail>,
    /// The log of anchors.
    pub anchors: Arc<AnchorLog>,
    /// Readiness of the parts of the service.
    pub readiness: Arc<Readiness>,
    /// Prometheus metrics.
    pub metrics: Arc<Metrics>,
    /// State for calls from other processes of the bank.
    pub callee: Arc<PeerState>,
    /// Limits for connections and requests.
    pub limits: HttpLimits,
    /// Whether other processes of the bank use the same address as partners.
    pub serves_peers: bool,
    /// Selects the routes to serve.
    pub surface: Surface,
    /// Settings of the console, which is served where operators are; `None` without a console.
    pub console: Option<ConsoleTerms>,
    /// Verifies request signatures.
    pub verifier: Verifier,
    /// Records used signatures, so that each is accepted once.
    pub used_signatures: Arc<UsedSignatures>,
    /// Rate limits of partners.
    pub rates: Arc<Rates>,
    /// Shares of the partners in the limits of this process.
    pub shares: Arc<PartnerShares>,
    /// Proxies whose headers name the client.
    pub trusted_proxies: Arc<TrustedProxies>,
    /// Limits the number of concurrent requests.
    pub concurrency: Arc<ConcurrencyLimit>,
    /// Records requests in traces.
    pub tracer: Arc<Tracer>,
    /// Rings for ingest queues.
    pub ingest: Arc<IngestBells>,
    /// Clock, timers and background tasks.
    pub world: Arc<dyn World>,
}

impl App {
    /// Creates the state for a bank. `network` reaches the other processes, and `process_gate` applies the gate in this
    /// process. The worker of this process, if there is one, reports to `meter`.
    pub fn over(
        bank: &Bank,
        network: &PeerNetwork,
        (meter, process_gate): (&Arc<Meter>, Arc<ProcessGate>),
        (terms, address): (AdminTerms, Address),
        readiness: Arc<Readiness>,
    ) -> Self {
        let world = || Arc::clone(&bank.world);
        let metrics = Metrics::new(bank, meter, &readiness);
        let keyring = Arc::new(Keyring::new(&bank.store, world()));
        let forget: ForgetPartner = {
            let (keyring, grants) = (Arc::clone(&keyring), Arc::clone(&bank.partner_grants));
            Arc::new(move |partner| {
                keyring.forget(partner);
                grants.forget(partner);
            })
        };
        let ring = PartnerBroadcast::new(network, world(), Some(Arc::clone(&forget)));
        let mut callee =
            PeerState::of(bank, network, meter, Arc::clone(&process_gate), &readiness, address.clone());
        callee.partners = forget;
        let callee = Arc::new(callee);
        let workers = AllWorkers {
            address: address.to_string(),
            started_at: callee.started_at,
            world: world(),
            meter: Arc::clone(meter),
            served: Arc::clone(bank.acceptor.served()),
            operations: Arc::clone(&bank.store.operations),
            broadcast: Arc::clone(&network.broadcast),
        };
        let gate = GateService::new(bank, network, process_gate, Some(address.clone()));
        let overview = OverviewService::new(bank, network, (&callee, address), &gate, &terms);
        Self {
            callee,
            partners: Arc::new(PartnerService::new(&bank.store, world(), ring)),
            acceptor: Arc::clone(&bank.acceptor),
            batches: Arc::new(BatchService::new(bank.batches.clone(), terms.prices.clone(), world())),
            accounts_service: Arc::new(AccountService::new(bank)),
            admin: Arc::new(AdminService::new(bank, Arc::new(workers), terms)),
            gate: Arc::new(gate),
            overview: Arc::new(overview),
            keyring,
            audit: Arc::clone(&bank.audit),
            anchors: Arc::new(AnchorLog::new(&bank.store, &bank.world)),
            readiness,
            metrics: Arc::new(metrics),
            limits: HttpLimits::default(),
            serves_peers: false,
            surface: Surface::Everything,
            console: Some(ConsoleTerms::default()),
            verifier: Verifier { terms: SignatureTerms::default(), is_tls: false },
            used_signatures: Arc::new(UsedSignatures::new(&bank.store)),
            rates: Arc::new(Rates::new(&HttpLimits::default(), world())),
            shares: Arc::new(PartnerShares::of(&HttpLimits::default())),
            trusted_proxies: Arc::default(),
            concurrency: Arc::new(ConcurrencyLimit::new(HttpLimits::default().connections_max)),
            tracer: Arc::clone(&bank.tracer),
            ingest: Arc::new(IngestBells::new(bank, Vec::new())),
            world: world(),
        }
    }

    /// Replaces the limits, and all state that depends on them.
    #[must_use]
    pub fn within(self, limits: HttpLimits) -> Self {
        let rates = Arc::new(Rates::new(&limits, Arc::clone(&self.world)));
        let concurrency = Arc::new(ConcurrencyLimit::new(limits.connections_max));
        let shares = Arc::new(PartnerShares::of(&limits));
        Self { limits, rates, concurrency, shares, ..self }
    }
}

/// Builds the application: all routes with their middleware, and the console if operators are served.
pub fn build(app: &App) -> actix_web::App<impl Application + use<>> {
    let terms = app.console.filter(|_| app.surface != Surface::Partners);
    let Some(terms) = terms else { return build_api(app) };
    let App { callee, readiness, shares, world, .. } = app.clone();
    let console = Console { terms, secret: Arc::clone(&callee.secret), readiness, shares, world };
    // The console uses the key of the operator, so its API has all routes at every address.
    let api = App { surface: Surface::Everything, serves_peers: false, ..app.clone() };
    build_api(app)
        .app_data(Data::new(terms))
        .app_data(Data::new(console))
        .data_factory(move || {
            let api = build_api(&api);
            async { LocalApi::start(api).await.map_err(|()| "the API cannot be started for the console") }
        })
        .configure(console_routes::configure)
}

/// Builds the application without the console.
fn build_api(app: &App) -> actix_web::App<impl Application + use<>> {
    let App {
        acceptor,
        batches,
        accounts_service,
        admin,
        gate,
        overview,
        keyring,
        partners,
        audit,
        anchors,
        readiness,
        metrics,
        callee,
        limits,
        serves_peers,
        surface,
        console: _,
        verifier,
        used_signatures,
        concurrency,
        rates,
        shares,
        trusted_proxies,
        tracer: _,
        ingest,
        world,
    } = app.clone();
    let safety = DefaultHeaders::new().add((X_CONTENT_TYPE_OPTIONS, "nosniff"));
    let safety = if verifier.is_tls { safety.add((STRICT_TRANSPORT_SECURITY, TLS_ONLY)) } else { safety };
    let observer = observer(app);
    actix_web::App::new()
        .app_data(Data::from(acceptor))
        .app_data(Data::from(batches))
        .app_data(Data::from(world))
        .app_data(Data::from(accounts_service))
        .app_data(Data::from(admin))
        .app_data(Data::from(gate))
        .app_data(Data::from(overview))
        .app_data(Data::from(keyring))
        .app_data(Data::from(partners))
        .app_data(Data::from(audit))
        .app_data(Data::from(anchors))
        .app_data(Data::from(ingest))
        .app_data(Data::from(readiness))
        .app_data(Data::from(Arc::clone(&callee.meter.scrubber)))
        .app_data(Data::from(metrics))
        .app_data(Data::from(callee))
        .app_data(Data::new(limits))
        .app_data(Data::from(used_signatures))
        .app_data(Data::from(rates))
        .app_data(Data::from(shares))
        .app_data(Data::from(trusted_proxies))
        .app_data(Data::from(concurrency))
        .app_data(Data::new(verifier))
        .app_data(Data::new(surface))
        .app_data(Data::new(observer))
        .configure(|config| {
            if serves_peers {
                postonce_process::http::configure(config);
            }
            routes::configure(config, surface);
        })
        .wrap(from_fn(limit_concurrency))
        .wrap(from_fn(bound_heads))
        .wrap(from_fn(observe))
        // Wraps `observe`: metrics and log use the original status, even if SOAP requires another one.
        .wrap(from_fn(refuse_in_format))
        .wrap(safety)
        .wrap(from_fn(track_request))
}

fn observer(app: &App) -> Observer {
    let App { metrics, readiness, tracer, world, .. } = app.clone();
    Observer { metrics, readiness, tracer, world }
}

/// Starts the server on a bound address, over TLS if it is configured. The caller awaits the server, handles signals, and
/// stops the server gracefully through its handle.
///
/// # Errors
/// When the listener is not usable.
pub fn serve(app: App, listener: TcpListener, tls: Option<ServerConfig>) -> std::io::Result<Server> {
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let (world, limits) = (Arc::clone(&app.world), app.limits);
    let proxies = Arc::clone(&app.trusted_proxies);
    start(move || build(&app), &world, &limits, threads, DRAIN_S, listener, (tls, proxies))
}
