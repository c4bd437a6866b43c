use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::*;
use crate::testing::prelude::*;

const HOUR: Duration = Duration::from_secs(3600);

/// A source that returns the scripted results. The texts of its tokens are 1, 2, …
#[derive(Debug)]
struct Scripted {
    results: Mutex<VecDeque<Result<Duration, TokenFault>>>,
    /// Permits for requests to end.
    released: Semaphore,
    requests: AtomicU32,
}

impl Scripted {
    fn new(results: impl IntoIterator<Item = Result<Duration, TokenFault>>) -> Arc<Self> {
        let results: VecDeque<_> = results.into_iter().collect();
        let released = Semaphore::new(Semaphore::MAX_PERMITS >> 1);
        Arc::new(Self { results: Mutex::new(results), released, requests: AtomicU32::new(0) })
    }

    fn requests(&self) -> u32 {
        self.requests.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl TokenSource for Scripted {
    async fn request(&self, _: &dyn World) -> Result<Token, TokenFault> {
        let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
        self.released.acquire().await.unwrap().forget();
        let result = self.results.lock().pop_front().expect("a request that the test expects");
        result.map(|lifetime| Token { text: SecretString::from(number.to_string()), lifetime })
    }
}

fn fault() -> TokenFault {
    TokenFault::Unreachable { endpoint: "endpoint".to_owned(), reason: "refused".to_owned() }
}

struct Fixture {
    world: Arc<TestWorld>,
    source: Arc<Scripted>,
    token: RenewedToken,
}

impl Fixture {
    fn new(results: impl IntoIterator<Item = Result<Duration, TokenFault>>) -> Self {
        let (world, source) = (Arc::new(TestWorld::new(1)), Scripted::new(results));
        let (shared_source, shared_world) = (Arc::clone(&source), Arc::clone(&world));
        Self { token: RenewedToken::new(shared_source, shared_world), world, source }
    }

    async fn get(&self) -> Result<String, String> {
        let token = self.token.get_token(&[]).await;
        token.map(|token| token.token.secret().to_owned()).map_err(|error| error.to_string())
    }

    /// Yields until the tasks of the world have run.
    async fn settle(&self) {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn requests_that_need_the_first_token_share_one_request_for_it() {
    let fixture = Fixture::new([Ok(HOUR)]);
    let tokens = futures::future::join_all((0..8).map(|_| fixture.get())).await;
    assert_eq!(tokens, vec![Ok("1".to_owned()); 8]);
    assert_eq!(fixture.source.requests(), 1);
}

#[tokio::test]
async fn a_token_is_renewed_after_half_of_its_lifetime_while_requests_use_it() {
    let fixture = Fixture::new([Ok(HOUR), Ok(HOUR)]);
    assert_eq!(fixture.get().await.unwrap(), "1");
    fixture.world.advance(HOUR / 2 - Duration::from_secs(1));
    assert_eq!(fixture.get().await.unwrap(), "1");
    fixture.settle().await;
    assert_eq!(fixture.source.requests(), 1, "renewed before half of the lifetime");

    fixture.source.released.forget_permits(usize::MAX);
    fixture.world.advance(Duration::from_secs(1));
    for _ in 0..3 {
        assert_eq!(fixture.get().await.unwrap(), "1", "no request waits while the token is valid");
        fixture.settle().await;
    }
    assert_eq!(fixture.source.requests(), 2, "one renewal at a time");
    fixture.source.released.add_permits(1);
    fixture.settle().await;
    assert_eq!(fixture.get().await.unwrap(), "2");
}

#[tokio::test]
async fn while_renewals_fail_the_token_is_used_until_shortly_before_its_end_and_then_requests_fail() {
    let fixture = Fixture::new(std::iter::once(Ok(HOUR)).chain((0..100).map(|_| Err(fault()))));
    assert_eq!(fixture.get().await.unwrap(), "1");
    let step = Duration::from_secs(60);
    while fixture.world.uptime() + step <= HOUR - Duration::from_secs(30) {
        assert_eq!(fixture.get().await.unwrap(), "1");
        fixture.settle().await;
        fixture.world.advance(step);
    }
    assert!(
        (20..40).contains(&fixture.source.requests()),
        "{} requests in 30 minutes",
        fixture.source.requests()
    );
    fixture.world.advance(step);
    let error = fixture.get().await.unwrap_err();
    assert!(error.contains("endpoint cannot be reached: refused"), "{error}");
    let before = fixture.source.requests();
    fixture.get().await.unwrap_err();
    assert_eq!(fixture.source.requests(), before, "the next attempt waits for its delay");
}

#[tokio::test]
async fn an_endpoint_that_works_again_ends_the_failures() {
    let fixture = Fixture::new([Err(fault()), Ok(HOUR)]);
    fixture.get().await.unwrap_err();
    fixture.world.advance(Duration::from_secs(1));
    assert_eq!(fixture.get().await.unwrap(), "2");
}

#[tokio::test]
async fn a_refused_token_is_replaced_unless_it_is_new() {
    let fixture = Fixture::new([Ok(HOUR), Ok(HOUR)]);
    assert_eq!(fixture.get().await.unwrap(), "1");
    fixture.token.note_unauthorized();
    assert_eq!(fixture.get().await.unwrap(), "1");
    fixture.world.advance(Duration::from_secs(61));
    fixture.token.note_unauthorized();
    assert_eq!(fixture.get().await.unwrap(), "1", "it is used until there is another one");
    fixture.settle().await;
    assert_eq!(fixture.get().await.unwrap(), "2");
}

#[tokio::test]
async fn a_token_with_a_short_lifetime_is_used() {
    let fixture = Fixture::new([Ok(Duration::from_secs(8)), Ok(HOUR)]);
    assert_eq!(fixture.get().await.unwrap(), "1");
    fixture.world.advance(Duration::from_secs(3));
    assert_eq!(fixture.get().await.unwrap(), "1");
    fixture.world.advance(Duration::from_secs(1));
    assert_eq!(fixture.get().await.unwrap(), "2");
}

#[test]
fn a_missing_variable_of_the_platform_is_named() {
    let world: Arc<dyn World> = Arc::new(TestWorld::new(1));
    let refused = |kind, variables: &[(&str, &str)]| {
        let connection = AzureConnection::parse("AccountName=bank1").unwrap();
        let terms = IdentityTerms { kind, client_id: None };
        let find = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        credentials(&connection, &terms, None, &world, &find).err().map(|error| error.to_string())
    };
    let names = |error: Option<String>, part: &str| {
        let error = error.expect("an error");
        assert!(error.contains(part), "{error}");
    };
    names(refused(AzureIdentity::Workload, &[]), "variable AZURE_CLIENT_ID, or the setting azure-client-id");
    let client = ("AZURE_CLIENT_ID", "00000000-0000-0000-0000-000000000001");
    names(refused(AzureIdentity::Workload, &[client]), "AZURE_TENANT_ID");
    let tenant = ("AZURE_TENANT_ID", "tenant");
    names(refused(AzureIdentity::Workload, &[client, tenant]), "AZURE_FEDERATED_TOKEN_FILE");
    let file = ("AZURE_FEDERATED_TOKEN_FILE", "/var/run/secrets/azure/tokens/azure-identity-token");
    assert_eq!(refused(AzureIdentity::Workload, &[client, tenant, file]), None);
    let plain = ("AZURE_AUTHORITY_HOST", "http://login.example");
    names(refused(AzureIdentity::Workload, &[client, tenant, file, plain]), "AZURE_AUTHORITY_HOST must be");
    assert_eq!(refused(AzureIdentity::Managed, &[]), None);
    let endpoint = ("IDENTITY_ENDPOINT", "http://localhost:42356/msi/token");
    names(refused(AzureIdentity::Managed, &[endpoint]), "IDENTITY_HEADER");
    for header in ["", "\n", "one\ntwo", "é"] {
        let refused = refused(AzureIdentity::Managed, &[endpoint, ("IDENTITY_HEADER", header)]);
        names(refused, "IDENTITY_HEADER must be visible ASCII");
    }
    assert_eq!(refused(AzureIdentity::Managed, &[endpoint, ("IDENTITY_HEADER", "h\r\n")]), None);
    names(
        refused(
            AzureIdentity::Managed,
            &[("IDENTITY_ENDPOINT", "localhost:42356/msi/token"), ("IDENTITY_HEADER", "h")],
        ),
        "IDENTITY_ENDPOINT must be",
    );
    names(refused(AzureIdentity::Key, &[]), "AccountKey");
}
