//! Settings for request signatures.

use std::time::Duration;

use clap::Args;

use super::group::defaults;
use super::values::seconds;
use crate::access::used_signatures::SIGNATURE_AGE_MAX;

/// Rules for signed requests.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(next_help_heading = "Signatures")]
pub struct SignatureTerms {
    /// Maximum age of the signature of a request (RFC 9421), in seconds, from 1 to 3600
    #[arg(long = "signature-age-max-s", value_name = "SECONDS")]
    #[arg(default_value = "300", value_parser = seconds(1..=SIGNATURE_AGE_MAX.as_secs()))]
    pub age_max: Duration,
    /// Address of the service that clients use and sign, such as `https://bank.example`, if a proxy terminates TLS or
    /// changes Host; by default the address in the request
    #[arg(long, value_name = "URL", value_parser = public_address)]
    pub public_address: Option<PublicAddress>,
}

/// The address of the service that clients sign, such as `https://bank.example`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicAddress {
    /// `http` or `https`.
    pub scheme: String,
    /// Host in lower case, with the port unless it is the default of the scheme.
    pub authority: String,
}

impl Default for SignatureTerms {
    fn default() -> Self {
        defaults()
    }
}

impl PublicAddress {
    /// Parses `scheme://host` or `scheme://host:port`.
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let default_port = match scheme {
            "http" => ":80",
            "https" => ":443",
            _ => return None,
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
        let authority = authority.to_ascii_lowercase();
        let authority = authority.strip_suffix(default_port).unwrap_or(&authority);
        let is_valid = !authority.is_empty() && !authority.starts_with(':') && authority.chars().all(allowed);
        is_valid.then(|| Self { scheme: scheme.to_owned(), authority: authority.to_owned() })
    }
}

fn public_address(text: &str) -> Result<PublicAddress, &'static str> {
    PublicAddress::parse(text)
        .ok_or("must be http://host or https://host, with :port unless it is the default port")
}

#[cfg(test)]
mod tests {
    use super::PublicAddress;

    #[test]
    fn a_public_address_is_scheme_and_host_without_the_default_port() {
        let check = |text: &str, expected: Option<(&str, &str)>| {
            let read = PublicAddress::parse(text);
            let read = read.as_ref().map(|it| (it.scheme.as_str(), it.authority.as_str()));
            assert_eq!(read, expected, "{text}");
        };
        check("https://Bank.Example", Some(("https", "bank.example")));
        check("https://bank.example:443", Some(("https", "bank.example")));
        check("https://bank.example:80", Some(("https", "bank.example:80")));
        check("http://[::1]:8080", Some(("http", "[::1]:8080")));
        for wrong in [
            "bank.example",
            "ftp://bank.example",
            "https://",
            "https://:443",
            "https://bank.example/",
            "https://a b",
        ] {
            check(wrong, None);
        }
    }
}
