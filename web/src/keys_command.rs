//! `postonce-web keys …`: API keys, for operators. It works on the store itself and needs no server.

use std::io::Write;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use postonce_shared::audit::{Event, On, Outcome};
use postonce_shared::domain::ids::PartnerId;
use postonce_shared::ports::Store;
use postonce_shared::ports::world::World;

use crate::api_keys::NewKey;
use crate::scopes::Scope;

/// What to do with API keys.
#[derive(Debug, Clone, Subcommand)]
pub enum KeysCommand {
    /// Makes a key for a partner and prints it, once.
    Add {
        /// The partner: a lower-case letter first, then lower-case letters, digits or _.
        #[arg(long, value_parser = parse_partner)]
        partner: PartnerId,
        /// What the key allows; repeat it, or separate with commas. Without it: accounts and
        /// transactions, to read and to write.
        #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', value_parser = parse_scope)]
        scopes: Vec<Scope>,
    },
    /// Lists all keys, without the keys themselves.
    List,
    /// Revokes a key, for ever. Servers stop to accept it within 30 seconds.
    Revoke {
        /// The id, as listed.
        id: String,
    },
}

fn parse_partner(text: &str) -> Result<PartnerId, String> {
    PartnerId::parse(text).map_err(|invalid| invalid.to_string())
}

fn parse_scope(text: &str) -> Result<Scope, String> {
    Scope::from_code(text).ok_or_else(|| {
        let codes: Vec<&str> = Scope::ALL.iter().map(|scope| scope.code()).collect();
        format!("allowed are {}", codes.join(", "))
    })
}

/// What a partner needs for its business.
const PARTNER_SCOPES: [Scope; 4] =
    [Scope::AccountsRead, Scope::AccountsWrite, Scope::TransactionsRead, Scope::TransactionsWrite];

/// Carries out a command and prints what became of it.
///
/// # Errors
/// When the store cannot be used, or there is no such key.
pub async fn run(
    command: KeysCommand,
    store: &Store,
    world: &dyn World,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        KeysCommand::Add { partner, scopes } => {
            let scopes = if scopes.is_empty() { PARTNER_SCOPES.to_vec() } else { scopes };
            let key = NewKey::random();
            let record = key.record(partner, &scopes, world);
            let on = On::one("partner", &record.partner).and("key", &record.id);
            let on = on.and("scopes", record.scopes.join(","));
            Event::operated("key.add", on, store.api_keys.add(&record).await)
                .context("the key could not be stored")?;
            writeln!(out, "{}", key.expose())?;
        }
        KeysCommand::List => {
            let records = store.api_keys.list().await.context("the keys could not be read")?;
            for record in records {
                let status = record.revoked_at.map_or("works".to_owned(), |at| format!("revoked {at}"));
                let (created, scopes) = (record.created_at, record.scopes.join(","));
                writeln!(out, "{}  {}  {created}  {status}  {scopes}", record.id, record.partner)?;
            }
        }
        KeysCommand::Revoke { id } => {
            let revoked = store.api_keys.revoke(&id, world.now()).await;
            // What is no id of a key may be a key.
            let on = if matches!(revoked, Ok(true)) { On::one("key", &id) } else { On::nothing() };
            let outcome = match revoked {
                Ok(true) => Outcome::Done,
                Ok(false) => Outcome::Refused("key_unknown"),
                Err(_) => Outcome::Failed("storage_unavailable"),
            };
            Event::by_operator("key.revoke", on, outcome).record();
            if !revoked.context("the key could not be revoked")? {
                bail!("there is no key with the id {id}; `keys list` shows them");
            }
            writeln!(out, "revoked {id}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use postonce_shared::adapters::memory::MemoryStore;
    use postonce_shared::adapters::memory::world::TestWorld;

    use super::*;
    use crate::keyring::Keyring;

    #[tokio::test]
    async fn a_key_is_added_listed_and_revoked() {
        let world = Arc::new(TestWorld::new(1));
        let store = MemoryStore::new(world.clone());
        let run = async |command| {
            let mut out = Vec::new();
            run(command, &store, &*world, &mut out).await.map(|()| String::from_utf8(out).unwrap())
        };
        let partner = PartnerId::parse("shop").unwrap();
        let key = run(KeysCommand::Add { partner, scopes: Vec::new() }).await.unwrap();
        let works = async || {
            let keyring = Keyring::new(Arc::clone(&store.api_keys), world.clone());
            keyring.look_up(key.trim()).await.unwrap().is_some()
        };
        assert!(works().await);
        let listed = run(KeysCommand::List).await.unwrap();
        assert!(listed.contains("shop") && listed.contains("works") && !listed.contains(key.trim()));
        let id = listed.split_whitespace().next().unwrap().to_owned();
        assert_eq!(run(KeysCommand::Revoke { id: id.clone() }).await.unwrap(), format!("revoked {id}\n"));
        assert!(!works().await);
        assert!(run(KeysCommand::Revoke { id: "0".repeat(16) }).await.is_err());
    }
}
