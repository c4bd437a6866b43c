//! `postonce-web keys …`: API keys, for operators. It works on the store itself and needs no server.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::partner::{Partner, Reach};
use postonce_shared::oversight::audit::{AuditTarget, Event, Outcome};
use postonce_shared::ports::Store;
use postonce_shared::ports::api_keys::ApiKeyRecord;
use postonce_shared::ports::fault::StoreFault;

use crate::access::api_keys::NewKey;
use crate::access::partner_service::{Changed, PartnerService};
use crate::access::scopes::Scope;

/// What to do with API keys.
#[derive(Debug, Clone, Subcommand)]
pub enum KeysCommand {
    /// Makes a key for a partner and prints it, once. A partner that is not known is made, and reaches
    /// everything: `partners add` says more exactly what it may touch.
    Add {
        /// The partner: a lower-case letter first, then lower-case letters, digits or _.
        #[arg(long, value_parser = parse_partner)]
        partner: PartnerId,
        /// What the key allows; repeat it, or separate with commas. Without it: deposit, withdraw, read
        /// and accounts.
        #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', value_parser = parse_scope)]
        scopes: Vec<Scopes>,
    },
    /// Lists all keys, without the keys themselves.
    List,
    /// Revokes a key, for ever. Servers stop to accept it within a second; one that cannot be reached,
    /// within 5 minutes.
    Revoke {
        /// The id, as listed.
        id: String,
    },
}

/// Reads the name of a partner.
///
/// # Errors
/// Says what it may consist of.
pub fn parse_partner(text: &str) -> Result<PartnerId, String> {
    PartnerId::parse(text).map_err(|invalid| invalid.to_string())
}

/// What a typed code grants: codes of older programs may be several scopes.
pub type Scopes = &'static [Scope];

/// Reads the code of a scope.
///
/// # Errors
/// Says which there are.
pub fn parse_scope(text: &str) -> Result<Scopes, String> {
    Scope::of_code(text).ok_or_else(|| format!("allowed are {}", Scope::codes()))
}

/// The scopes that were typed; without any, what a partner needs for its business.
pub fn scopes_or_default(typed: &[Scopes]) -> Vec<Scope> {
    let typed: BTreeSet<Scope> = typed.iter().copied().flatten().copied().collect();
    if typed.is_empty() { PARTNER_SCOPES.to_vec() } else { typed.into_iter().collect() }
}

/// What a partner needs for its business.
const PARTNER_SCOPES: [Scope; 4] = [Scope::Deposit, Scope::Withdraw, Scope::Read, Scope::Accounts];

/// Carries out a command and prints what became of it.
///
/// # Errors
/// When the store cannot be used, or there is no such key.
pub async fn run(
    command: KeysCommand,
    store: &Store,
    desk: &PartnerService,
    (out, err): (&mut (dyn Write + Send), &mut (dyn Write + Send)),
) -> anyhow::Result<()> {
    match command {
        KeysCommand::Add { partner, scopes } => {
            let new = Partner::active(partner.clone(), Reach::Everything, desk.now());
            if desk.find(&partner).await?.is_none() && create(desk, &new).await? {
                writeln!(err, "partner {partner} is new, and reaches every account of the bank")?;
            }
            let key = add_key(desk, &partner, &scopes_or_default(&scopes)).await?;
            writeln!(out, "{}", key.expose())?;
        }
        KeysCommand::List => {
            let records = store.api_keys.list().await.context("the keys could not be read")?;
            for record in records {
                let status = status(desk, &record).await?;
                let (created, scopes) = (record.created_at, record.scopes.join(","));
                writeln!(out, "{}  {}  {created}  {status}  {scopes}", record.id, record.partner)?;
            }
        }
        KeysCommand::Revoke { id } => {
            let record = store.api_keys.find(&id).await.context("the keys could not be read")?;
            let Some(record) = record else {
                // What is no id of a key may be a key.
                Event::by_operator("key.revoke", AuditTarget::nothing(), Outcome::Refused("key_unknown"))
                    .record();
                bail!("there is no key with the id {id}; `keys list` shows them");
            };
            let on = AuditTarget::one("partner", &record.partner).and("key", &id);
            let revoked = desk.revoke_key(&record.partner, &id).await;
            match recorded("key.revoke", on, revoked).context("the key could not be revoked")? {
                Changed::Done(_) => {}
                Changed::Unknown | Changed::Refused(_) => {
                    // A key of a partner without a record opens nothing, and is revoked all the same.
                    let _known = store.api_keys.revoke(&id, desk.now()).await?;
                }
            }
            writeln!(out, "revoked {id}")?;
        }
    }
    Ok(())
}

/// Whether a key works, and why not.
async fn status(desk: &PartnerService, record: &ApiKeyRecord) -> anyhow::Result<String> {
    if let Some(at) = record.revoked_at {
        return Ok(format!("revoked {at}"));
    }
    let partner = desk.find(&record.partner).await.context("the partners could not be read")?;
    Ok(match partner {
        Some(partner) if partner.admits(&record.id) => "works".to_owned(),
        Some(partner) if partner.has_key(&record.id) => "suspended".to_owned(),
        // Made by a process that ended before it gave the key out.
        Some(_) | None => "never given out".to_owned(),
    })
}

/// Makes a key for a partner that is known.
///
/// # Errors
/// When the store cannot be used, or so many keys work already.
pub async fn add_key(desk: &PartnerService, partner: &PartnerId, scopes: &[Scope]) -> anyhow::Result<NewKey> {
    let added = desk.add_key(partner, scopes).await;
    let (key, changed) = match added {
        Ok((key, changed)) => (Some(key), Ok(changed)),
        Err(fault) => (None, Err(fault)),
    };
    let on = AuditTarget::one("partner", partner);
    let on = key.iter().fold(on, |on, key| on.and("key", key.id()));
    let changed = recorded("key.add", on, changed)
        .context("the key could not be stored; it may stand in the list, and can be revoked")?;
    match (changed, key) {
        (Changed::Done(_), Some(key)) => Ok(key),
        (Changed::Refused(refusal), _) => bail!("a key for {partner} cannot be added: {refusal}"),
        (Changed::Unknown | Changed::Done(_), _) => {
            bail!("there is no partner {partner}; `partners list` shows them")
        }
    }
}

/// Makes a partner, and records it. False when there is one of that name.
///
/// # Errors
/// [`StoreFault`]: it may have been made.
pub async fn create(desk: &PartnerService, partner: &Partner) -> Result<bool, StoreFault> {
    let created = desk.create(partner).await;
    let outcome = match &created {
        Ok(true) => Outcome::Done,
        Ok(false) => Outcome::Refused("partner_exists"),
        Err(_) => Outcome::Failed("storage_unavailable"),
    };
    Event::by_operator("partner.change", AuditTarget::one("partner", &partner.id), outcome).record();
    created
}

/// Records what became of a change of a partner on the command line, and passes it on.
///
/// # Errors
/// Those of the change.
pub fn recorded(
    act: &str,
    on: AuditTarget,
    changed: Result<Changed, StoreFault>,
) -> Result<Changed, StoreFault> {
    let outcome = match &changed {
        Ok(Changed::Done(_)) => Outcome::Done,
        Ok(Changed::Unknown) => Outcome::Refused("partner_unknown"),
        Ok(Changed::Refused(unfit)) => Outcome::Refused(unfit.code().published().code),
        Err(_) => Outcome::Failed("storage_unavailable"),
    };
    Event::by_operator(act, on, outcome).record();
    changed
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postonce_shared::adapters::http::PeerNetwork;
    use postonce_shared::adapters::memory::MemoryStore;
    use postonce_shared::adapters::memory::world::TestWorld;
    use postonce_shared::ports::world::World;

    use super::*;
    use crate::access::keyring::Keyring;
    use crate::access::partner_broadcast::PartnerBroadcast;

    #[tokio::test]
    async fn a_key_is_added_listed_and_revoked() {
        let world = Arc::new(TestWorld::new(1));
        let store = MemoryStore::new(world.clone());
        let as_world: Arc<dyn World> = world.clone();
        let exchange = PeerNetwork::new(&store, &as_world, None).unwrap();
        let desk =
            PartnerService::new(&store, as_world.clone(), PartnerBroadcast::new(&exchange, as_world, None));
        let run = async |command| {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let done = run(command, &store, &desk, (&mut out, &mut err)).await;
            done.map(|()| (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap()))
        };
        let add = || KeysCommand::Add { partner: PartnerId::parse("shop").unwrap(), scopes: Vec::new() };
        let (key, told) = run(add()).await.unwrap();
        assert!(told.contains("shop is new, and reaches every account"), "{told}");
        let works = async || {
            let keyring = Keyring::new(&store, world.clone());
            keyring.look_up(key.trim()).await.unwrap().is_some()
        };
        assert!(works().await);
        let (listed, _) = run(KeysCommand::List).await.unwrap();
        assert!(listed.contains("shop") && listed.contains("works") && !listed.contains(key.trim()));
        let id = listed.split_whitespace().next().unwrap().to_owned();
        // A second key beside it, to change over; not a third one.
        let (_second, told) = run(add()).await.unwrap();
        assert_eq!(told, "", "the partner is known");
        let refused = run(add()).await.unwrap_err().to_string();
        assert!(refused.contains("2 keys work already") && refused.contains("revoke one first"), "{refused}");
        let (revoked, _) = run(KeysCommand::Revoke { id: id.clone() }).await.unwrap();
        assert_eq!(revoked, format!("revoked {id}\n"));
        assert!(!works().await);
        assert!(run(KeysCommand::List).await.unwrap().0.contains("revoked 2"), "the list tells");
        run(add()).await.unwrap();
        assert!(run(KeysCommand::Revoke { id: "0".repeat(16) }).await.is_err());
    }
}
