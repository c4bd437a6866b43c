//! Signed-in operator as pages know it: the rights of the key, and what forms and links need.

use maud::{Markup, Render};
use postonce_schemas::json::Key;
use postonce_shared::domain::time::Timestamp;

use super::addresses::{ACCOUNT, PARTNER, Section};
use super::html::components::link_if;
use crate::access::scopes::Scope;

/// Signed-in operator.
#[derive(Debug, Clone)]
pub struct Viewer {
    /// Token that forms must contain.
    pub csrf: String,
    /// Id of the partner that owns the key.
    pub partner: String,
    /// Id of the key.
    pub key_id: String,
    /// Time of the request.
    pub now: Timestamp,
    scopes: Vec<Scope>,
}

impl Viewer {
    /// Creates the viewer for the owner of a key.
    pub fn new(key: Key, csrf: String, now: Timestamp) -> Self {
        let Key { partner_id, key_id, scopes, .. } = key;
        Self { csrf, partner: partner_id, key_id, now, scopes: Scope::of_stored(&scopes) }
    }

    /// Returns whether the key has a scope.
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|own| own.includes(scope))
    }

    /// Returns whether the key may read a section.
    pub fn may_read(&self, section: Section) -> bool {
        section.scopes().iter().any(|scope| self.may(*scope))
    }

    /// Returns the sections that the key may read.
    pub fn sections(&self) -> Vec<Section> {
        Section::ALL.iter().copied().filter(|section| self.may_read(*section)).collect()
    }

    /// Returns a link to a section, or plain text if the key may not read it.
    pub fn link(&self, section: Section, words: impl Render) -> Markup {
        link_if(self.may_read(section), section.path(), words)
    }

    /// Returns the name of a partner, linked if the key may read partners.
    pub fn partner_link(&self, partner: &str) -> Markup {
        link_if(self.may_read(Section::Partners), &PARTNER.of([partner]), partner)
    }

    /// Returns a link to an account, or plain text if the key may not read accounts.
    pub fn account_link(&self, user: &str, account: &str, words: impl Render) -> Markup {
        link_if(self.may_read(Section::Accounts), &ACCOUNT.of([user, account]), words)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a viewer of the partner `ops` whose key has these scopes.
    pub fn viewer(scopes: &[Scope]) -> Viewer {
        Viewer {
            csrf: "token".to_owned(),
            partner: "ops".to_owned(),
            key_id: "0000111122223333".to_owned(),
            now: Timestamp::parse("2026-11-21T08:00:00Z").unwrap(),
            scopes: scopes.to_vec(),
        }
    }

    #[test]
    fn only_what_may_be_read_is_a_link() {
        let text = |scopes: &[Scope]| viewer(scopes).link(Section::Gate, "The gate").into_string();
        assert_eq!(text(&[Scope::Operate]), r#"<a href="/console/gate">The gate</a>"#);
        assert_eq!(text(&[Scope::Read]), "The gate");
    }

    #[test]
    fn one_of_the_scopes_of_a_section_suffices() {
        assert_eq!(viewer(&[Scope::Batch]).sections(), [Section::Batches]);
        assert!(viewer(&[Scope::Operate]).may_read(Section::Batches));
        assert_eq!(viewer(Scope::ALL).sections(), Section::ALL);
    }
}
