//! Tests of the partners.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::case::{Case, forged_revisions, moment};
use crate::domain::account::{Revision, Versioned};
use crate::domain::ids::{AccountId, AccountKey, PartnerId, UserId};
use crate::domain::partner::{
    ActiveKey, Partner, PartnerStatus, REACH_NAMES_MAX, Reach, RequestRate, SignatureAlgorithm, SignatureKey,
};
use crate::ports::Store;
use crate::ports::sync_store::Swapped;
use crate::ports::world::WorldExt as _;

/// Tests an implementation of [`crate::ports::partners::Partners`].
pub async fn partners_contract<F>(fresh: F)
where
    F: AsyncFn() -> Store,
{
    let case = async || Case::new(fresh().await);
    a_partner_is_read_as_it_was_saved(&case().await).await;
    the_largest_reach_can_be_stored_and_reduced(&case().await).await;
    a_partner_is_saved_under_the_revision_that_was_read(&case().await).await;
    concurrent_additions_of_keys_are_not_lost(&case().await).await;
    partners_are_listed_by_id(&case().await).await;
}

impl Case {
    fn partner_id(&self) -> PartnerId {
        // A name of maximum length, with a letter first.
        PartnerId::parse(&self.name()[..32]).unwrap()
    }

    fn partner(&self) -> Partner {
        Partner::active(self.partner_id(), Reach::Everything, moment(0))
    }

    fn user(&self) -> UserId {
        UserId::from_uuid(self.world.uuid())
    }

    async fn partner_now(&self, id: &PartnerId) -> Option<Versioned<Partner>> {
        self.store.partners.find(id).await.unwrap()
    }

    async fn saved(&self, partner: &Partner, expected: Option<&Revision>) -> Revision {
        match self.store.partners.save(partner, expected).await.unwrap() {
            Swapped::Done(revision) => revision,
            Swapped::Conflict => panic!("the save returned a conflict without a concurrent write"),
        }
    }
}

async fn a_partner_is_read_as_it_was_saved(case: &Case) {
    let bare = case.partner();
    let account = case.account_key();
    let full = Partner {
        id: case.partner_id(),
        status: PartnerStatus::Suspended,
        reach: Reach::Named { users: [case.user(), case.user()].into(), accounts: [account].into() },
        format: Some("wwi".to_owned()),
        rate: Some(RequestRate { per_second: u32::MAX, burst: 1 }),
        signature_required: true,
        signature_keys: vec![
            SignatureKey {
                id: "rot \"1\"".to_owned(),
                algorithm: SignatureAlgorithm::HmacSha256,
                material: (0..=255).collect(),
            },
            SignatureKey {
                id: "2".to_owned(),
                algorithm: SignatureAlgorithm::Ed25519,
                material: vec![0; 32],
            },
        ],
        keys: vec![
            ActiveKey { id: "ffffffffffffffff".to_owned(), created_at: moment(2) },
            ActiveKey { id: "0000000000000000".to_owned(), created_at: moment(1) },
        ],
        created_at: moment(3),
        changed_at: moment(4),
    };
    let nothing = Partner {
        reach: Reach::Named { users: BTreeSet::new(), accounts: BTreeSet::new() },
        ..case.partner()
    };
    for partner in [bare, full, nothing] {
        assert_eq!(case.partner_now(&partner.id).await, None, "the partner was not saved");
        let revision = case.saved(&partner, None).await;
        let stored = case.partner_now(&partner.id).await;
        assert_eq!(
            stored,
            Some(Versioned { value: partner, revision }),
            "the partner is read as it was saved"
        );
    }
}

async fn the_largest_reach_can_be_stored_and_reduced(case: &Case) {
    let accounts = (0..REACH_NAMES_MAX)
        .map(|_| AccountKey { user: case.user(), account: AccountId::from_uuid(case.world.uuid()) });
    let reach = Reach::Named { users: BTreeSet::new(), accounts: accounts.collect() };
    let wide = Partner { reach, ..case.partner() };
    let revision = case.saved(&wide, None).await;
    assert_eq!(case.partner_now(&wide.id).await.unwrap().value, wide, "all names are stored");
    let narrow = Partner { reach: Reach::Everything, ..wide };
    case.saved(&narrow, Some(&revision)).await;
    assert_eq!(
        case.partner_now(&narrow.id).await.unwrap().value,
        narrow,
        "no part of the longer text remains"
    );
}

async fn a_partner_is_saved_under_the_revision_that_was_read(case: &Case) {
    let partners = &case.store.partners;
    let active = case.partner();
    let suspended = Partner { status: PartnerStatus::Suspended, ..active.clone() };
    let other = case.partner();
    let first = case.saved(&active, None).await;
    assert_eq!(partners.save(&suspended, None).await.unwrap(), Swapped::Conflict, "it exists already");
    let answer = partners.save(&other, Some(&first)).await.unwrap();
    assert_eq!(answer, Swapped::Conflict, "a partner that does not exist matches no revision");
    assert_eq!(case.partner_now(&other.id).await, None, "a conflict writes nothing");
    let second = case.saved(&suspended, Some(&first)).await;
    assert_ne!(first, second, "a changed row has a new revision");
    let answer = partners.save(&active, Some(&first)).await.unwrap();
    assert_eq!(answer, Swapped::Conflict, "the revision is outdated");
    for forged in forged_revisions() {
        let answer = partners.save(&active, Some(&forged)).await.unwrap();
        assert_eq!(answer, Swapped::Conflict, "{forged:?} is not a revision");
    }
    let stored = Versioned { value: suspended, revision: second.clone() };
    assert_eq!(case.partner_now(&active.id).await, Some(stored), "a conflict writes nothing");
    let third = case.saved(&active, Some(&second)).await;
    let answer = partners.save(&active, Some(&first)).await.unwrap();
    assert_eq!(answer, Swapped::Conflict, "the same content was written again, so the revision is outdated");
    case.saved(&active, Some(&third)).await;
}

async fn concurrent_additions_of_keys_are_not_lost(case: &Case) {
    const OPERATORS: usize = 5;
    let partner = case.partner();
    case.saved(&partner, None).await;
    let steps = (0..OPERATORS).map(|operator| {
        let (partners, id) = (Arc::clone(&case.store.partners), partner.id.clone());
        async move {
            loop {
                let Versioned { value: mut partner, revision } = partners.find(&id).await.unwrap().unwrap();
                partner.keys.push(ActiveKey { id: operator.to_string(), created_at: moment(0) });
                // A conflict means that another attempt has succeeded, so all loops end.
                match partners.save(&partner, Some(&revision)).await.unwrap() {
                    Swapped::Done(_) => return,
                    Swapped::Conflict => {}
                }
            }
        }
    });
    case.concurrently(steps).await;
    let stored = case.partner_now(&partner.id).await.unwrap().value;
    let mut keys: Vec<String> = stored.keys.into_iter().map(|key| key.id).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["0", "1", "2", "3", "4"], "no addition is lost");
}

async fn partners_are_listed_by_id(case: &Case) {
    // Names whose order depends on the order of characters: digits, then `_`, then letters.
    let stem = case.partner_id().as_str()[..30].to_owned();
    let mut partners = Vec::new();
    for end in ["9", "_", "a", "", "0", "_a"] {
        let partner = Partner { id: PartnerId::parse(&format!("{stem}{end}")).unwrap(), ..case.partner() };
        case.saved(&partner, None).await;
        partners.push(partner);
    }
    partners.sort_unstable_by(|one, other| one.id.cmp(&other.id));
    for limit in [1, 4, 1000] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let page = case.store.partners.list(after.as_ref(), limit).await.unwrap();
            assert!(page.len() <= limit, "a page has at most `limit` items");
            let is_last = page.len() < limit;
            after = page.last().map(|partner| partner.id.clone()).or(after);
            listed.extend(page);
            if is_last {
                break;
            }
        }
        assert!(listed.is_sorted_by(|one, other| one.id < other.id), "each once, ordered by id");
        // Other tests may use the store at the same time.
        listed.retain(|partner| partner.id.as_str().starts_with(&stem));
        assert_eq!(listed, partners, "all partners are listed in pages of {limit}");
    }
}
