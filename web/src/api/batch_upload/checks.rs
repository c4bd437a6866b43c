//! Checks of the items of a batch. They read no account: items that cannot be posted are rejected later, one by one.

use std::collections::BTreeSet;
use std::sync::Arc;

use postonce_schemas::json::Violation;
use postonce_shared::batches::document::{DocumentWriter, Part, Summary};
use postonce_shared::batches::items::InvalidItem;
use postonce_shared::domain::batch::{Item, OnInvalid};
use postonce_shared::domain::ids::{MessageId, parse_hyphenated};
use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::domain::partner::Partner;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use uuid::Uuid;

use super::broken;
use super::control::ControlTotals;
use super::reading::Pace;
use crate::access::scopes::Scope;
use crate::api::translate::{batch_item, look_alikes};
use crate::error::{ApiError, Code, VIOLATIONS_MAX};
use crate::formats::items::{BatchItem, Items, Parsed, is_control};
use crate::formats::members::Members;

/// Requirements for a document.
pub struct Rules {
    /// What to do with items that violate the format.
    pub on_invalid: OnInvalid,
    /// Maximum number of items.
    pub items_max: u32,
    /// The control totals in the headers.
    pub control: ControlTotals,
    /// The partner, with its reach.
    pub partner: Arc<Partner>,
    /// The scopes of the key.
    pub scopes: BTreeSet<Scope>,
}

/// State of the checks of one document.
struct Checks<'a> {
    rules: Rules,
    is_new: bool,
    /// The control totals in the document.
    record: Option<ControlTotals>,
    writer: DocumentWriter,
    parts: &'a mpsc::Sender<Part>,
    pace: &'a Pace,
    /// The first violations that refuse the whole batch.
    violations: Vec<Violation>,
    /// Number of all violations that refuse the batch.
    refusals: usize,
}

/// Checks all items, and sends their parts to `parts`. `is_new` is false if a batch with this id exists: then look-alike
/// members are accepted, so that a repetition of a batch that an earlier version accepted is recognised.
///
/// # Errors
/// [`ApiError`] with the violations by line, or with the reason why the document cannot be read.
pub fn check(
    items: &mut dyn Items,
    rules: Rules,
    is_new: bool,
    (parts, pace): (&mpsc::Sender<Part>, &Pace),
) -> Result<Summary, ApiError> {
    let (writer, violations) = (DocumentWriter::default(), Vec::new());
    let mut checks = Checks { rules, is_new, record: None, writer, parts, pace, violations, refusals: 0 };
    let mut line = 0_u32;
    while let Some(item) = items.next().map_err(broken)? {
        let item = match item {
            Ok(Parsed::Members(members)) if is_control(&members) => {
                checks.control(line, members)?;
                continue;
            }
            item => item,
        };
        line = line.saturating_add(1);
        if line > checks.rules.items_max {
            let detail = format!("A batch has at most {} items.", checks.rules.items_max);
            return Err(ApiError::new(Code::BodyTooLarge, detail));
        }
        // The same in every format, as far as it can be read.
        let sent = match &item {
            Ok(Parsed::Plain(_)) => Vec::new(),
            Ok(Parsed::Members(members)) => members.sent(),
            Err(_) => items.sent(),
        };
        let part = checks.item(line, item, &sent)?;
        checks.pass_on(part)?;
    }
    checks.finish()
}

impl Checks<'_> {
    /// Reads a record of control totals after `items` items. At most one such record may occur, before all items; otherwise the
    /// rest of the document is not checked.
    fn control(&mut self, items: u32, members: Members) -> Result<(), ApiError> {
        let misplaced = match (&self.record, items) {
            (None, 0) => None,
            (None, items) => Some(format!("must be in the first record, and not after {items} items")),
            (Some(_), _) => Some("must not be in more than one record".to_owned()),
        };
        if let Some(message) = misplaced {
            return Err(self.refusal(vec![Violation { field: "control".into(), message }]));
        }
        let totals = ControlTotals::of_record(members).or_else(|error| match error.fault() {
            Some(_) => Err(error),
            None => {
                let mut violations = error.problem().violations;
                self.refusals = self.refusals.saturating_add(violations.len());
                self.violations.append(&mut violations);
                Ok(ControlTotals::default())
            }
        });
        self.record = Some(totals?);
        Ok(())
    }

    fn item(
        &mut self,
        line: u32,
        item: Result<Parsed, ApiError>,
        sent: &[u8],
    ) -> Result<Option<Part>, ApiError> {
        let mut message = None;
        let parsed = item.and_then(|parsed| match parsed {
            Parsed::Plain(item) => Ok(*item),
            Parsed::Members(members) => {
                let id = members.text("message_id").and_then(|id| parse_hyphenated::<MessageId>(id).ok());
                message = id.map(MessageId::as_uuid);
                batch_item(members)
            }
        });
        let BatchItem { account, message, instruction } = match parsed {
            Ok(item) => item,
            Err(error) if error.fault().is_some() => return Err(error),
            Err(error) => return Ok(self.invalid((line, message), &error, sent)),
        };
        let scope = match instruction.kind {
            TransactionKind::Deposit => Scope::Deposit,
            TransactionKind::Withdrawal => Scope::Withdraw,
        };
        if !self.rules.scopes.contains(&scope) {
            let detail = format!("The API key lacks the scope {scope}, which line {line} needs.");
            return Err(ApiError::new(Code::ScopeMissing, detail));
        }
        if !self.rules.partner.reach.has_account(account) {
            self.refuse(line, "account_id", "is not an account that your key may access".to_owned());
        }
        if self.is_new {
            for Violation { field, message } in look_alikes::violations(&instruction) {
                self.refuse(line, &field, message);
            }
        }
        Ok(self.writer.add(&Item { line, account, message, instruction }))
    }

    fn invalid(
        &mut self,
        (line, message): (u32, Option<Uuid>),
        error: &ApiError,
        sent: &[u8],
    ) -> Option<Part> {
        let problem = error.problem();
        let reasons: Vec<String> =
            problem.violations.iter().map(|it| format!("{} {}", it.field, it.message)).collect();
        let reason = if reasons.is_empty() { problem.detail } else { reasons.join("; ") };
        if self.rules.on_invalid == OnInvalid::Refuse {
            if problem.violations.is_empty() {
                self.refuse(line, "", reason.clone());
            }
            for Violation { field, message } in problem.violations {
                self.refuse(line, &field, message);
            }
        }
        self.writer.add_invalid(InvalidItem { line, message, reason }, sent)
    }

    /// Adds a violation that refuses the whole batch.
    fn refuse(&mut self, line: u32, field: &str, message: String) {
        self.refusals = self.refusals.saturating_add(1);
        // Violations above the maximum are only counted.
        if self.violations.len() < VIOLATIONS_MAX {
            let separator = if field.is_empty() { "" } else { ", " };
            self.violations.push(Violation { field: format!("line {line}{separator}{field}"), message });
        }
    }

    /// Returns the error for these violations of the document and the violations of its items.
    fn refusal(&mut self, mut violations: Vec<Violation>) -> ApiError {
        let count = self.refusals.saturating_add(violations.len());
        violations.append(&mut self.violations);
        ApiError::first_violations(Code::ValidationFailed, violations, count)
    }

    fn pass_on(&self, part: Option<Part>) -> Result<(), ApiError> {
        // After a violation, the remaining items are checked but not stored, so that the client gets all violations.
        let Some(part) = part.filter(|_| self.refusals == 0) else { return Ok(()) };
        let sent = self.parts.try_send(part).or_else(|refused| match refused {
            TrySendError::Closed(_) => Err(()),
            TrySendError::Full(part) => {
                self.pace.pause();
                self.parts.blocking_send(part).map_err(|_| ())?;
                self.pace.resume().map_err(|_| ())
            }
        });
        sent.map_err(|()| ApiError::internal("the parts of a batch cannot be stored any more"))
    }

    fn finish(mut self) -> Result<Summary, ApiError> {
        let (count, valid) = (self.writer.len(), self.writer.valid());
        // Violations of totals come first, because there are few.
        let control = [Some(&self.rules.control), self.record.as_ref()].into_iter().flatten();
        let mut violations: Vec<_> = control.flat_map(|totals| totals.violations(count, valid)).collect();
        if self.writer.is_empty() {
            violations
                .push(Violation { field: "body".into(), message: "must contain at least one item".into() });
        }
        if self.refusals > 0 || !violations.is_empty() {
            return Err(self.refusal(violations));
        }
        let (parts, summary) = std::mem::take(&mut self.writer).finish();
        for part in parts {
            self.pass_on(Some(part))?;
        }
        Ok(summary)
    }
}
