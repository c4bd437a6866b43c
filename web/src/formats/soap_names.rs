//! Paths and namespaces of the SOAP service, in a module of their own because the XML formats need them too.

/// Path of the SOAP endpoint.
pub const PATH: &str = "/soap/UserAccountService";
/// Path of the endpoint for clients of the classic contract.
pub const COMPAT_PATH: &str = "/soap/compat";
/// Namespace of the messages in SOAP bodies.
pub const NAMESPACE: &str = "urn:postonce:soap:1";
/// Namespace of the messages of the classic contract.
pub const COMPAT_NAMESPACE: &str = "urn:postonce:soap:compat:1";
/// The namespace of envelopes of SOAP 1.1.
pub const ENVELOPE_V11: &str = "http://schemas.xmlsoap.org/soap/envelope/";
/// The namespace of envelopes of SOAP 1.2.
pub const ENVELOPE_V12: &str = "http://www.w3.org/2003/05/soap-envelope";
/// Namespaces that have a meaning in SOAP envelopes of the service.
pub const NAMESPACES: [&str; 4] = [NAMESPACE, COMPAT_NAMESPACE, ENVELOPE_V11, ENVELOPE_V12];

/// Returns whether a path is an endpoint of the SOAP service.
pub fn is_endpoint(path: &str) -> bool {
    [PATH, COMPAT_PATH].contains(&path)
}
