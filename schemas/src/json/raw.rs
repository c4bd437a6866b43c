//! JSON members that are passed on unchanged.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// Members of a JSON object as text. Their values are serialized without parsing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RawMembers(String);

impl RawMembers {
    /// Creates the members from the text of a JSON object. Any other text results in no members.
    pub fn new(object: &str) -> Self {
        Self(object.to_owned())
    }

    /// Returns all members except the one with this name.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(&self.0).unwrap_or_default();
        if !members.contains_key(name) {
            return self.clone();
        }
        let others: BTreeMap<_, _> = members.into_iter().filter(|(other, _)| other != name).collect();
        if others.is_empty() {
            return Self::default();
        }
        Self(serde_json::to_string(&others).expect("members that were read can be written"))
    }

    /// Returns whether there are no members.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for RawMembers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(&self.0).unwrap_or_default();
        members.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawMembers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let members = BTreeMap::<String, Value>::deserialize(deserializer)?;
        Ok(if members.is_empty() { Self::default() } else { Self(serde_json::json!(members).to_string()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_serialized_unchanged() {
        #[derive(Serialize, Deserialize)]
        struct Answer {
            known: u8,
            #[serde(flatten)]
            rest: RawMembers,
        }
        let check = |object: &str, expected: &str| {
            let answer = Answer { known: 1, rest: RawMembers::new(object) };
            assert_eq!(serde_json::to_string(&answer).unwrap(), expected);
        };
        check(
            r#"{"a":[1.50,"\u00e9"],"b":{"d":1,"c":2}}"#,
            r#"{"known":1,"a":[1.50,"\u00e9"],"b":{"d":1,"c":2}}"#,
        );
        check("", r#"{"known":1}"#);
        check("[1]", r#"{"known":1}"#);
        let without = |object: &str| RawMembers::new(object).without("b").0;
        assert_eq!(without(r#"{"a":[1.50]}"#), r#"{"a":[1.50]}"#);
        assert_eq!(without(r#"{"a":[1.50],"b":2}"#), r#"{"a":[1.50]}"#);
        assert_eq!(without(r#"{"b":2}"#), "");
        assert_eq!(without(""), "");
        let read: Answer = serde_json::from_str(r#"{"known":1,"a":{"b":2}}"#).unwrap();
        assert_eq!(read.rest, RawMembers::new(r#"{"a":{"b":2}}"#));
    }
}
