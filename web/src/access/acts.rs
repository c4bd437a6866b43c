//! Administrative acts: requests that change state other than by a money transfer, and submissions of batches.

/// Administrative acts as (method, route, stable code). A test checks that every route that changes state is listed.
pub const ACTS: &[(&str, &str, &str)] = &[
    ("PUT", "/v1/users/{user_id}/accounts/{account_id}", "account.open"),
    ("PATCH", "/v1/users/{user_id}/accounts/{account_id}", "account.change"),
    ("POST", "/v1/batches", "batch.submit"),
    ("DELETE", "/v1/batches/{batch_id}", "batch.cancel"),
    ("DELETE", "/v1/admin/batches/{partner_id}/{batch_id}", "batch.cancel"),
    ("PUT", "/v1/admin/gate", "gate.change"),
    ("POST", "/v1/admin/dead-letters/{id}/replay", "dead_letter.replay"),
    ("DELETE", "/v1/admin/dead-letters/{id}", "dead_letter.discard"),
    ("PUT", "/v1/admin/partners/{partner_id}", "partner.change"),
    ("POST", "/v1/admin/partners/{partner_id}/keys", "key.add"),
    ("DELETE", "/v1/admin/partners/{partner_id}/keys/{key_id}", "key.revoke"),
    ("POST", "/v1/admin/partners/{partner_id}/signature-keys", "signature_key.add"),
    ("DELETE", "/v1/admin/partners/{partner_id}/signature-keys/{key_id}", "signature_key.remove"),
];

/// The only act whose requests are stored under an id of their own, so it needs no audit row and no single-use signature.
pub const WITH_OWN_ID: &str = "batch.submit";

/// Returns whether a request changes state and has no id of its own by which a repetition is recognized.
pub fn is_without_own_id(method: &str, route: &str) -> bool {
    act_of(method, route).is_some_and(|act| act != WITH_OWN_ID)
}

/// Returns the act of a request, if it is an administrative act.
pub fn act_of(method: &str, route: &str) -> Option<&'static str> {
    ACTS.iter().find(|(of, path, _)| *of == method && *path == route).map(|(_, _, act)| *act)
}
