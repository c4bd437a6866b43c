//! Context of the console: its settings, services and public address.

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::web::Data;
use postonce_process::readiness::Readiness;
use postonce_shared::cluster::doorbell_secret::DoorbellSecret;
use postonce_shared::config::{ConsoleTerms, PublicAddress};
use postonce_shared::ports::world::World;

use crate::access::client_address::client_uses_tls;
use crate::access::shares::PartnerShares;
use crate::access::signatures::Verifier;
use crate::api::surface::Surface;

/// Dependencies of the console on its process.
pub struct Console {
    /// Settings of the console.
    pub terms: ConsoleTerms,
    /// Source of the keys that encrypt sessions.
    pub secret: Arc<DoorbellSecret>,
    /// Readiness of the process; streams end when the process does.
    pub readiness: Arc<Readiness>,
    /// Limits of streams and sign-in forms.
    pub shares: Arc<PartnerShares>,
    /// Clock and timers.
    pub world: Arc<dyn World>,
}

/// Returns whether the browser uses TLS, which a proxy may terminate. The public address is that of partners, so it is
/// ignored on an address that serves operators only.
pub fn is_encrypted(request: &HttpRequest) -> bool {
    let Some(verifier) = request.app_data::<Data<Verifier>>() else { return false };
    let public = public_address(request, verifier);
    verifier.is_tls || client_uses_tls(request) || public.is_some_and(|public| public.scheme == "https")
}

/// Returns whether an origin (RFC 6454) is that of the console: the requested or the public address.
pub(super) fn is_own_origin(request: &HttpRequest, origin: &str) -> bool {
    let Some(verifier) = request.app_data::<Data<Verifier>>() else { return false };
    let Some((_, authority)) = origin.split_once("://") else { return false };
    let is = |address: &PublicAddress| address.authority.eq_ignore_ascii_case(authority);
    is(&verifier.requested_address(request)) || public_address(request, verifier).is_some_and(is)
}

fn public_address<'a>(request: &HttpRequest, verifier: &'a Verifier) -> Option<&'a PublicAddress> {
    let surface = request.app_data::<Data<Surface>>().map(|surface| ***surface);
    verifier.terms.public_address.as_ref().filter(|_| surface != Some(Surface::Operators))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use postonce_shared::config::{ProxyHeaders, SignatureTerms, TrustedProxies};

    use super::*;

    fn of_operators(public: Option<&str>, surface: Surface) -> TestRequest {
        let public_address = public.map(|text| PublicAddress::parse(text).unwrap());
        let terms = SignatureTerms { public_address, ..SignatureTerms::default() };
        TestRequest::default()
            .peer_addr("192.0.2.1:4711".parse().unwrap())
            .app_data(Data::new(Verifier { terms, is_tls: false }))
            .app_data(Data::new(surface))
            .insert_header(("host", "10.0.0.7:9090"))
    }

    #[test]
    fn an_address_of_operators_alone_is_not_the_public_one() {
        let public = Some("https://bank.example");
        let is_encrypted = |request: TestRequest| is_encrypted(&request.to_http_request());
        assert!(is_encrypted(of_operators(public, Surface::Everything)));
        assert!(!is_encrypted(of_operators(public, Surface::Operators)));
        let all = [ProxyHeaders::XForwarded, ProxyHeaders::Forwarded];
        let headers = [("x-forwarded-proto", "https"), ("forwarded", "for=198.51.100.1;proto=\"https\"")];
        for (kind, header) in all.into_iter().zip(headers) {
            let request = || of_operators(public, Surface::Operators).insert_header(header);
            for headers in all {
                let proxies = TrustedProxies::parse("192.0.2.0/24").unwrap().with_headers(headers);
                let is_believed = is_encrypted(request().app_data(Data::new(proxies)));
                assert_eq!(is_believed, kind == headers, "{header:?} of a proxy that writes {headers:?}");
            }
            assert!(!is_encrypted(request()), "{header:?} of any client");
        }
    }

    #[test]
    fn forms_come_from_the_address_of_the_console() {
        let check = |origin: &str, public: Option<&str>, surface: Surface, expected: bool| {
            let request = of_operators(public, surface).to_http_request();
            assert_eq!(is_own_origin(&request, origin), expected, "{origin} {public:?} {surface:?}");
        };
        let public = Some("https://bank.example");
        check("http://10.0.0.7:9090", None, Surface::Everything, true);
        check("http://10.0.0.7:8080", None, Surface::Everything, false);
        check("null", None, Surface::Everything, false);
        check("http://evil.example", public, Surface::Everything, false);
        check("https://bank.example", public, Surface::Everything, true);
        check("https://bank.example", public, Surface::Operators, false);
    }
}
