//! `postonce-web recover` and `postonce-web sweep`: maintenance of queued work.

use std::io::Write;
use std::sync::Arc;

use anyhow::Context as _;
use postonce_shared::bank::Bank;
use postonce_shared::messaging::sweep::{Sweep, Swept};
use postonce_shared::oversight::audit::{AuditTarget, Event};
use postonce_shared::protocol::recover::RecoveryScope;

/// Enqueues accepted transactions that have no message, and prints their number.
///
/// # Errors
/// When the transaction log cannot be read, or a message cannot be sent.
pub async fn recover(bank: &Bank, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let recovered = bank.repair.recover(RecoveryScope::Unqueued).await;
    let enqueued = recovered.as_ref().map(|it| AuditTarget::one("enqueued", it.enqueued));
    let target = enqueued.unwrap_or_else(|_| AuditTarget::nothing());
    let recovered = Event::record_command("work.recover", target, recovered);
    let recovered = recovered.context("the log cannot be recovered")?;
    let (examined, enqueued) = (recovered.examined, recovered.enqueued);
    writeln!(out, "examined {examined} accepted transactions, enqueued {enqueued} of them again")?;
    Ok(())
}

/// Removes payloads of finished work that are older than a day, and prints their number.
///
/// # Errors
/// When the payloads cannot be listed or removed.
pub async fn sweep(bank: &Bank, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let swept = Sweep::new(&bank.store, Arc::clone(&bank.world)).run().await;
    let removed = swept.as_ref().map(|it| AuditTarget::one("removed", it.removed));
    let target = removed.unwrap_or_else(|_| AuditTarget::nothing());
    let swept = Event::record_command("payloads.sweep", target, swept);
    let Swept { removed, open, unreadable, young } = swept.context("the payloads cannot be swept")?;
    writeln!(
        out,
        "removed {removed} payloads; kept {open} with open work, {unreadable} that cannot be read and {young} younger \
         than a day"
    )?;
    Ok(())
}
