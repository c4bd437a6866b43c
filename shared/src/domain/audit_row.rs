//! A row of the audit trail: a completed administrative act, chained to the previous row by its hash.

use super::ids::Nonce;
use super::instruction::Fields;
use super::journal::PageHash;
use super::time::Timestamp;

/// A completed administrative act. Like its log line, it contains only ids and stable codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DoneAct {
    /// The time at which the act was recorded.
    pub at: Timestamp,
    /// The partner that acted, or a fixed word for an operator.
    pub actor: String,
    /// The id of the API key, never the key itself; empty if no key was used.
    pub key_id: String,
    /// The stable code of the act.
    pub act: String,
    /// The ids of the targets, and further details.
    pub target: String,
    /// The address of the client, or a fixed text for the command line.
    pub origin: String,
    /// Distinguishes equal acts. After a write with an unclear outcome, the author recognizes its own row by the nonce.
    pub nonce: Nonce,
}

/// A row of the audit trail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// The position in the trail, from 1, without gaps.
    pub sequence: u64,
    /// The act that the row records.
    pub done: DoneAct,
    /// The hash of the previous row; [`PageHash::GENESIS`] in the first row.
    pub previous_hash: PageHash,
    /// The hash of the other fields, computed when the row was written.
    pub hash: PageHash,
}

impl AuditRow {
    /// Builds the row that follows the row with this sequence and hash.
    pub fn after((sequence, previous_hash): (u64, PageHash), done: DoneAct) -> Self {
        let sequence = sequence.checked_add(1).expect("a trail has fewer rows than there are numbers");
        let mut row = Self { sequence, done, previous_hash, hash: PageHash::GENESIS };
        row.hash = row.content_hash();
        row
    }

    /// Computes the hash of the other fields. It differs from [`Self::hash`] if the row was changed after it was written.
    pub fn content_hash(&self) -> PageHash {
        let Self { sequence, done, previous_hash, hash: _ } = self;
        let DoneAct { at, actor, key_id, act, target, origin, nonce } = done;
        let mut fields = Fields::new("postonce audit row 1");
        fields.bytes(&sequence.to_be_bytes());
        fields.bytes(previous_hash.as_bytes());
        fields.bytes(nonce.as_uuid().as_bytes());
        fields.number(at.unix_ms());
        for text in [actor, key_id, act, target, origin] {
            fields.text(text);
        }
        PageHash::from_bytes(fields.finish())
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn done() -> DoneAct {
        DoneAct {
            at: Timestamp::from_unix_ms(7),
            actor: "shop".to_owned(),
            key_id: "0123456789abcdef".to_owned(),
            act: "gate.change".to_owned(),
            target: "state=held".to_owned(),
            origin: "192.0.2.1:4711".to_owned(),
            nonce: Nonce::from_uuid(Uuid::from_u128(1)),
        }
    }

    #[test]
    fn the_hash_covers_every_field() {
        let row = AuditRow::after((0, PageHash::GENESIS), done());
        assert_eq!((row.sequence, row.hash), (1, row.content_hash()));
        let changes: [fn(&mut AuditRow); 9] = [
            |row| row.sequence = 2,
            |row| row.previous_hash = row.hash,
            |row| row.done.at = Timestamp::from_unix_ms(8),
            |row| row.done.nonce = Nonce::from_uuid(Uuid::from_u128(2)),
            |row| row.done.actor.push('x'),
            |row| row.done.key_id.push('x'),
            |row| row.done.act.push('x'),
            |row| row.done.target.push('x'),
            |row| row.done.origin.push('x'),
        ];
        for (index, change) in changes.iter().enumerate() {
            let mut changed = row.clone();
            change(&mut changed);
            assert_ne!(changed.content_hash(), row.hash, "change {index}");
        }
        // A character that moves from one field to the next is a change, too.
        let mut moved = row.clone();
        moved.done.actor = "sho".to_owned();
        moved.done.key_id.insert(0, 'p');
        assert_ne!(moved.content_hash(), row.hash);
    }

    #[test]
    fn a_row_contains_the_hash_of_the_row_before_it() {
        let first = AuditRow::after((0, PageHash::GENESIS), done());
        let second = AuditRow::after((first.sequence, first.hash), done());
        assert_eq!((second.sequence, second.previous_hash), (2, first.hash));
        assert_ne!(second.hash, first.hash);
    }
}
