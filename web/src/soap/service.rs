//! What the operations do with the bank. Each reads its message with every violation, and does then what
//! the route of the same meaning does.

use std::str::FromStr;

use actix_web::HttpRequest;
use postonce_schemas::json::Violation;
use postonce_shared::accept::Acceptor;
use postonce_shared::domain::ids::{AccountId, AccountKey, MessageId, TransactionKey, UserId};
use postonce_shared::domain::instruction::TransactionKind;
use postonce_shared::xml::Element;

use super::NAMESPACE;
use super::envelope::{Addressing, Request};
use super::operations::Operation;
use crate::auth::{Caller, Undecided};
use crate::books::Books;
use crate::error::{ApiError, Code};
use crate::formats::table::{Reading, Table, members_of};
use crate::formats::xml::{ACCOUNT, TRANSACTION};
use crate::headers::{self, Wait};
use crate::metrics::Metrics;
use crate::{respond, translate};

/// What precedes a UUID in a `MessageID` (RFC 9562).
const URN: &str = "urn:uuid:";

/// What operations work with.
pub struct Service<'a> {
    /// Who calls.
    pub caller: &'a Caller<Undecided>,
    /// The request of HTTP.
    pub http: &'a HttpRequest,
    /// Accepts deposits and withdrawals.
    pub acceptor: &'a Acceptor,
    /// Reads.
    pub books: &'a Books,
    /// Counts.
    pub metrics: &'a Metrics,
}

impl Service<'_> {
    /// Carries out what a request asks for; the answer is the element in the body of the response.
    ///
    /// # Errors
    /// [`ApiError`] for whatever the operation refuses.
    pub async fn carry_out(&self, request: &Request) -> Result<Element, ApiError> {
        let operation = Operation::of(&request.body)?;
        self.caller.authorize(operation.scope())?;
        let message = Message { table: operation.table(), reading: operation.table().read(&request.body) };
        let addressing = request.addressing.as_ref();
        let content = match operation {
            Operation::ReliableInsertMoney => {
                self.submit(TransactionKind::Deposit, message, addressing).await?
            }
            Operation::ReliableWithdrawMoney => {
                self.submit(TransactionKind::Withdrawal, message, addressing).await?
            }
            Operation::GetUserAccount => self.account(message).await?,
            Operation::GetTransaction => self.transaction(message).await?,
        };
        Ok(content.into_iter().fold(Element::new(NAMESPACE, operation.response()), Element::with))
    }

    async fn submit(
        &self,
        kind: TransactionKind,
        mut message: Message,
        addressing: Option<&Addressing>,
    ) -> Result<Vec<Element>, ApiError> {
        let account = message.account();
        let wait = message.wait();
        let table = message.table;
        let instruction = translate::instruction_of(kind, message.reading.into_members())
            .map_err(|error| error.with_fields(|member| table.field(member)))?;
        let id = message_id(addressing)?;
        // Whoever had no account was refused with the other violations.
        let account = self.caller.within(account.ok_or_else(respond::account_unknown)?)?;

        let key = TransactionKey { account, partner: self.caller.partner().clone(), message: id };
        let wait = wait.or_else(|| Wait::of(self.http.headers()));
        let trace = headers::traceparent(self.http.headers());
        let acceptance = self.acceptor.submit(key, instruction, trace, wait.map(Wait::duration)).await;
        self.metrics.submitted(&acceptance);
        let (transaction, is_replay) = respond::accepted_or_refused(acceptance?)?;
        let members = members_of(&respond::transaction(transaction).into());
        let replayed =
            Element::new(NAMESPACE, "Replayed").with_text(if is_replay { "true" } else { "false" });
        Ok(vec![TRANSACTION.write(&members), replayed])
    }

    async fn account(&self, mut message: Message) -> Result<Vec<Element>, ApiError> {
        let key = message.account();
        let key = self.caller.within(message.finish(key)?)?;
        let account = self.books.account(key).await?.ok_or_else(respond::account_unknown)?;
        Ok(vec![ACCOUNT.write(&members_of(&respond::account(account).into()))])
    }

    async fn transaction(&self, mut message: Message) -> Result<Vec<Element>, ApiError> {
        let account = message.account();
        let id = message.id::<MessageId>("message_id");
        let (account, message) = message.finish(account.zip(id))?;
        let account = self.caller.within(account).map_err(|_| respond::transaction_unknown())?;
        let key = TransactionKey { account, partner: self.caller.partner().clone(), message };
        let found = self.books.transaction(&key).await?.ok_or_else(respond::transaction_unknown)?;
        Ok(vec![TRANSACTION.write(&members_of(&respond::transaction(found).into()))])
    }
}

/// The id of a request, from the header `MessageID` of its envelope.
fn message_id(addressing: Option<&Addressing>) -> Result<MessageId, ApiError> {
    let Some(Addressing { message_id, .. }) = addressing else {
        let detail = "Send an id of your own, urn:uuid: and a UUID, in the header MessageID of WS-Addressing; \
                      repeat it when you retry.";
        return Err(ApiError::new(Code::IdempotencyKeyMissing, detail));
    };
    let uuid = message_id.split_at_checked(URN.len()).filter(|(urn, _)| urn.eq_ignore_ascii_case(URN));
    uuid.and_then(|(_, uuid)| uuid.parse().ok()).ok_or_else(|| {
        let detail = "The MessageID must be urn:uuid: and a UUID, such as \
                      \"urn:uuid:4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10\".";
        ApiError::new(Code::IdempotencyKeyInvalid, detail)
    })
}

/// A message that is being read.
struct Message {
    table: &'static Table,
    reading: Reading,
}

impl Message {
    fn account(&mut self) -> Option<AccountKey> {
        let user = self.id::<UserId>("user_id");
        let account = self.id::<AccountId>("account_id");
        user.zip(account).map(|(user, account)| AccountKey { user, account })
    }

    /// Takes out a member that has to be a UUID.
    fn id<T: FromStr>(&mut self, member: &str) -> Option<T> {
        let text = self.text(member);
        let id = text.as_deref().and_then(|text| text.parse().ok());
        if id.is_none() {
            let missing = if text.is_none() { "is missing; it " } else { "" };
            self.refuse(member, format!("{missing}must be a UUID"));
        }
        id
    }

    /// Takes out how long its sender waits, in seconds.
    fn wait(&mut self) -> Option<Wait> {
        let text = self.text("wait_seconds")?;
        let wait = Wait::parse(&text);
        if wait.is_none() {
            self.refuse("wait_seconds", format!("must be a whole number from 0 to {}", headers::WAIT_S_MAX));
        }
        wait.flatten()
    }

    fn text(&mut self, member: &str) -> Option<String> {
        self.reading.members.remove(member)?.as_str().map(str::to_owned)
    }

    fn refuse(&mut self, member: &str, message: String) {
        // What could not be read was complained about.
        if !self.reading.has_refused(member) {
            self.reading.violations.push(Violation { field: self.table.field(member), message });
        }
    }

    fn finish<T>(self, value: Option<T>) -> Result<T, ApiError> {
        match value {
            Some(value) if self.reading.violations.is_empty() => Ok(value),
            Some(_) | None => Err(ApiError::violations(Code::ValidationFailed, self.reading.violations)),
        }
    }
}
