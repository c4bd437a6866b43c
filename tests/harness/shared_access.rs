//! Shared access signatures for Azurite ("Create an account SAS", Microsoft). Azurite verifies them and their permissions.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::azurite::{KEY, Ports};

/// An expiry that no test reaches.
pub const LATER: &str = "2099-01-01T00:00:00Z";
/// All permissions that the bank uses.
pub const ALL: &str = "rwdlacup";

/// Returns a signature with these permissions for all services of the account, valid until `end`.
pub fn signature(permissions: &str, end: &str) -> String {
    let (services, kinds) = ("bqt", "sco");
    let (start, protocol, version) = ("", "https,http", "2018-11-09");
    let signed = ["devstoreaccount1", permissions, services, kinds, start, end, "", protocol, version, ""];
    let key = STANDARD.decode(KEY).expect("a key in base64");
    let mut code = Hmac::<Sha256>::new_from_slice(&key).expect("a key of any length");
    code.update(signed.join("\n").as_bytes());
    let code = STANDARD.encode(code.finalize().into_bytes());
    let code = code.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    format!("sv={version}&ss={services}&srt={kinds}&sp={permissions}&se={end}&spr={protocol}&sig={code}")
}

/// Returns the connection string for these ports with a signature.
pub fn connection_string(ports: Ports, signature: &str) -> String {
    let with_key = ports.connection_string();
    let (before, after) = with_key.split_once(&format!("AccountKey={KEY};")).expect("a key");
    format!("{before}{after}SharedAccessSignature={signature}")
}
