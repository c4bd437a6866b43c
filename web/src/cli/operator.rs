//! The person who runs a command, for the audit trail.

use postonce_shared::oversight::audit::AuditTarget;

/// Maximum length of a reason, in characters.
const REASON_CHARS_MAX: usize = 200;
/// Name of a user or host that the system does not know, as in a container without a list of users.
const UNKNOWN: &str = "unknown";

/// Returns the user of the operating system and the host.
pub fn identity() -> AuditTarget {
    let user = whoami::username().unwrap_or_else(|_| UNKNOWN.to_owned());
    let host = whoami::hostname().unwrap_or_else(|_| UNKNOWN.to_owned());
    AuditTarget::one("os_user", user).and("host", host)
}

/// Parses the reason for an act, which is stored in the audit trail.
///
/// # Errors
/// A message with the allowed form.
pub fn parse_reason(text: &str) -> Result<String, String> {
    let text = text.trim();
    let is_allowed =
        !text.is_empty() && text.chars().count() <= REASON_CHARS_MAX && !text.chars().any(char::is_control);
    let reason = is_allowed.then(|| text.to_owned());
    reason.ok_or_else(|| format!("must have 1 to {REASON_CHARS_MAX} characters, in one line"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_one_line_of_text() {
        assert_eq!(parse_reason(" nightly close ").unwrap(), "nightly close");
        for wrong in [String::new(), "  ".to_owned(), "a\nb".to_owned(), "x".repeat(201)] {
            assert!(parse_reason(&wrong).unwrap_err().contains("1 to 200 characters"));
        }
    }

    #[test]
    fn the_identity_names_user_and_host() {
        let identity = identity().to_string();
        assert!(identity.starts_with("os_user=") && identity.contains(" host="), "{identity}");
    }
}
