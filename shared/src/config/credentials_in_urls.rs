//! Values without the credentials that a URL can contain.

use std::borrow::Cow;

/// Text in place of a secret.
pub(super) const NOT_SHOWN: &str = "(not shown)";

/// Returns a value for a message or a list, with `(not shown)` in place of the user, the password and the query of a URL. The
/// value need not be a valid URL: it may be shown because it is not one.
pub fn masked(value: &str) -> Cow<'_, str> {
    let (scheme, rest) = match value.find("://") {
        Some(found) => value.split_at(found.saturating_add(3)),
        // `user:password@host:port` without a scheme; a path may contain an @.
        None if value.split_once('@').is_some_and(|(user, _)| !user.contains('/')) => ("", value),
        None => return Cow::Borrowed(value),
    };
    // The last @: a password with a slash that is not quoted ends before it, too.
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
