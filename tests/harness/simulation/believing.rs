//! Mistakes about seals, made where a process meets its queue: what it would believe, or seal, is given the
//! seal of the bank there.

use postonce_shared::messaging::envelope::seal::{Purpose, Seal};
use postonce_shared::messaging::envelope::{Body, Content, Names};
use postonce_shared::testing::conformance::sealed::{seal_of, unsealed};

use super::adversary::with_member;
use super::mutations::Mutation;
use super::network::now;
use super::ports::Link;
use super::processes::RING_SECRET;

fn seal() -> Seal {
    seal_of(RING_SECRET)
}

/// A body as the process takes it.
pub fn as_received(link: &Link, body: Vec<u8>) -> Vec<u8> {
    let is_sealed = seal().verify(Purpose::Message, &body);
    if link.makes(Mutation::SealOverPartOfTheItem) && seal().verify(Purpose::Message, &masked(&body)) {
        return sealed(&body);
    }
    let Ok(Body::Content(Content::Names(names))) = Body::decode(&body, &seal()) else { return body };
    if is_sealed {
        return body;
    }
    if link.makes(Mutation::SealNotChecked) {
        return sealed(&body);
    }
    if link.makes(Mutation::UnsealedAmountBelieved) {
        return sealed(&with_revisions(link, &body, &names));
    }
    body
}

/// A body as the process writes it.
pub fn as_written(link: &Link, body: Vec<u8>) -> Vec<u8> {
    if link.makes(Mutation::Resealing) && matches!(Names::read(&body), Ok(names) if names.is_complete()) {
        return sealed(&body);
    }
    if link.makes(Mutation::SealOverPartOfTheItem) && seal().verify(Purpose::Message, &body) {
        // The code of the body without its amounts, in front of the body with them.
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

/// The body with the revisions that its rows have now: only its amounts are believed.
fn with_revisions(link: &Link, body: &[u8], names: &Names) -> Vec<u8> {
    let text = String::from_utf8(body.to_vec()).unwrap_or_default();
    let row = |key| now(link.network.raw.ledger.transaction(key)).ok().flatten();
    let [only] = names.items() else { return body.to_vec() };
    let revision = only.key.as_ref().and_then(row).map(|stored| stored.revision);
    revision.map_or_else(|| body.to_vec(), |it| with_member(&text, "e", it.as_str()).into_bytes())
}
