//! What signatures of requests are held against.

use std::time::Duration;

use super::ConfigError;
use super::scaling::Find;
use super::sources::Found;

/// How signed requests are looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignatureTerms {
    /// How old a signature may be.
    pub age_max: Duration,
    /// Where clients reach the service, if that is not where it listens.
    pub public_address: Option<PublicAddress>,
}

/// The address that clients sign for, such as `https://bank.example`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicAddress {
    /// `http` or `https`.
    pub scheme: String,
    /// Host, and port where it is not the usual one; in lower case.
    pub authority: String,
}

impl Default for SignatureTerms {
    /// As without any configuration.
    fn default() -> Self {
        Self { age_max: Duration::from_secs(300), public_address: None }
    }
}

impl PublicAddress {
    /// Reads `scheme://host` or `scheme://host:port`.
    pub fn parse(text: &str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let usual_port = match scheme {
            "http" => ":80",
            "https" => ":443",
            _ => return None,
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
        let authority = authority.to_ascii_lowercase();
        let authority = authority.strip_suffix(usual_port).unwrap_or(&authority);
        let sound = !authority.is_empty() && !authority.starts_with(':') && authority.chars().all(allowed);
        sound.then(|| Self { scheme: scheme.to_owned(), authority: authority.to_owned() })
    }
}

/// Reads the settings of signatures.
pub(super) fn signatures(find: Find<'_>) -> Result<SignatureTerms, ConfigError> {
    let age = find("signature-age-max-s").unwrap_or_else(|| unreachable!("it has a default"));
    let address = |found: Found| {
        PublicAddress::parse(&found.value).ok_or_else(|| {
            found.refuse("must be http://host or https://host, with :port where it is not the usual one")
        })
    };
    Ok(SignatureTerms {
        age_max: Duration::from_secs(age.number(1, 3600)?),
        public_address: find("public-address").map(address).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::PublicAddress;

    #[test]
    fn a_public_address_is_scheme_and_host_without_the_usual_port() {
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
