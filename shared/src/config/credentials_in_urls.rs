//! Hides credentials in URLs.

use std::borrow::Cow;

/// Replacement for a secret.
pub(super) const NOT_SHOWN: &str = "(not shown)";

/// Returns a value that is safe to display: user, password and query of a URL are replaced by `(not shown)`. The value may
/// be an invalid URL, because errors display it.
pub fn masked(value: &str) -> Cow<'_, str> {
    let (scheme, rest) = match value.find("://") {
        Some(found) => value.split_at(found.saturating_add(3)),
        // Without a scheme, only `user:password@host:port` is masked; a path may contain an @.
        None if value.split_once('@').is_some_and(|(user, _)| !user.contains('/')) => ("", value),
        None => return Cow::Borrowed(value),
    };
    // Split at the last @, because a password may contain an unquoted slash or @.
    let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    if user.is_none() && query.is_none() {
        return Cow::Borrowed(value);
    }
    let user = user.map(|_| format!("{NOT_SHOWN}@")).unwrap_or_default();
    let query = query.map(|_| format!("?{NOT_SHOWN}")).unwrap_or_default();
    Cow::Owned(format!("{scheme}{user}{rest}{query}"))
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn credentials_of_a_url_are_not_shown() {
        let check = |value: &str, expected: &str| assert_eq!(masked(value), expected, "{value}");
        check("http://127.0.0.1:4318", "http://127.0.0.1:4318");
        check("https://ada:secret@host:1/path", "https://(not shown)@host:1/path");
        check("https://secret@host", "https://(not shown)@host");
        check("https://ada:se/cr?et#@host", "https://(not shown)@host");
        check("https://ada:se@cret@host", "https://(not shown)@host");
        check("https://host/path?key=secret", "https://host/path?(not shown)");
        check("ada:secret@host:8081", "(not shown)@host:8081");
        check("sqlite:/data/ada@bank/postonce.db", "sqlite:/data/ada@bank/postonce.db");
        check("/run/secrets/a@b.pem", "/run/secrets/a@b.pem");
        check("", "");
    }
}
