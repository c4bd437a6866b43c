//! Mutations of the verification of seals, applied between a process and its queue. Where the mutated process would trust or seal
//! a body, the body gets the seal of the bank here.

use postonce_shared::testing::prelude::*;

use super::adversary::with_member;
use super::mutations::Mutation;
use super::network::now;
use super::ports::StoreConnection;
use super::processes::RING_SECRET;

fn seal() -> Seal {
    seal_of(RING_SECRET)
}

/// Returns the body that the process receives.
pub fn as_received(connection: &StoreConnection, body: Vec<u8>) -> Vec<u8> {
    let is_sealed = seal().verify(Purpose::Message, &body);
    if connection.makes(Mutation::SealOverPartOfTheItem) && seal().verify(Purpose::Message, &masked(&body)) {
        return sealed(&body);
    }
    let Ok(Body::Content(Content::Names(names))) = Body::decode(&body, &seal()) else { return body };
    if is_sealed {
        return body;
    }
    if connection.makes(Mutation::SealNotChecked) {
        return sealed(&body);
    }
    if connection.makes(Mutation::UnsealedAmountTrusted) {
        return sealed(&with_revisions(connection, &body, &names));
    }
    body
}

/// Returns the body that the process writes.
pub fn as_written(connection: &StoreConnection, body: Vec<u8>) -> Vec<u8> {
    if connection.makes(Mutation::Resealing) && matches!(Names::read(&body), Ok(names) if names.is_complete())
    {
        return sealed(&body);
    }
    if connection.makes(Mutation::SealOverPartOfTheItem) && seal().verify(Purpose::Message, &body) {
        // The seal of the body without its amounts, followed by the body with its amounts.
        let partly = seal().seal(Purpose::Message, unsealed(&masked(&body)));
        let head = partly.len().saturating_sub(unsealed(&masked(&body)).len().saturating_sub(1));
        return [partly.get(..head).unwrap_or_default(), unsealed(&body).get(1..).unwrap_or_default()]
            .concat();
    }
    body
}

fn sealed(body: &[u8]) -> Vec<u8> {
    seal().seal(Purpose::Message, unsealed(body))
}

fn masked(body: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(body.to_vec()).unwrap_or_default();
    with_member(&text, "a", "0").into_bytes()
}

/// Returns the body with the current revisions of its rows, so that only its amounts are trusted.
fn with_revisions(connection: &StoreConnection, body: &[u8], names: &Names) -> Vec<u8> {
    let text = String::from_utf8(body.to_vec()).unwrap_or_default();
    let row = |key| now(connection.network.raw.ledger.transaction(key)).ok().flatten();
    let [only] = names.items() else { return body.to_vec() };
    let revision = only.key.as_ref().and_then(row).map(|stored| stored.revision);
    revision.map_or_else(|| body.to_vec(), |it| with_member(&text, "e", it.as_str()).into_bytes())
}
