//! The proof that one decision about a transaction is covered by an anchor.
//!
//! The proof shows the decision, the digests of the other decisions of its page, and hashes of the Merkle tree for all
//! other accounts. It can be checked with the public key alone, without access to the bank and without this program:
//!
//! 1. the digest of the [fields](ProvenField) of the decision is among the digests of the first page;
//! 2. each page contains the hash of the previous page, and the leaf of the account contains the hash of the last one;
//! 3. the [path](super::merkle::root_from_path) leads from the leaf to the root in the statement of the anchor;
//! 4. the signature of the anchor is valid.

use serde::Serialize;

use super::merkle::{leaf_hash, root_from_path};
use super::signed::SignedAnchor;
use super::{Hash, Leaf};
use crate::domain::ids::{AccountKey, MessageId, PartnerId};
use crate::domain::instruction::Fields;
use crate::domain::journal::{
    Decided, DecisionFields, Entry, JournalPage, POSTING_RULE, PageLink, REJECTION_RULE, Rejection, digest_of,
};
use crate::domain::page_hash::PageHash;

const VERSION: u32 = 1;

/// A proof. Its JSON form is the file that a partner receives; hashes are hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InclusionProof {
    v: u32,
    user_id: String,
    account_id: String,
    decision: ProvenDecision,
    /// The index of the decision in the first page, from 0.
    position: usize,
    /// The digests of all decisions of the first page.
    digests: Vec<String>,
    /// The pages from the one with the decision to the last one that the leaf covers.
    pages: Vec<ProvenPage>,
    /// The index of the leaf in the list of the anchor, from 0.
    leaf_index: u64,
    path: Vec<String>,
    anchor: SignedAnchor,
}

/// A decision: the name of its rule and its fields, in the order in which they are hashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct ProvenDecision {
    rule: &'static str,
    fields: Vec<ProvenField>,
}

/// A field of a decision. The kind of its value determines how it is hashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProvenField {
    name: &'static str,
    #[serde(flatten)]
    value: ProvenValue,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum ProvenValue {
    /// A text, hashed as its length in bytes and its UTF-8 bytes.
    Text(String),
    /// Bytes in hexadecimal digits, hashed as their number and the bytes.
    Bytes(String),
    /// An unsigned integer as text, hashed as the length 8 and its eight bytes in big-endian order.
    Counter(String),
    /// A signed integer as text, hashed as its eight bytes in two's complement and big-endian order, without a length.
    Number(String),
}

/// A journal page, with the digest of its decisions in their place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct ProvenPage {
    version: u64,
    first_sequence: u64,
    previous_hash: String,
    nonce: String,
    decisions: String,
}

/// The reason why a decision cannot be proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InclusionError {
    /// The pages do not lead from the decision to the leaf.
    #[error("the pages of the journal do not lead from the decision to the leaf of the account")]
    Pages,
    /// The first page does not contain a decision about the transaction.
    #[error("the journal page contains no decision about the transaction")]
    Decision,
    /// The path does not lead to the root.
    #[error("the leaf of the account is not covered by the anchor")]
    Path,
}

/// The position of a leaf in the list of an anchor.
#[derive(Debug, Clone, Copy)]
pub struct LeafPlace<'a> {
    /// The leaf.
    pub leaf: Leaf,
    /// The index of the leaf, from 0.
    pub index: u64,
    /// The number of leaves in the list.
    pub count: u64,
    /// The hashes of the siblings, from the leaf to the root.
    pub path: &'a [Hash],
    /// The Merkle root of the list.
    pub root: Hash,
}

impl InclusionProof {
    /// Proves the decision about a transaction. `pages` starts with its page and ends with the last one that the leaf covers.
    ///
    /// # Errors
    /// [`InclusionError`] if these pages and this leaf prove nothing. A returned proof is therefore valid, except for the
    /// signature, which is not checked.
    pub fn new(
        (partner, message): (&PartnerId, MessageId),
        pages: &[JournalPage],
        place: &LeafPlace<'_>,
        anchor: SignedAnchor,
    ) -> Result<Self, InclusionError> {
        let account = place.leaf.account;
        let links: Vec<PageLink> = pages.iter().map(JournalPage::link).collect();
        let first = pages.first().ok_or(InclusionError::Pages)?;
        let entries = first.entries.iter().map(|entry| {
            ((&entry.partner, entry.message) == (partner, message)).then(|| ProvenDecision::posting(entry))
        });
        let others = first.decided.iter().map(|decided| match decided {
            Decided::Rejected(rejection) => ((&rejection.partner, rejection.message) == (partner, message))
                .then(|| ProvenDecision::rejection(rejection)),
            Decided::Opened { .. } | Decided::TermsChanged { .. } => None,
        });
        let found = entries.chain(others).enumerate().find_map(|(position, found)| Some((position, found?)));
        let (position, decision) = found.ok_or(InclusionError::Decision)?;
        let digests = first.decision_digests();
        let is_shown = digests.get(position) == Some(&decision.digest());
        if !is_shown || links.first().map(|link| link.decisions) != Some(digest_of(&digests)) {
            return Err(InclusionError::Decision);
        }
        check_links(account, &links, &place.leaf)?;
        let root = root_from_path(leaf_hash(&place.leaf), (place.index, place.count), place.path);
        if root != Some(place.root) {
            return Err(InclusionError::Path);
        }
        Ok(Self {
            v: VERSION,
            user_id: account.user.to_string(),
            account_id: account.account.to_string(),
            decision,
            position,
            digests: digests.iter().map(hex::encode).collect(),
            pages: links.iter().map(ProvenPage::of).collect(),
            leaf_index: place.index,
            path: place.path.iter().map(Hash::to_string).collect(),
            anchor,
        })
    }
}

fn check_links(account: AccountKey, links: &[PageLink], leaf: &Leaf) -> Result<(), InclusionError> {
    let mut previous: Option<(u64, PageHash)> = None;
    for link in links {
        let follows = previous.is_none_or(|(version, hash)| {
            version.checked_add(1) == Some(link.version) && hash == link.previous_hash
        });
        if !follows {
            return Err(InclusionError::Pages);
        }
        previous = Some((link.version, link.hash(account)));
    }
    if previous == Some((leaf.version, leaf.head)) { Ok(()) } else { Err(InclusionError::Pages) }
}

impl ProvenPage {
    fn of(link: &PageLink) -> Self {
        let PageLink { version, first_sequence, previous_hash, nonce, decisions } = link;
        Self {
            version: *version,
            first_sequence: *first_sequence,
            previous_hash: previous_hash.to_string(),
            nonce: nonce.simple(),
            decisions: hex::encode(decisions),
        }
    }
}

impl ProvenDecision {
    fn posting(entry: &Entry) -> Self {
        let mut fields = Vec::new();
        entry.list_fields(&mut fields);
        Self { rule: POSTING_RULE, fields }
    }

    fn rejection(rejection: &Rejection) -> Self {
        let mut fields = Vec::new();
        rejection.list_fields(&mut fields);
        Self { rule: REJECTION_RULE, fields }
    }

    fn digest(&self) -> [u8; 32] {
        let mut fields = Fields::new(self.rule);
        for field in &self.fields {
            match &field.value {
                ProvenValue::Text(text) => fields.text(text),
                ProvenValue::Bytes(digits) => fields.bytes(&hex::decode(digits).unwrap_or_default()),
                ProvenValue::Counter(digits) => {
                    fields.bytes(&digits.parse::<u64>().unwrap_or_default().to_be_bytes());
                }
                ProvenValue::Number(digits) => fields.number(digits.parse().unwrap_or_default()),
            }
        }
        fields.finish()
    }
}

impl DecisionFields for Vec<ProvenField> {
    fn text(&mut self, name: &'static str, text: &str) {
        self.push(ProvenField { name, value: ProvenValue::Text(text.to_owned()) });
    }

    fn bytes(&mut self, name: &'static str, bytes: &[u8]) {
        self.push(ProvenField { name, value: ProvenValue::Bytes(hex::encode(bytes)) });
    }

    fn counter(&mut self, name: &'static str, counter: u64) {
        self.push(ProvenField { name, value: ProvenValue::Counter(counter.to_string()) });
    }

    fn number(&mut self, name: &'static str, number: i64) {
        self.push(ProvenField { name, value: ProvenValue::Number(number.to_string()) });
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::anchor::merkle::MerkleTree;
    use crate::domain::ids::{AccountId, Nonce, UserId};
    use crate::domain::instruction::Fingerprint;
    use crate::domain::rejection::RejectReason;
    use crate::domain::time::Timestamp;

    const ACCOUNT: AccountKey = AccountKey {
        user: UserId::from_uuid(Uuid::from_u128(1)),
        account: AccountId::from_uuid(Uuid::from_u128(2)),
    };

    fn shop() -> PartnerId {
        PartnerId::parse("shop").unwrap()
    }

    fn message(number: u64) -> MessageId {
        MessageId::from_uuid(Uuid::from_u128(number.into()))
    }

    fn rejection(number: u64) -> Decided {
        Decided::Rejected(Rejection {
            partner: shop(),
            message: message(number),
            fingerprint: Fingerprint::parse(&format!("1:{}", "ab".repeat(32))).unwrap(),
            accepted_at: Timestamp::from_unix_ms(1),
            reason: RejectReason::AccountClosed,
            rejected_at: Timestamp::from_unix_ms(2),
        })
    }

    /// Returns a chain of pages with two rejections each.
    fn chain() -> Vec<JournalPage> {
        let mut pages: Vec<JournalPage> = Vec::new();
        for (version, first) in (1_u64..).zip([2, 4, 6, 8]) {
            let mut page = JournalPage {
                account: ACCOUNT,
                version,
                first_sequence: 1,
                entries: Vec::new(),
                decided: vec![rejection(first), rejection(first.saturating_add(1))],
                previous_hash: pages.last().map_or(PageHash::GENESIS, |page| page.hash),
                hash: PageHash::GENESIS,
                nonce: Nonce::from_uuid(Uuid::from_u128(version.into())),
            };
            page.hash = page.content_hash();
            pages.push(page);
        }
        pages
    }

    fn prove(number: u64, pages: &[JournalPage], leaf: Leaf) -> Result<InclusionProof, InclusionError> {
        let other = Leaf { account: AccountKey { user: UserId::from_uuid(Uuid::nil()), ..ACCOUNT }, ..leaf };
        let mut tree = MerkleTree::default();
        tree.push(&other);
        tree.push_with_path(&leaf);
        let (root, path) = tree.root_and_path();
        let place = LeafPlace { leaf, index: 1, count: 2, path: &path.unwrap(), root };
        let anchor =
            SignedAnchor { statement: String::new(), public_key: String::new(), signature: String::new() };
        InclusionProof::new((&shop(), message(number)), pages, &place, anchor)
    }

    #[test]
    fn only_pages_without_gaps_from_the_decision_to_the_leaf_prove_it() {
        let pages = chain();
        let leaf = Leaf { account: ACCOUNT, version: 3, head: pages[2].hash };
        let proof = prove(5, &pages[1..3], leaf).unwrap();
        assert_eq!((proof.position, proof.digests.len(), proof.pages.len()), (1, 2, 2));
        assert!(prove(7, &pages[2..3], leaf).is_ok());
        let swapped = [pages[2].clone(), pages[1].clone()];
        for wrong in [&pages[1..2], &pages[1..], &[]] {
            assert_eq!(prove(5, wrong, leaf), Err(InclusionError::Pages));
        }
        assert_eq!(prove(7, &swapped, leaf), Err(InclusionError::Pages));
        assert_eq!(prove(5, &[pages[1].clone(), pages[3].clone()], leaf), Err(InclusionError::Pages));
        assert_eq!(prove(9, &pages[1..3], leaf), Err(InclusionError::Decision));
        let later = Leaf { version: 4, ..leaf };
        assert_eq!(prove(5, &pages[1..3], later), Err(InclusionError::Pages));
        let mut changed = pages[1..3].to_vec();
        changed[0].decided[0] = rejection(99);
        assert_eq!(prove(5, &changed, leaf), Err(InclusionError::Pages));
    }

    #[test]
    fn a_leaf_beside_the_root_proves_nothing() {
        let pages = chain();
        let leaf = Leaf { account: ACCOUNT, version: 4, head: pages[3].hash };
        let anchor =
            SignedAnchor { statement: String::new(), public_key: String::new(), signature: String::new() };
        let place = LeafPlace { leaf, index: 0, count: 1, path: &[], root: leaf_hash(&leaf) };
        let transaction = (&shop(), message(8));
        assert!(InclusionProof::new(transaction, &pages[3..], &place, anchor.clone()).is_ok());
        for wrong in [
            LeafPlace { root: Hash::ZERO, ..place },
            LeafPlace { index: 1, ..place },
            LeafPlace { path: &[Hash::ZERO], ..place },
        ] {
            let proven = InclusionProof::new(transaction, &pages[3..], &wrong, anchor.clone());
            assert_eq!(proven, Err(InclusionError::Path));
        }
    }
}
