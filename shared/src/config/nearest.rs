//! Suggestions for mistyped names.

/// Returns the most similar name; empty if there are no names.
pub(super) fn nearest<'a>(mistyped: &str, names: &[&'a str]) -> &'a str {
    let by_edits = |name: &&&str| strsim::damerau_levenshtein(mistyped, name);
    names.iter().min_by_key(by_edits).copied().unwrap_or_default()
}
