//! The fields of a decision about a transaction. They are listed once for both the hash and the inclusion proof.

use crate::domain::instruction::Fields;

/// Receives the fields of a decision in the order in which they are hashed. The names are not hashed.
pub trait DecisionFields {
    /// Adds a text, hashed as its length and its UTF-8 bytes.
    fn text(&mut self, name: &'static str, text: &str);
    /// Adds bytes, hashed as their number and the bytes.
    fn bytes(&mut self, name: &'static str, bytes: &[u8]);
    /// Adds an unsigned integer, hashed as its eight bytes like [`Self::bytes`].
    fn counter(&mut self, name: &'static str, counter: u64);
    /// Adds a signed integer, hashed as its eight bytes without a length.
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
