//! `postonce-web recover` and `postonce-web sweep`: maintenance of queued work.

use std::io::Write;
use std::sync::Arc;

use anyhow::Context as _;
use postonce_shared::bank::Bank;
use postonce_shared::messaging::sweep::{Sweep, Swept};
use postonce_shared::oversight::audit::{AuditTarget, AuditTrail};
use postonce_shared::protocol::recover::{Recovered, RecoveryScope};

/// Enqueues accepted transactions that have no message. Prints their number, and the time until which all accepted
/// transactions are final or have a message of their own. A message whose payload was lost waits for that time.
///
/// # Errors
/// When the transaction log cannot be read, or a message cannot be sent.
pub async fn recover(bank: &Bank, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let recovered = bank.repair.recover(RecoveryScope::All).await;
    let on = |it: &Recovered| AuditTarget::one("enqueued", it.enqueued);
    let recovered = record(&bank.audit, "work.recover", recovered, on).await;
    let recovered = recovered.context("the log cannot be recovered")?;
    let Recovered { examined, enqueued, damaged, until } = recovered;
    writeln!(out, "examined {examined} accepted transactions, enqueued {enqueued} of them again")?;
    if damaged > 0 {
        writeln!(out, "{damaged} accepted transactions cannot be read; the log names them")?;
    }
    if let Some(until) = until {
        writeln!(
            out,
            "all that were accepted until {until} are final, in the dead letters or in messages of their own"
        )?;
    }
    Ok(())
}

/// Removes payloads of finished work that are older than a day. Prints their number.
///
/// # Errors
/// When the payloads cannot be listed or removed.
pub async fn sweep(bank: &Bank, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    // A tombstone of a removed payload needs the secret of the seals.
    bank.seal.ready(&*bank.world).await;
    let swept = Sweep::new(&bank.store, &bank.seal, Arc::clone(&bank.world)).run().await;
    let on = |it: &Swept| AuditTarget::one("removed", it.removed);
    let swept = record(&bank.audit, "payloads.sweep", swept, on).await;
    let Swept { removed, open, unreadable, young } = swept.context("the payloads cannot be swept")?;
    writeln!(
        out,
        "removed {removed} payloads; kept {open} with open work, {unreadable} that cannot be read and {young} younger \
         than a day"
    )?;
    Ok(())
}

/// Records a command in the audit trail, with a target derived from its result if it succeeded.
async fn record<T, E>(
    audit: &Arc<AuditTrail>,
    act: &str,
    ended: Result<T, E>,
    target: impl Fn(&T) -> AuditTarget,
) -> Result<T, E> {
    let target = ended.as_ref().map_or_else(|_| AuditTarget::nothing(), target);
    audit.record_command(act, target, ended).await
}
