//! What the commands are in the audit trail.

use postonce_shared::audit::On;

use super::{PartnersCommand, SignatureKeysCommand};

impl PartnersCommand {
    /// What it is in the audit trail, where it changes something.
    pub(super) fn act(&self) -> Option<(&'static str, On)> {
        let on = |partner| On::one("partner_id", partner);
        Some(match self {
            Self::Add { id, .. } => ("partner.add", on(id)),
            Self::Change { id, .. } => ("partner.change", on(id)),
            Self::Suspend { id } => ("partner.suspend", on(id)),
            Self::Resume { id } => ("partner.resume", on(id)),
            Self::SignatureKeys(SignatureKeysCommand::Add { partner, key_id, .. }) => {
                ("signature_key.add", on(partner).and("key_id", key_id))
            }
            Self::SignatureKeys(SignatureKeysCommand::Remove { partner, key_id }) => {
                ("signature_key.remove", on(partner).and("key_id", key_id))
            }
            Self::List | Self::Show { .. } => return None,
        })
    }
}
