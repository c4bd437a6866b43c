//! What the commands print of partners. No key, and nothing that a key signs with, is ever printed here.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::Context as _;
use postonce_shared::domain::partner::{Partner, Reach, RequestRate};

use super::DEFAULT;
use crate::access::partner_service::PartnerService;

/// Partners that are read at once for the list.
const LIST_PAGE: usize = 200;

/// Prints all partners, a line each.
pub async fn list(desk: &PartnerService, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let mut after = None;
    loop {
        let page = desk.list(after.as_ref(), LIST_PAGE).await.context("the partners could not be read")?;
        for partner in &page {
            let (status, keys) = (partner.status.code(), partner.keys.len());
            let reach = reach_in_words(&partner.reach);
            writeln!(out, "{}  {status}  {keys} keys  {}  {reach}", partner.id, partner.changed_at)?;
        }
        match page.last() {
            Some(last) if page.len() == LIST_PAGE => after = Some(last.id.clone()),
            Some(_) | None => return Ok(()),
        }
    }
}

/// Prints what a partner may do, and its keys.
pub async fn show(
    partner: &Partner,
    desk: &PartnerService,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let scopes = desk.scopes_of(std::slice::from_ref(partner)).await.context("its keys could not be read")?;
    writeln!(out, "{}: {}", partner.id, partner.status.code())?;
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
            writeln!(out, "  rate {per_second} requests a second, {burst} at once")?;
        }
        None => writeln!(out, "  rate {DEFAULT}")?,
    }
    let signatures = if partner.signature_required { "required" } else { "optional" };
    writeln!(out, "  signatures {signatures}")?;
    for key in &partner.signature_keys {
        writeln!(out, "    {}  {}", key.id, key.algorithm.code())?;
    }
    writeln!(out, "  keys that work: {}", partner.keys.len())?;
    for key in &partner.keys {
        let scopes = scopes.get(&key.id).map(Vec::as_slice).unwrap_or_default();
        let scopes: Vec<&str> = scopes.iter().map(|scope| scope.code()).collect();
        writeln!(out, "    {}  {}  {}", key.id, key.created_at, scopes.join(","))?;
    }
    writeln!(out, "  since {}, changed {}", partner.created_at, partner.changed_at)?;
    Ok(())
}

/// What a partner may touch, in short.
pub fn reach_in_words(reach: &Reach) -> String {
    match reach {
        Reach::Everything => "every account of the bank".to_owned(),
        Reach::Named { users, accounts } => {
            format!("{} users and {} accounts", users.len(), accounts.len())
        }
    }
}
