//! The bytes that outlive a program: journal pages with their hashes, queue messages with their seals, anchors, and rows of the
//! audit trail. Stores, messages and copies of anchors contain them, so none of them may change.
//!
//! `golden.txt` has one line for each. A difference is either a mistake, or a new version of a format, which then needs a
//! number of its own and a reader for the old one.
#![expect(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "test code")]

mod journal;
mod messages;

use postonce_shared::domain::anchor::{
    AnchorKind, AnchorRef, AuditPosition, Hash, LeavesStatement, Statement, encode_leaves, merkle,
};
use postonce_shared::domain::audit_row::{AuditRow, DoneAct};
use postonce_shared::testing::prelude::*;
use uuid::Uuid;

const GOLDEN: &str = include_str!("golden.txt");

/// Collects the lines of the file.
#[derive(Default)]
struct Lines(String);

impl Lines {
    fn add(&mut self, name: &str, value: impl std::fmt::Display) {
        self.0.push_str(&format!("{name}: {value}\n"));
    }

    /// Adds bytes that are valid UTF-8.
    fn text(&mut self, name: &str, bytes: Vec<u8>) {
        self.add(name, String::from_utf8(bytes).unwrap());
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_ms(1_795_248_000_007 + 1000 * seconds)
}

#[test]
fn every_stored_byte_stays() {
    let mut lines = Lines::default();
    let account = journal::add(&mut lines);
    messages::add(&mut lines);
    let row = audit(&mut lines);
    anchors(&mut lines, &account, &row);
    for (found, expected) in lines.0.lines().zip(GOLDEN.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(lines.0, GOLDEN, "all of it:\n{}", lines.0);
}

fn audit(lines: &mut Lines) -> AuditRow {
    let done = |act: &str, target: &str| DoneAct {
        at: at(7),
        actor: "shop".to_owned(),
        key_id: "0123456789abcdef".to_owned(),
        act: act.to_owned(),
        target: target.to_owned(),
        origin: "192.0.2.1:4711".to_owned(),
        nonce: Nonce::from_uuid(Uuid::from_u128(1)),
    };
    let first = AuditRow::after((0, PageHash::GENESIS), done("gate.change", "state=held"));
    let second = AuditRow::after((1, first.hash), done("partner.suspend", ""));
    lines.add("audit row 1", first.hash);
    lines.add("audit row 2", second.hash);
    second
}

fn anchors(lines: &mut Lines, account: &Account, row: &AuditRow) {
    let leaf = Leaf::of(account);
    let encoded = encode_leaves(&[leaf]);
    lines.add("leaf", hex::encode(&encoded));
    let leaves = LeavesStatement {
        count: 1,
        root: merkle::leaf_hash(&leaf),
        digest: Hash::ZERO.with_part(&encoded),
        parts: 1,
    };
    let statement = Statement {
        sequence: 1,
        previous: Hash::ZERO,
        kind: AnchorKind::Round,
        made_at: at(9),
        began_at: at(8),
        leaves,
        audit: Some(AuditPosition { sequence: row.sequence, hash: row.hash }),
    };
    let key = AnchorKey::from_seed([7; 32]);
    let first = key.sign(&statement);
    let hash = Hash::of(first.statement.as_bytes());
    let returned_to = Some(AnchorRef { sequence: 1, hash });
    let kind = AnchorKind::Restore { returned_to };
    let second = key.sign(&Statement { sequence: 2, previous: hash, kind, audit: None, ..statement });
    for (name, signed) in [("anchor 1", first), ("anchor 2", second)] {
        assert!(signed.is_signed_by(&[key.public()]));
        lines.add(name, &signed.statement);
        lines.add(&format!("signature of {name}"), &signed.signature);
    }
}
