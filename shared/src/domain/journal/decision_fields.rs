//! The fields of a decision about a transaction, listed once for the hashes and for what is shown of them.

use crate::domain::instruction::Fields;

/// Receives the fields of a decision with their names, in the order in which they are hashed. Names are not hashed.
pub trait DecisionFields {
    /// Adds a text.
    fn text(&mut self, name: &'static str, text: &str);
    /// Adds bytes.
    fn bytes(&mut self, name: &'static str, bytes: &[u8]);
    /// Adds a whole number without a sign, whose bytes are hashed like those of [`Self::bytes`].
    fn counter(&mut self, name: &'static str, counter: u64);
    /// Adds a whole number.
    fn number(&mut self, name: &'static str, number: i64);
}

impl DecisionFields for Fields {
    fn text(&mut self, _: &'static str, text: &str) {
        Self::text(self, text);
    }

    fn bytes(&mut self, _: &'static str, bytes: &[u8]) {
        Self::bytes(self, bytes);
    }

    fn counter(&mut self, _: &'static str, counter: u64) {
        Self::bytes(self, &counter.to_be_bytes());
    }

    fn number(&mut self, _: &'static str, number: i64) {
        Self::number(self, number);
    }
}
