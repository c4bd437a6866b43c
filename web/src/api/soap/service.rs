//! What the operations do with the bank: each what the route of the same meaning does.

use actix_web::HttpRequest;
use postonce_shared::domain::ids::TransactionKey;
use postonce_shared::domain::instruction::Instruction;
use postonce_shared::domain::transaction::Transaction;
use postonce_shared::messaging::xml::Element;
use postonce_shared::protocol::accept::{Accepted, Acceptor};

use super::NAMESPACE;
use super::envelope::Request;
use super::message::{self, Asked};
use super::operations::Operation;
use crate::access::authentication::{Caller, Undecided};
use crate::api::account_service::AccountService;
use crate::api::respond;
use crate::error::ApiError;
use crate::formats::table::members_of;
use crate::formats::xml::{ACCOUNT, TRANSACTION};
use crate::headers::{self, Wait};
use crate::metrics::Metrics;

/// What operations work with.
pub struct Service<'a> {
    /// Who calls.
    pub caller: &'a Caller<Undecided>,
    /// The request of HTTP.
    pub http: &'a HttpRequest,
    /// Accepts deposits and withdrawals.
    pub acceptor: &'a Acceptor,
    /// Reads.
    pub accounts_service: &'a AccountService,
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
        let answer = Element::new(NAMESPACE, operation.response());
        match message::read(operation, &request.body)? {
            Asked::Submit(account, instruction, wait) => {
                let id = message::message_id(request.addressing.as_ref())?;
                let account = self.caller.within(account)?;
                let key = TransactionKey { account, partner: self.caller.partner().clone(), message: id };
                let Accepted { transaction, replayed } = self.submit(key, instruction, wait).await?;
                let replayed = Element::new(NAMESPACE, "Replayed").with_text(&replayed.to_string());
                Ok(answer.with(of_transaction(transaction)).with(replayed))
            }
            Asked::Account(account) => {
                let account = self.caller.within(account)?;
                let account =
                    self.accounts_service.account(account).await?.ok_or_else(ApiError::account_unknown)?;
                Ok(answer.with(ACCOUNT.write(&members_of(&respond::account(account).into()))))
            }
            Asked::Transaction(account, message) => {
                let account = self.caller.within(account).map_err(|_| ApiError::transaction_unknown())?;
                let key = TransactionKey { account, partner: self.caller.partner().clone(), message };
                let found = self.accounts_service.transaction(&key).await?;
                Ok(answer.with(of_transaction(found.ok_or_else(ApiError::transaction_unknown)?)))
            }
        }
    }

    async fn submit(
        &self,
        key: TransactionKey,
        instruction: Instruction,
        wait: Option<Wait>,
    ) -> Result<Accepted, ApiError> {
        let wait = wait.or_else(|| Wait::of(self.http.headers()));
        let trace = headers::traceparent(self.http.headers());
        let acceptance = self.acceptor.submit(key, instruction, trace, wait.map(Wait::duration)).await;
        self.metrics.submitted(&acceptance);
        respond::accepted_or_refused(acceptance?)
    }
}

fn of_transaction(transaction: Transaction) -> Element {
    TRANSACTION.write(&members_of(&respond::transaction(transaction).into()))
}
