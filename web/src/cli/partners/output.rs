//! Output of partners. API keys and signature key material are never printed.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::Context as _;
use postonce_shared::domain::partner::{Partner, Reach, RequestRate};

use super::DEFAULT;
use crate::access::management_rights::KeyDetails;
use crate::access::partner_service::PartnerService;
use crate::cli::keys::lifetimes;

const LIST_PAGE: usize = 200;

/// Prints all partners, one per line.
pub async fn list(service: &PartnerService, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let mut after = None;
    loop {
        let page = service.list(after.as_ref(), LIST_PAGE).await.context("the partners could not be read")?;
        for partner in &page {
            let (status, keys) = (partner.status().code(), partner.keys.len());
            let reach = reach_in_words(&partner.reach);
            writeln!(out, "{}  {status}  {keys} keys  {}  {reach}", partner.id, partner.changed_at)?;
        }
        match page.last() {
            Some(last) if page.len() == LIST_PAGE => after = Some(last.id.clone()),
            Some(_) | None => return Ok(()),
        }
    }
}

/// Prints a partner and its keys.
pub async fn show(
    partner: &Partner,
    service: &PartnerService,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let details = service
        .keys_of(std::slice::from_ref(partner))
        .await
        .context("the keys of the partner could not be read")?;
    writeln!(out, "{}: {}", partner.id, partner.status().code())?;
    if let Some(needs) = partner.suspended_with {
        writeln!(out, "  is resumed on the command line, or with a key of the scope {needs}")?;
    }
    writeln!(out, "  reaches {}", reach_in_words(&partner.reach))?;
    let (users, accounts) = match &partner.reach {
        Reach::Everything => (&BTreeSet::new(), &BTreeSet::new()),
        Reach::Named { users, accounts } => (users, accounts),
    };
    for user in users {
        writeln!(out, "    user {user}")?;
    }
    for account in accounts {
        writeln!(out, "    account {account}")?;
    }
    writeln!(out, "  format {}", partner.format.as_deref().unwrap_or(DEFAULT))?;
    match partner.rate {
        Some(RequestRate { per_second, burst }) => {
            writeln!(out, "  rate {per_second} requests per second, burst {burst}")?;
        }
        None => writeln!(out, "  rate {DEFAULT}")?,
    }
    match partner.credit_ceilings.listed(|ceiling| ceiling.to_string()) {
        None => writeln!(out, "  credit without a ceiling")?,
        Some(ceilings) if ceilings.is_empty() => writeln!(out, "  credit up to none")?,
        Some(ceilings) => {
            let ceilings: Vec<String> =
                ceilings.iter().map(|(code, ceiling)| format!("{code}={ceiling}")).collect();
            writeln!(out, "  credit up to {}", ceilings.join(", "))?;
        }
    }
    let signatures = if partner.signature_required { "required" } else { "optional" };
    writeln!(out, "  signatures {signatures}")?;
    for key in &partner.signature_keys {
        writeln!(out, "    {}  {}", key.id, key.algorithm.code())?;
    }
    writeln!(out, "  active keys: {}", partner.keys.len())?;
    for key in &partner.keys {
        let KeyDetails { scopes, expires_at, last_used_at } =
            details.get(&key.id).cloned().unwrap_or_default();
        let scopes: Vec<&str> = scopes.iter().map(|scope| scope.code()).collect();
        let times = lifetimes(expires_at, last_used_at);
        writeln!(out, "    {}  {}  {}{times}", key.id, key.created_at, scopes.join(","))?;
    }
    writeln!(out, "  created {}, changed {}", partner.created_at, partner.changed_at)?;
    Ok(())
}

/// Describes the reach of a partner.
pub fn reach_in_words(reach: &Reach) -> String {
    match reach {
        Reach::Everything => "every account of the bank".to_owned(),
        Reach::Named { users, accounts } => {
            format!("{} users and {} accounts", users.len(), accounts.len())
        }
    }
}
