//! `postonce-web keys …`: administration of API keys. It accesses the store directly, and needs no running server.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::oversight::audit::{AuditTarget, AuditTrail, Event, Outcome};
use postonce_shared::ports::Store;
use postonce_shared::ports::api_keys::ApiKeyRecord;
use postonce_shared::ports::fault::StoreFault;

use crate::access::api_keys::NewKey;
use crate::access::management_rights::ManagementRights;
use crate::access::partner_service::{PartnerChangeOutcome, PartnerService};
use crate::access::partner_terms::NewKeyTerms;
use crate::access::scopes::Scope;
use crate::cli::times::Expiry;

/// Subcommands of `keys`.
#[derive(Debug, Clone, Subcommand)]
pub enum KeysCommand {
    /// Create a key for an existing partner and print it once. `partners add` creates a partner and its first key.
    Add {
        /// Partner: a lower-case letter, then lower-case letters, digits or _.
        #[arg(long, value_parser = parse_partner)]
        partner: PartnerId,
        /// Scope of the key; repeat it, or separate scopes with commas. Default: deposit, withdraw, read and
        /// accounts.
        #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', value_parser = parse_scope)]
        scopes: Vec<Scope>,
        /// Expiry
        #[command(flatten)]
        expiry: Expiry,
    },
    /// List all keys: ids, partners, states, scopes, expiries and last uses, but not the keys themselves.
    List,
    /// Revoke a key permanently. Servers refuse it within a second; a server that cannot be reached refuses it
    /// within 5 minutes.
    Revoke {
        /// Key id, as printed by `keys list`.
        id: String,
    },
}

/// Parses a partner id.
///
/// # Errors
/// A message with the allowed form.
pub fn parse_partner(text: &str) -> Result<PartnerId, String> {
    PartnerId::parse(text).map_err(|invalid| invalid.to_string())
}

/// Parses the code of a scope.
///
/// # Errors
/// A message with the supported codes.
pub fn parse_scope(text: &str) -> Result<Scope, String> {
    Scope::from_code(text).ok_or_else(|| format!("must be one of {}", Scope::codes()))
}

/// Returns the given scopes, or the default scopes if none are given.
fn scopes_or_default(typed: &[Scope]) -> Vec<Scope> {
    let typed: BTreeSet<Scope> = typed.iter().copied().collect();
    if typed.is_empty() { PARTNER_SCOPES.to_vec() } else { typed.into_iter().collect() }
}

/// Returns the terms of a new key.
///
/// # Errors
/// When the expiry is in the past.
pub fn key_terms(scopes: &[Scope], expiry: &Expiry, now: Timestamp) -> anyhow::Result<NewKeyTerms> {
    Ok(NewKeyTerms { scopes: scopes_or_default(scopes), expires_at: expiry.at(now)? })
}

/// Returns the expiry and the recorded use of a key for the end of its line. Omits unknown values.
pub fn lifetimes(expires_at: Option<Timestamp>, last_used_at: Option<Timestamp>) -> String {
    let expires = expires_at.map(|at| format!("  expires {at}"));
    let used = last_used_at.map(|at| format!("  used {at}"));
    expires.into_iter().chain(used).collect()
}

const PARTNER_SCOPES: [Scope; 4] = [Scope::Deposit, Scope::Withdraw, Scope::Read, Scope::Accounts];

/// Runs a command and prints its result.
///
/// # Errors
/// When the store is not available, or the key does not exist.
pub async fn run(
    command: KeysCommand,
    store: &Store,
    (service, audit): (&PartnerService, &Arc<AuditTrail>),
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        KeysCommand::Add { partner, scopes, expiry } => {
            let terms = key_terms(&scopes, &expiry, service.now())?;
            let key = add_key(service, audit, &partner, &terms).await?;
            writeln!(out, "{}", key.expose())?;
        }
        KeysCommand::List => {
            let records = store.api_keys.list().await.context("the keys could not be read")?;
            for record in records {
                let status = status(service, &record).await?;
                let scopes: Vec<&str> =
                    Scope::of_stored(&record.scopes).into_iter().map(Scope::code).collect();
                let (created, scopes) = (record.created_at, scopes.join(","));
                let times = lifetimes(record.expires_at, record.last_used_at);
                writeln!(out, "{}  {}  {created}  {status}  {scopes}{times}", record.id, record.partner)?;
            }
        }
        KeysCommand::Revoke { id } => {
            let record = store.api_keys.find(&id).await.context("the keys could not be read")?;
            let Some(record) = record else {
                // The id is not logged, because the argument could be a key.
                Event::by_operator("key.revoke", AuditTarget::nothing(), Outcome::Refused("key_unknown"))
                    .log();
                bail!("no key has the id {id}; `keys list` shows all ids");
            };
            let on = AuditTarget::one("partner", &record.partner).and("key", &id);
            let revoked = service.revoke_key(&record.partner, &id, ManagementRights::Full).await;
            let revoked = match revoked {
                // The key of a partner without a record is not valid, but its row is revoked anyway.
                Ok(PartnerChangeOutcome::Unknown | PartnerChangeOutcome::Refused(_)) => {
                    store.api_keys.revoke(&id, service.now()).await.map(drop)
                }
                revoked => revoked.map(drop),
            };
            audit.record_command("key.revoke", on, revoked).await.context("the key could not be revoked")?;
            writeln!(out, "revoked {id}")?;
        }
    }
    Ok(())
}

async fn status(service: &PartnerService, record: &ApiKeyRecord) -> anyhow::Result<String> {
    if let Some(at) = record.revoked_at {
        return Ok(format!("revoked {at}"));
    }
    let partner = service.find(&record.partner).await.context("the partners could not be read")?;
    Ok(match partner {
        _ if !record.is_valid_at(service.now()) => "expired".to_owned(),
        Some(partner) if partner.admits(&record.id) => "active".to_owned(),
        Some(partner) if partner.has_key(&record.id) => "suspended".to_owned(),
        // The creation or the revocation of the key was interrupted.
        Some(_) | None => "interrupted".to_owned(),
    })
}

/// Creates a key for an existing partner, and records it in the audit trail.
///
/// # Errors
/// When the store is not available, or the partner has the maximum number of keys.
pub async fn add_key(
    service: &PartnerService,
    audit: &Arc<AuditTrail>,
    partner: &PartnerId,
    terms: &NewKeyTerms,
) -> anyhow::Result<NewKey> {
    let added = service.add_key(partner, terms, ManagementRights::Full).await;
    let (key, changed) = match added {
        Ok((key, changed)) => (Some(key), Ok(changed)),
        Err(fault) => (None, Err(fault)),
    };
    let on = AuditTarget::one("partner", partner);
    let on = key.iter().fold(on, |on, key| on.and("key", key.id()));
    let changed = recorded(audit, "key.add", on, changed)
        .await
        .context("the key could not be stored; if `keys list` shows it, revoke it")?;
    match (changed, key) {
        (PartnerChangeOutcome::Done(_), Some(key)) => Ok(key),
        (PartnerChangeOutcome::Refused(refusal), _) => {
            bail!("no key can be added for {partner}: {refusal}")
        }
        (PartnerChangeOutcome::Unknown | PartnerChangeOutcome::Done(_), _) => {
            bail!(
                "partner {partner} does not exist: create it, with its first key, by `partners add {partner} \
                 --all-accounts`, or with --user or --account instead; `partners list` shows all partners"
            )
        }
    }
}

/// Records the outcome of a change of a partner in the audit trail, and returns that outcome.
///
/// # Errors
/// The error of the change.
pub async fn recorded(
    audit: &Arc<AuditTrail>,
    act: &str,
    on: AuditTarget,
    changed: Result<PartnerChangeOutcome, StoreFault>,
) -> Result<PartnerChangeOutcome, StoreFault> {
    let outcome = match &changed {
        Ok(PartnerChangeOutcome::Done(_)) => Outcome::Done,
        Ok(PartnerChangeOutcome::Unknown) => Outcome::Refused("partner_unknown"),
        Ok(PartnerChangeOutcome::Refused(refusal)) => Outcome::Refused(refusal.code().published().code),
        Err(_) => Outcome::Failed("storage_unavailable"),
    };
    audit.record(&Event::by_operator(act, on, outcome)).await;
    changed
}

#[cfg(test)]
mod tests {
    use postonce_shared::adapters::http::PeerNetwork;
    use postonce_shared::adapters::memory::MemoryStore;
    use postonce_shared::adapters::memory::world::TestWorld;
    use postonce_shared::cluster::doorbell_secret::DoorbellSecret;
    use postonce_shared::domain::partner::{Partner, Reach};
    use postonce_shared::ports::world::World;

    use super::*;
    use crate::access::keyring::Keyring;
    use crate::access::partner_broadcast::PartnerBroadcast;

    #[tokio::test]
    async fn a_key_is_added_listed_and_revoked() {
        let world = Arc::new(TestWorld::new(1));
        let store = MemoryStore::new(world.clone());
        let as_world: Arc<dyn World> = world.clone();
        let network = PeerNetwork::new(&store, &as_world, DoorbellSecret::new(None)).unwrap();
        let service =
            PartnerService::new(&store, as_world.clone(), PartnerBroadcast::new(&network, as_world, None));
        let audit = Arc::new(AuditTrail::new(&store, world.clone()));
        let run = async |command| {
            let mut out = Vec::new();
            let done = run(command, &store, (&service, &audit), &mut out).await;
            done.map(|()| String::from_utf8(out).unwrap())
        };
        let shop = PartnerId::parse("shop").unwrap();
        let add =
            || KeysCommand::Add { partner: shop.clone(), scopes: Vec::new(), expiry: Expiry::default() };
        let unknown = run(add()).await.unwrap_err().to_string();
        assert!(unknown.contains("`partners add shop --all-accounts`"), "{unknown}");
        assert_eq!(run(KeysCommand::List).await.unwrap(), "", "no key and no partner was made");
        let partner = Partner::active(shop.clone(), Reach::Everything, world.now());
        assert!(service.create(&partner).await.unwrap());
        let key = run(add()).await.unwrap();
        let works = async || {
            let keyring = Keyring::new(&store, world.clone());
            keyring.look_up(key.trim()).await.unwrap().is_some()
        };
        assert!(works().await);
        let listed = run(KeysCommand::List).await.unwrap();
        assert!(listed.contains("shop") && listed.contains("active") && !listed.contains(key.trim()));
        let id = listed.split_whitespace().next().unwrap().to_owned();
        // Two keys are allowed, for rotation, but not a third one.
        run(add()).await.unwrap();
        let refused = run(add()).await.unwrap_err().to_string();
        assert!(refused.contains("2 keys are active") && refused.contains("revoke one first"), "{refused}");
        let revoked = run(KeysCommand::Revoke { id: id.clone() }).await.unwrap();
        assert_eq!(revoked, format!("revoked {id}\n"));
        assert!(!works().await);
        assert!(run(KeysCommand::List).await.unwrap().contains("revoked 2"), "the list shows it");
        run(add()).await.unwrap();
        assert!(run(KeysCommand::Revoke { id: "0".repeat(16) }).await.is_err());
        let listed = run(KeysCommand::List).await.unwrap();
        assert!(!listed.contains("expires") && listed.contains("used 2"), "the first key was used: {listed}");
        let rows = audit.list(None, 10).await.unwrap();
        let acts: Vec<&str> = rows.iter().map(|row| row.done.act.as_str()).collect();
        assert_eq!(acts, ["key.add", "key.revoke", "key.add", "key.add"], "only what was done");
        assert_eq!(rows[1].done.target, format!("partner=shop key={id}"));
        assert!(
            rows.iter().all(
                |row| (row.done.actor.as_str(), row.done.origin.as_str()) == ("operator", "command line")
            )
        );
    }
}
