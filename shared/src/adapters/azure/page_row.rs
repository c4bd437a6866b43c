//! The row of a journal page: written once, at commit, and never changed.

use serde::{Deserialize, Serialize};

use super::parts;
use super::rows::{Flaw, corrupt, number, parse, properties};
use super::table::{Found, Properties};
use crate::adapters::page_body;
use crate::domain::ids::Nonce;
use crate::domain::journal::{JournalPage, PageHash};
use crate::ports::fault::{Cause, StoreFault};

/// What stands beside the entries.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PageRow {
    /// How many, so that a page can be passed over unread.
    entries: String,
    previous_hash: String,
    hash: String,
    commit_nonce: String,
}

/// All properties of the page.
pub(super) fn write(page: &JournalPage) -> Properties {
    let JournalPage { account: _, first_sequence: _, entries, previous_hash, hash, nonce } = page;
    let mut row = properties(&PageRow {
        entries: entries.len().to_string(),
        previous_hash: previous_hash.to_string(),
        hash: hash.to_string(),
        commit_nonce: nonce.simple(),
    });
    row.extend(parts::write(page_body::encode(entries).as_bytes()));
    row
}

/// The last sequence of the page, without reading its entries.
pub(super) fn last_sequence(found: &Found, doing: &'static str) -> Result<u64, StoreFault> {
    let row: PageRow = parse(found, doing)?;
    let last = || {
        let count: u64 = number(&row.entries, "Entries")?;
        let after = found.key.to_first_sequence()?.checked_add(count).ok_or(Flaw("Entries"))?;
        after.checked_sub(1).ok_or(Flaw("Entries"))
    };
    last().map_err(|flaw| corrupt(found, doing, flaw))
}

/// Reads a page and checks it.
pub(super) fn read(found: &Found, doing: &'static str) -> Result<JournalPage, StoreFault> {
    let row: PageRow = parse(found, doing)?;
    let page = assemble(found, &row).map_err(|cause| corrupt(found, doing, cause))?;
    page.check().map_err(|flaw| corrupt(found, doing, flaw))?;
    Ok(page)
}

fn assemble(found: &Found, row: &PageRow) -> Result<JournalPage, Cause> {
    let body = parts::read(&found.properties)?;
    let body = std::str::from_utf8(&body)?;
    Ok(JournalPage {
        account: found.key.to_account()?,
        first_sequence: found.key.to_first_sequence()?,
        entries: page_body::decode(body)?,
        previous_hash: PageHash::parse(&row.previous_hash).ok_or(Flaw("PreviousHash"))?,
        hash: PageHash::parse(&row.hash).ok_or(Flaw("Hash"))?,
        nonce: row.commit_nonce.parse::<Nonce>().map_err(|_| Flaw("CommitNonce"))?,
    })
}
