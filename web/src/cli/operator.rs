//! Identity of the person who runs a command, for the audit trail.

use postonce_shared::oversight::audit::AuditTarget;

/// Replaces the name of a user or host that the system cannot resolve, as in a container without a user database.
const UNKNOWN: &str = "unknown";

/// Returns the name of the operating system user and the name of the host.
pub fn identity() -> AuditTarget {
    let user = whoami::username().unwrap_or_else(|_| UNKNOWN.to_owned());
    let host = whoami::hostname().unwrap_or_else(|_| UNKNOWN.to_owned());
    AuditTarget::one("os_user", user).and("host", host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_names_user_and_host() {
        let identity = identity().to_string();
        assert!(identity.starts_with("os_user=") && identity.contains(" host="), "{identity}");
    }
}
