//! What the console needs of its process.

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::web::Data;
use postonce_shared::cluster::doorbell_secret::DoorbellSecret;
use postonce_shared::config::ConsoleTerms;
use postonce_shared::ports::world::World;
use postonce_worker::readiness::Readiness;

use crate::access::signatures::Verifier;

/// What the console needs of its process.
pub struct Console {
    /// Its settings.
    pub terms: ConsoleTerms,
    /// Authenticates sessions.
    pub secret: Arc<DoorbellSecret>,
    /// Streams of current values end with the process.
    pub readiness: Arc<Readiness>,
    /// The clock.
    pub world: Arc<dyn World>,
}

/// Returns whether the browser uses TLS, also if a proxy terminates it.
pub fn is_encrypted(request: &HttpRequest) -> bool {
    let verifier = request.app_data::<Data<Verifier>>();
    verifier.is_some_and(|verifier| verifier.address(request).scheme == "https")
}
