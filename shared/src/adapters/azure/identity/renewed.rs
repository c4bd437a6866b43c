//! A cached token. The first request after half of its lifetime starts a renewal in the background, so that a token
//! endpoint can be down for hours without effect. Requests wait for a token only if there is no valid one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::auth::{AccessToken, Secret, TokenCredential};
use azure_core::error::{Error, ErrorKind};
use futures::FutureExt as _;
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use time::OffsetDateTime;
use tokio::sync::watch;
use tracing::{debug, warn};

use super::{Token, TokenFault, TokenSource};
use crate::backoff::TOKEN;
use crate::ports::world::World;

/// Minimum remaining lifetime of a token in use, because a request may take seconds, and clocks differ.
const MARGIN: Duration = Duration::from_secs(30);
/// Minimum time between two successful renewals. Near the expiry, half of the remaining lifetime would be short.
const INTERVAL_MIN: Duration = Duration::from_secs(60);

/// The cached token of a process, from one source.
pub(super) struct RenewedToken(Arc<Shared>);

struct Shared {
    source: Arc<dyn TokenSource>,
    world: Arc<dyn World>,
    state: Mutex<State>,
    /// Number of token requests that have ended.
    ended: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    current: Option<Current>,
    is_requesting: bool,
    failures: u32,
    /// Why the last request failed, and the uptime before which no other request starts.
    failed: Option<(TokenFault, Duration)>,
}

/// A cached token. Times are in [`World::uptime`].
struct Current {
    token: SecretString,
    since: Duration,
    renew_from: Duration,
    usable_until: Duration,
    expires_at: OffsetDateTime,
}

/// The result of asking for the token.
enum Answer {
    Token(AccessToken),
    /// There is no usable token, and a request is in progress.
    Wait,
    Fault(TokenFault),
}

impl RenewedToken {
    /// Creates the cache without a token. The first use requests one from the source.
    pub(super) fn new(source: Arc<dyn TokenSource>, world: Arc<dyn World>) -> Self {
        Self(Arc::new(Shared { source, world, state: Mutex::default(), ended: watch::Sender::new(0) }))
    }

    /// Records that the storage refused the token, so that the next use starts a renewal, unless the token is new. It
    /// stays in use until then, because the refusal may be temporary and the endpoint may fail.
    pub(super) fn note_unauthorized(&self) {
        let now = self.0.world.uptime();
        let mut state = self.0.state.lock();
        if let Some(current) = &mut state.current
            && now.saturating_sub(current.since) >= INTERVAL_MIN
        {
            current.renew_from = now;
        }
    }
}

impl Shared {
    /// Returns the current state, and starts a request to the source if one is due.
    fn answer(self: &Arc<Self>) -> Answer {
        let now = self.world.uptime();
        let mut state = self.state.lock();
        let usable = state.current.as_ref().filter(|current| now < current.usable_until);
        let (is_due, token) = match usable {
            Some(current) => {
                let secret = Secret::new(current.token.expose_secret().to_owned());
                (now >= current.renew_from, Some(AccessToken::new(secret, current.expires_at)))
            }
            None => (true, None),
        };
        let fault = state.failed.as_ref().filter(|(_, until)| now < *until).map(|(fault, _)| fault.clone());
        if is_due && fault.is_none() && !state.is_requesting {
            state.is_requesting = true;
            self.world.spawn(Arc::clone(self).request().boxed());
        }
        match (token, fault) {
            (Some(token), _) => Answer::Token(token),
            (None, Some(fault)) => Answer::Fault(fault),
            (None, None) => Answer::Wait,
        }
    }

    async fn request(self: Arc<Self>) {
        let result = self.source.request(&*self.world).await;
        let now = self.world.uptime();
        {
            let mut state = self.state.lock();
            state.is_requesting = false;
            match result {
                Ok(token) => {
                    debug!("A token for Azure Storage was obtained, which is valid for {:?}", token.lifetime);
                    state.current = Some(self.current(token, now));
                    state.failures = 0;
                    state.failed = None;
                }
                Err(fault) => {
                    state.failures = state.failures.saturating_add(1);
                    let usable = state
                        .current
                        .as_ref()
                        .map_or(Duration::ZERO, |current| current.usable_until.saturating_sub(now));
                    if usable.is_zero() {
                        warn!("No request to Azure Storage is possible, because there is no token: {fault}");
                    } else {
                        warn!(
                            "The token for Azure Storage is usable for {usable:.0?} and was not renewed: {fault}"
                        );
                    }
                    let until = now.saturating_add(TOKEN.delay(state.failures, &*self.world));
                    state.failed = Some((fault, until));
                }
            }
        }
        self.ended.send_modify(|ended| *ended = ended.wrapping_add(1));
    }

    fn current(&self, token: Token, now: Duration) -> Current {
        let Token { text, lifetime } = token;
        let half = lifetime.checked_div(2).unwrap_or_default();
        // A token with a very short lifetime is used for half of it.
        let margin = MARGIN.min(half);
        let expires_ms = self.world.now().after(lifetime).unix_ms();
        Current {
            token: text,
            since: now,
            renew_from: now.saturating_add(half.max(INTERVAL_MIN)),
            usable_until: now.saturating_add(lifetime.saturating_sub(margin)),
            expires_at: OffsetDateTime::from_unix_timestamp(expires_ms.div_euclid(1000))
                .unwrap_or(OffsetDateTime::UNIX_EPOCH),
        }
    }
}

#[async_trait]
impl TokenCredential for RenewedToken {
    async fn get_token(&self, _: &[&str]) -> azure_core::Result<AccessToken> {
        loop {
            // Subscribed before the state is read, so that no end of a request is missed.
            let mut ended = self.0.ended.subscribe();
            match self.0.answer() {
                Answer::Token(token) => return Ok(token),
                Answer::Fault(fault) => return Err(Error::new(ErrorKind::Credential, fault)),
                // Waiting cannot fail, because the sender lives as long as `self`.
                Answer::Wait => drop(ended.changed().await),
            }
        }
    }

    async fn clear_cache(&self) -> azure_core::Result<()> {
        self.0.state.lock().current = None;
        Ok(())
    }
}

impl fmt::Debug for RenewedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenewedToken").field("source", &self.0.source).finish_non_exhaustive()
    }
}
