use proptest::prelude::*;

use super::merkle::{MerkleTree, leaf_hash, root_from_path};
use super::signed::{AnchorKey, AnchorPublicKey, SignedAnchor};
use super::*;
use crate::domain::time::Timestamp;

fn leaf(number: u64) -> Leaf {
    let account = AccountKey {
        user: UserId::from_uuid(Uuid::from_u128(u128::from(number) << 64 | 1)),
        account: AccountId::from_uuid(Uuid::from_u128(u128::from(number) | 2 << 64)),
    };
    Leaf {
        account,
        version: number.wrapping_mul(3),
        head: PageHash::from_bytes([number.to_be_bytes()[7]; 32]),
    }
}

/// The definition of RFC 6962, section 2.1.
fn tree_hash(leaves: &[Leaf]) -> Hash {
    match leaves {
        [] => Hash::of(&[]),
        [one] => Hash::of(&[&[0], one.encode().as_slice()].concat()),
        _ => {
            let (left, right) = leaves.split_at(split(leaves.len()));
            let hashes = [*tree_hash(left).as_bytes(), *tree_hash(right).as_bytes()].concat();
            Hash::of(&[&[1], hashes.as_slice()].concat())
        }
    }
}

/// The definition of RFC 6962, section 2.1.1.
fn audit_path(index: usize, leaves: &[Leaf]) -> Vec<Hash> {
    if leaves.len() < 2 {
        return Vec::new();
    }
    let at = split(leaves.len());
    let (left, right) = leaves.split_at(at);
    let (mut path, sibling) = if index < at {
        (audit_path(index, left), tree_hash(right))
    } else {
        (audit_path(index.saturating_sub(at), right), tree_hash(left))
    };
    path.push(sibling);
    path
}

/// The largest power of two that is smaller than the number.
fn split(count: usize) -> usize {
    count.next_power_of_two() / 2
}

/// Returns a tree with the path of the leaf at this index, if the index is valid.
fn tree(index: usize, leaves: &[Leaf]) -> MerkleTree {
    let mut tree = MerkleTree::default();
    for (place, leaf) in leaves.iter().enumerate() {
        if place == index { tree.push_with_path(leaf) } else { tree.push(leaf) }
    }
    tree
}

#[test]
fn the_tree_is_that_of_the_rfc() {
    let leaves: Vec<Leaf> = (0..70).map(leaf).collect();
    for count in 0..leaves.len() {
        let leaves = &leaves[..count];
        for index in 0..=count {
            let tree = tree(index, leaves);
            assert_eq!(tree.count(), u64::try_from(count).unwrap());
            let (root, path) = tree.root_and_path();
            assert_eq!(root, tree_hash(leaves), "{count} leaves");
            let expected = (index < count).then(|| audit_path(index, leaves));
            assert_eq!(path, expected, "leaf {index} of {count}");
        }
    }
}

proptest! {
    #[test]
    fn a_path_leads_to_the_root_from_its_leaf_only(
        count in 1_u64..5000,
        index in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(),
    ) {
        let index = u64::try_from(index.index(usize::try_from(count).unwrap())).unwrap();
        let leaves: Vec<Leaf> = (0..count).map(leaf).collect();
        let (root, path) = tree(usize::try_from(index).unwrap(), &leaves).root_and_path();
        let path = path.unwrap();
        let hash = leaf_hash(&leaf(index));
        prop_assert_eq!(root_from_path(hash, (index, count), &path), Some(root));
        let other = u64::try_from(other.index(usize::try_from(count).unwrap())).unwrap();
        if other != index {
            prop_assert_ne!(root_from_path(hash, (other, count), &path), Some(root));
            prop_assert_ne!(root_from_path(leaf_hash(&leaf(other)), (index, count), &path), Some(root));
        }
        prop_assert_eq!(root_from_path(hash, (count, count), &path), None);
        if let Some((_, shorter)) = path.split_last() {
            prop_assert_eq!(root_from_path(hash, (index, count), shorter), None);
        }
        let longer = [path.as_slice(), &[root]].concat();
        prop_assert_eq!(root_from_path(hash, (index, count), &longer), None);
    }

    #[test]
    fn leaves_are_read_as_they_were_written(numbers in prop::collection::vec(any::<u64>(), 0..20)) {
        let leaves: Vec<Leaf> = numbers.into_iter().map(leaf).collect();
        let bytes = encode_leaves(&leaves);
        prop_assert_eq!(bytes.len(), leaves.len().saturating_mul(LEAF_BYTES));
        prop_assert_eq!(decode_leaves(&bytes), Some(leaves));
        prop_assert_eq!(decode_leaves(&[bytes.as_slice(), &[1]].concat()), None);
    }
}

#[test]
fn encoded_leaves_have_the_order_of_their_accounts() {
    let mut leaves: Vec<Leaf> = (0..300).map(|number| leaf(number * 0x0101_0101_0101)).collect();
    leaves.sort_by_key(|leaf| leaf.account);
    let mut encoded: Vec<_> = leaves.iter().map(Leaf::encode).collect();
    encoded.sort_unstable();
    assert_eq!(encoded.concat(), encode_leaves(&leaves));
}

#[test]
fn the_digest_depends_on_the_division_into_parts() {
    let digest = |parts: &[&[u8]]| parts.iter().fold(Hash::ZERO, |digest, part| digest.with_part(part));
    assert_eq!(digest(&[]), Hash::ZERO);
    assert_ne!(digest(&[b"ab", b"c"]), digest(&[b"a", b"bc"]));
    assert_ne!(digest(&[b"ab"]), digest(&[b"ab", b""]));
    let both = [*Hash::ZERO.as_bytes(), *Hash::of(b"ab").as_bytes()].concat();
    assert_eq!(digest(&[b"ab"]), Hash::of(&both));
}

fn statement(kind: AnchorKind) -> Statement {
    Statement {
        sequence: 18,
        previous: Hash::of(b"17"),
        kind,
        made_at: Timestamp::from_unix_ms(1_795_248_000_123),
        began_at: Timestamp::from_unix_ms(1_795_244_400_000),
        leaves: LeavesStatement { count: 7, root: Hash::of(b"root"), digest: Hash::of(b"digest"), parts: 2 },
        audit: Some(AuditPosition { sequence: 4, hash: PageHash::from_bytes([9; 32]) }),
    }
}

#[test]
fn statements_are_read_as_they_were_written() {
    let returned_to = Some(AnchorRef { sequence: 17, hash: Hash::of(b"17") });
    for kind in
        [AnchorKind::Round, AnchorKind::Restore { returned_to }, AnchorKind::Restore { returned_to: None }]
    {
        let with_audit = statement(kind);
        for statement in [with_audit, Statement { audit: None, ..with_audit }] {
            assert_eq!(Statement::decode(&statement.encode()).unwrap(), statement);
        }
    }
    let text = statement(AnchorKind::Restore { returned_to }).encode();
    assert!(text.starts_with(r#"{"v":1,"sequence":18,"previous":""#), "{text}");
    assert!(text.contains(r#""made_at":"2026-11-21T08:00:00.123Z""#), "{text}");
    for (from, to) in [
        ("\"v\":1", "\"v\":2"),
        ("\"v\":1", "\"w\":1"),
        ("18", "0"),
        ("restore", "round"),
        ("restore", "other"),
        ("2026-11-21T08", "2026-11-41T08"),
        (&"09".repeat(32), "09"),
        (&Hash::of(b"root").to_string(), &Hash::of(b"root").to_string().to_uppercase()),
        ("{", "{\"x\":1,"),
    ] {
        let changed = text.replacen(from, to, 1);
        assert_ne!(changed, text, "{from}");
        assert!(Statement::decode(&changed).is_err(), "{changed}");
    }
}

#[test]
fn a_signature_is_of_one_statement_and_one_key() {
    let (key, other) = (AnchorKey::from_seed([7; 32]), AnchorKey::from_seed([8; 32]));
    let signed = key.sign(&statement(AnchorKind::Round));
    let accepted = [other.public(), key.public()];
    assert!(signed.is_signed_by(&accepted));
    assert!(!signed.is_signed_by(&accepted[..1]) && !signed.is_signed_by(&[]));
    assert_eq!(signed.decode().unwrap(), statement(AnchorKind::Round));
    let changed = SignedAnchor { statement: signed.statement.replace("18", "19"), ..signed.clone() };
    assert!(!changed.is_signed_by(&accepted));
    let as_other = SignedAnchor { public_key: other.public().to_string(), ..signed.clone() };
    assert!(!as_other.is_signed_by(&accepted));
    // The signed bytes as documented, built without the code of the bank.
    let bytes = format!("postonce anchor 1\n{}", signed.statement);
    let signature =
        ed25519_dalek::Signer::sign(&ed25519_dalek::SigningKey::from_bytes(&[7; 32]), bytes.as_bytes());
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, signature.to_bytes());
    assert_eq!(text, signed.signature);
}

#[test]
fn keys_are_read_as_base64_and_the_secret_is_not_shown() {
    let seed = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, [7; 32]);
    let key = AnchorKey::parse(&seed).unwrap();
    assert_eq!(key.public(), AnchorKey::from_seed([7; 32]).public());
    assert!(!format!("{key:?}").contains(&seed));
    assert_eq!(AnchorPublicKey::parse(&key.public().to_string()), Some(key.public()));
    for wrong in ["", "x", &seed[1..], &format!("{seed}{seed}")] {
        assert!(AnchorKey::parse(wrong).is_none() && AnchorPublicKey::parse(wrong).is_none(), "{wrong}");
    }
    // With a key of small order, every signature could be valid.
    let weak = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, [0; 32]);
    assert!(AnchorPublicKey::parse(&weak).is_none());
}
