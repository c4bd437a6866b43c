//! The command `health` of both programs: asks the process on this machine or in this container whether it is ready. It serves
//! as the health check of container images without a shell and an HTTP client.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

const TIMEOUT: Duration = Duration::from_secs(3);

/// Address of the HTTP server of a process.
#[derive(Debug, Clone, Copy)]
pub struct Listening {
    /// Name of the setting that contains the address.
    pub setting: &'static str,
    /// Address on which the server listens.
    pub address: SocketAddr,
    /// Whether the server uses TLS.
    pub is_encrypted: bool,
}

/// Asks the process whether it is ready.
///
/// Fails if the process cannot be reached within three seconds or is not ready, or if its port is 0.
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
        // The certificate is valid for the public host name only, and the response is used for its status alone.
        .danger_accept_invalid_certs(true)
        .build()?;
    let answer = http.get(&url).send().await.with_context(|| format!("no process answers at {url}"))?;
    let status = answer.status();
    if !status.is_success() {
        bail!("not ready: {url} answered {}", status.as_u16());
    }
    Ok(())
}

/// Returns the address at which this machine reaches the server: the loopback address if it listens on all addresses.
const fn reachable(address: SocketAddr) -> SocketAddr {
    let host = match address.ip() {
        IpAddr::V4(host) if host.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(host) if host.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        host @ (IpAddr::V4(_) | IpAddr::V6(_)) => host,
    };
    SocketAddr::new(host, address.port())
}
