//! Restores: what was taken from partners after the backup is not given back.

use std::collections::BTreeSet;
use std::time::Duration;

use postonce_shared::testing::prelude::*;
use uuid::Uuid;

use super::fixture::{Fixture, within_deadline};
use super::restore::{REPLACE, back_up, key, partner, restore, suspended_in, until_closed};

/// Writes the next state of a partner.
async fn save(store: &Store, partner: &Partner) {
    let partners = PartnerRecords::new(store);
    let before = partners.find(&partner.id).await.unwrap().map(|stored| stored.revision);
    assert!(matches!(partners.save(partner, before.as_ref()).await.unwrap(), Swapped::Done(_)));
}

fn account(number: u128) -> AccountKey {
    AccountKey {
        user: UserId::from_uuid(Uuid::from_u128(1)),
        account: AccountId::from_uuid(Uuid::from_u128(number)),
    }
}

#[test]
fn rights_that_were_taken_from_partners_since_the_backup_are_not_given_back() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        let signature_key = |id: &str, material: u8| SignatureKey {
            id: id.to_owned(),
            algorithm: SignatureAlgorithm::HmacSha256,
            material: vec![material; 32],
        };
        let named = |accounts: &[AccountKey]| Reach::Named {
            users: BTreeSet::new(),
            accounts: accounts.iter().copied().collect(),
        };
        let active =
            |record: &ApiKeyRecord| ActiveKey { id: record.id.clone(), created_at: record.created_at };
        let keys = ["aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"].map(|id| key(id, &fixture));
        for key in &keys {
            store.api_keys.add(key).await.unwrap();
        }
        let shop = Partner {
            reach: named(&[account(1), account(2)]),
            signature_keys: vec![signature_key("kept", 1), signature_key("replaced", 2)],
            keys: keys.iter().map(active).collect(),
            ..partner("shop")
        };
        let (mill, same) = (partner("mill"), Partner { reach: named(&[account(1)]), ..partner("same") });
        for partner in [&shop, &mill, &same] {
            save(&store, partner).await;
        }
        let file = back_up(&fixture);

        // Taken from one partner: account 2, a signature key, an API key (but the row of the key was not changed any
        // more), and requests without a signature. Given to it: account 3, another signature key with the same id.
        let later = Timestamp::from_unix_ms(9);
        save(
            &store,
            &Partner {
                reach: named(&[account(1), account(3)]),
                signature_required: true,
                signature_keys: vec![signature_key("kept", 1), signature_key("replaced", 3)],
                keys: vec![active(&keys[0])],
                changed_at: later,
                ..shop.clone()
            },
        )
        .await;
        save(&store, &Partner { reach: named(&[account(4)]), changed_at: later, ..mill.clone() }).await;
        save(&store, &Partner { reach: Reach::Everything, changed_at: later, ..same.clone() }).await;
        drop(store);
        until_closed(&fixture).await;

        let plan = restore(&fixture, &file, REPLACE).unwrap();
        let restricted_shop = Partner {
            reach: named(&[account(1)]),
            signature_required: true,
            signature_keys: vec![signature_key("kept", 1)],
            keys: vec![active(&keys[0])],
            changed_at: later,
            ..shop.clone()
        };
        let restricted_mill = Partner { reach: named(&[account(4)]), changed_at: later, ..mill.clone() };
        let told: Vec<&Partner> = plan.restricted.iter().map(|partner| &partner.restored).collect();
        assert_eq!(told, [&restricted_mill, &restricted_shop]);
        let revoked: Vec<&str> = plan.revoked_again.iter().map(|key| key.id.as_str()).collect();
        assert_eq!((revoked, plan.keys_working.len()), (vec!["bbbbbbbbbbbbbbbb"], 1));
        let store = fixture.open();
        let partners = PartnerRecords::new(&store).list(None, 10).await.unwrap();
        assert_eq!(partners, [restricted_mill, same, restricted_shop]);
        let revoked = store.api_keys.find("bbbbbbbbbbbbbbbb").await.unwrap().unwrap();
        assert_eq!(revoked.revoked_at, Some(later));
        assert!(store.api_keys.find("aaaaaaaaaaaaaaaa").await.unwrap().unwrap().revoked_at.is_none());
    });
}

#[test]
fn a_partner_stays_suspended_in_each_restore() {
    within_deadline(async {
        let fixture = Fixture::new();
        let store = fixture.open();
        for id in ["shop", "mill"] {
            save(&store, &partner(id)).await;
        }
        let file = back_up(&fixture);
        let suspended = Partner { suspended_with: Some(Scope::Admin), ..partner("shop") };
        save(&store, &suspended).await;
        drop(store);
        for _ in 0..2 {
            until_closed(&fixture).await;
            let plan = restore(&fixture, &file, REPLACE).unwrap();
            assert_eq!(suspended_in(&plan), [partner("shop").id]);
            fixture.move_clock(Duration::from_secs(1));
        }
        let partners = PartnerRecords::new(&fixture.open()).list(None, 10).await.unwrap();
        assert_eq!(partners, [partner("mill"), suspended]);
    });
}
