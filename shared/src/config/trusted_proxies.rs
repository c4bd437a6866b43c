//! The proxies whose statements about their clients are believed, and the headers in which they make them.

use std::net::IpAddr;

use clap::ValueEnum;
use ipnet::IpNet;

use super::credentials_in_urls::masked;

/// The headers that trusted proxies write, and so replace or extend when a client sends them. Those of the other kind are ignored: a
/// proxy passes them on as the client wrote them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ProxyHeaders {
    /// `X-Forwarded-For` and `X-Forwarded-Proto`.
    #[default]
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// The addresses of trusted proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies {
    networks: Vec<IpNet>,
    headers: ProxyHeaders,
}

impl TrustedProxies {
    /// Parses addresses and networks (`192.0.2.0/28`), separated by commas.
    ///
    /// # Errors
    /// A message with the allowed form.
    pub fn parse(text: &str) -> Result<Self, String> {
        let network = |item: &str| {
            let item = item.trim();
            let address = || item.parse::<IpAddr>().ok().map(|address| IpNet::from(address.to_canonical()));
            let parsed = item.parse::<IpNet>().ok().or_else(address);
            parsed.ok_or_else(|| {
                format!(
                    "must be addresses or networks such as 192.0.2.0/28, separated by commas, but has {:?}",
                    masked(item)
                )
            })
        };
        let networks = text.split(',').map(network).collect::<Result<_, _>>()?;
        Ok(Self { networks, headers: ProxyHeaders::default() })
    }

    /// Returns these proxies with the headers that they write.
    #[must_use]
    pub fn with_headers(self, headers: ProxyHeaders) -> Self {
        Self { headers, ..self }
    }

    /// Returns the headers that they write.
    pub const fn headers(&self) -> ProxyHeaders {
        self.headers
    }

    /// Returns whether the address is that of a trusted proxy.
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxies_are_addresses_and_networks() {
        let proxies =
            TrustedProxies::parse("10.1.2.3, 192.0.2.0/28,2001:db8::/64 , ::ffff:10.9.9.9").unwrap();
        let check = |address: &str, expected: bool| {
            assert_eq!(proxies.contain(address.parse().unwrap()), expected, "{address}");
        };
        check("10.1.2.3", true);
        check("::ffff:10.1.2.3", true);
        check("10.1.2.4", false);
        check("192.0.2.15", true);
        check("192.0.2.16", false);
        check("2001:db8::ff", true);
        check("2001:db8:0:1::1", false);
        check("10.9.9.9", true);
        for invalid in ["", "proxy.example", "10.0.0.0/33", "10.0.0.1,,10.0.0.2", "10.0.0.1 10.0.0.2"] {
            assert!(TrustedProxies::parse(invalid).is_err(), "{invalid}");
        }
        assert!(!TrustedProxies::default().contain("10.1.2.3".parse().unwrap()));
    }
}
