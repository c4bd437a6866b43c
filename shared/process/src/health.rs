//! The command `health` of both programs: asks the process of this container or machine whether it is ready. It is the health
//! check of container images that have no shell and no HTTP client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

/// Maximum time for the answer.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Where a process listens for HTTP.
#[derive(Debug, Clone, Copy)]
pub struct Listening {
    /// The setting with the address.
    pub setting: &'static str,
    /// The address.
    pub address: SocketAddr,
    /// Whether it uses TLS.
    pub is_encrypted: bool,
}

/// Asks the process whether it is ready.
///
/// # Errors
/// When it cannot be reached within three seconds, is not ready, or the port is not fixed.
pub async fn check(listening: Listening) -> anyhow::Result<()> {
    let Listening { setting, address, is_encrypted } = listening;
    ensure!(
        address.port() != 0,
        "{setting} is {address}: the port of the process is known only if it is not 0"
    );
    let scheme = if is_encrypted { "https" } else { "http" };
    let url = format!("{scheme}://{}/readyz", reachable(address));
    let http = reqwest::Client::builder()
        .timeout(TIMEOUT)
        .no_proxy()
        // The certificate names the public host, and only the status of the answer is read.
        .danger_accept_invalid_certs(true)
        .build()?;
    let answer = http.get(&url).send().await.with_context(|| format!("no process answers at {url}"))?;
    let status = answer.status();
    if !status.is_success() {
        bail!("not ready: {url} answered {}", status.as_u16());
    }
    Ok(())
}

/// Returns the address at which this machine reaches itself.
const fn reachable(address: SocketAddr) -> SocketAddr {
    let host = match address.ip() {
        IpAddr::V4(host) if host.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(host) if host.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        host @ (IpAddr::V4(_) | IpAddr::V6(_)) => host,
    };
    SocketAddr::new(host, address.port())
}
