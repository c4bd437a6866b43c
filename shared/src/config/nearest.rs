//! The name that a mistyped one probably stands for.

/// Returns the most similar of the names; empty if there are none.
pub(super) fn nearest<'a>(mistyped: &str, names: &[&'a str]) -> &'a str {
    let by_edits = |name: &&&str| strsim::damerau_levenshtein(mistyped, name);
    names.iter().min_by_key(by_edits).copied().unwrap_or_default()
}
