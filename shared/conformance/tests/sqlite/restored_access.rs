//! Restores: what was taken from partners after the backup is not given back.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use postonce_shared::adapters::sqlite::SCHEMA_VERSION;
use postonce_shared::testing::prelude::*;
use uuid::Uuid;

use super::fixture::{Fixture, number, within_deadline};
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

/// Such a backup has no place for the terms of a partner, and all of its keys can access every account.
#[test]
fn partners_that_a_very_old_backup_cannot_restrict_are_reported() {
    within_deadline(async {
        let fixture = Fixture::new();
        let sql = fixture.create_older(3);
        sql.execute(
            "INSERT INTO api_keys VALUES ('aaaaaaaaaaaaaaaa', zeroblob(32), 'shop', '[]', 1, NULL)",
            [],
        )
        .unwrap();
        drop(sql);
        let file = back_up(&fixture);
        let store = fixture.open();
        save(&store, &Partner { status: PartnerStatus::Suspended, ..partner("shop") }).await;
        save(&store, &partner("mill")).await;
        drop(store);
        until_closed(&fixture).await;
        let plan = restore(&fixture, &file, REPLACE).unwrap();
        assert_eq!((plan.unrestricted, plan.restricted), ([partner("shop").id].into(), Vec::new()));
    });
}

/// The older backup has the partners in another table.
#[test]
fn partners_stay_suspended_whatever_the_schemas_of_store_and_backup() {
    within_deadline(async {
        let (fixture, donor) = (Fixture::new(), Fixture::new());
        let sql = fixture.create_older(5);
        let shop = partner("shop").id;
        for id in ["shop", "mill"] {
            let saved = PartnerRecords::new(&donor.open()).save(&partner(id), None).await.unwrap();
            assert!(matches!(saved, Swapped::Done(_)));
        }
        sql.execute("ATTACH ?1 AS donor", [donor.path().to_str().unwrap()]).unwrap();
        sql.execute_batch("INSERT INTO partner_records SELECT id, 7, body FROM donor.records").unwrap();
        drop(sql);
        let older = fixture.file("older.db");
        fs::rename(back_up(&fixture), &older).unwrap();
        let store = fixture.open();
        let newer = back_up(&fixture);
        let partners = PartnerRecords::new(&store);
        let Versioned { value, revision } = partners.find(&shop).await.unwrap().unwrap();
        assert_eq!((value, revision.as_str()), (partner("shop"), "7"), "the record before the migration");
        let suspended = Partner { status: PartnerStatus::Suspended, ..partner("shop") };
        assert!(matches!(partners.save(&suspended, Some(&revision)).await.unwrap(), Swapped::Done(_)));
        drop((store, partners));
        // The second restore replaces a store with the older schema, and the third a store with the newer one.
        for (file, version) in [(&older, 5), (&newer, SCHEMA_VERSION), (&newer, SCHEMA_VERSION)] {
            until_closed(&fixture).await;
            let plan = restore(&fixture, file, REPLACE).unwrap();
            assert_eq!(suspended_in(&plan), std::slice::from_ref(&shop));
            assert_eq!(number(&fixture.sql(), "PRAGMA user_version"), version);
            fixture.move_clock(Duration::from_secs(1));
        }
        let partners = PartnerRecords::new(&fixture.open()).list(None, 10).await.unwrap();
        assert_eq!(partners, [partner("mill"), suspended]);
    });
}
