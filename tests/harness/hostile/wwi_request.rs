//! The bodies of the API in the format of World Wide Importers.

use postonce_web::formats::wwi;

use super::xml_request;

/// Parses any bytes as every kind of body.
pub fn check(input: &[u8]) {
    xml_request::check_as(&wwi::WWI, input);
}
