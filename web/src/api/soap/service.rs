//! Execution of the operations. Each operation behaves like the corresponding route.

use std::borrow::Cow;

use actix_web::HttpRequest;
use actix_web::http::header::HeaderMap;
use postonce_shared::domain::decision::Submission;
use postonce_shared::domain::ids::{AccountKey, MessageId, TransactionKey};
use postonce_shared::domain::instruction::Instruction;
use postonce_shared::domain::transaction::Outcome;
use postonce_shared::messaging::xml::Element;
use postonce_shared::ports::ledger::StoredTransaction;
use postonce_shared::protocol::accept::{Accepted, Acceptor};

use super::compat;
use super::contract::Contract;
use super::envelope::Request;
use super::message::{self, Command};
use super::operations::Operation;
use crate::access::authentication::{Caller, Undecided};
use crate::api::account_service::AccountService;
use crate::api::{negotiate, payment_log, respond, submission, views};
use crate::error::ApiError;
use crate::formats::table::members_of;
use crate::formats::xml::{ACCOUNT, TRANSACTION};
use crate::headers::{Wait, unquoted};
use crate::metrics::Metrics;

/// Request header of SOAP 1.1 with the action.
const SOAP_ACTION: &str = "soapaction";

/// The operations, for one request.
pub struct Service<'a> {
    /// The authenticated caller.
    pub caller: &'a mut Caller<Undecided>,
    /// The HTTP request.
    pub http: &'a HttpRequest,
    /// Accepts deposits and withdrawals.
    pub acceptor: &'a Acceptor,
    /// Reads accounts and transactions.
    pub accounts_service: &'a AccountService,
    /// Counts the results of submissions.
    pub metrics: &'a Metrics,
}

impl Service<'_> {
    /// Executes a request and returns the element for the body of the response.
    ///
    /// # Errors
    /// [`ApiError`] when the operation refuses the request.
    pub async fn execute(&mut self, contract: Contract, request: &Request) -> Result<Element, ApiError> {
        let operation = Operation::of(contract, &request.body)?;
        self.caller.authorize(operation.scope())?;
        let in_envelope = request.actions.iter().map(Cow::from);
        in_envelope
            .chain(actions(self.http.headers()))
            .try_for_each(|action| operation.check_action(&action))?;
        let command = message::read(operation, &request.body)?;
        let message_id = || message::message_id(contract, request.addressing.as_ref());
        let answer = Element::new(contract.namespace(), &operation.response());
        match command {
            Command::Submit(account, instruction, wait) => {
                let id = message_id()?;
                let account = self.reachable(account)?;
                let wait = wait.or_else(|| Wait::of(self.http.headers()));
                let accepted = self.submit((account, id, instruction), wait).await?;
                let Accepted { submission, outcome, replayed } = accepted;
                let replayed =
                    Element::new(contract.namespace(), "Replayed").with_text(&replayed.to_string());
                Ok(answer.with(of_transaction(submission, outcome)).with(replayed))
            }
            Command::SubmitOrder(account, order) => {
                let id = message_id()?;
                let account = self.reachable(account)?;
                let currency = self.acceptor.currency(account).await?;
                let instruction = order.instruction(currency.ok_or_else(ApiError::account_to_open)?)?;
                let wait = Wait::of(self.http.headers()).unwrap_or(Wait::OF_COMPAT);
                let accepted = self.submit((account, id, instruction), Some(wait)).await?;
                Ok(answer.with(compat::result(operation, accepted)?))
            }
            Command::Account(account) => {
                let account = self.caller.within(account)?;
                let account =
                    self.accounts_service.account(account).await?.ok_or_else(ApiError::account_unknown)?;
                Ok(answer.with(match contract {
                    Contract::Current => ACCOUNT.write(&members_of(&views::account(account).into())),
                    Contract::Compat => compat::balance(operation, &account.balance.to_string()),
                }))
            }
            Command::Transaction(account, message) => {
                let account = self.caller.within(account);
                let account = account.map_err(|_| ApiError::transaction_unknown().beyond_reach())?;
                let key = TransactionKey { account, partner: self.caller.partner().clone(), message };
                let found = self.accounts_service.transaction(&key).await?;
                payment_log::found(self.http, &key, found.as_ref());
                let StoredTransaction { submission, outcome, .. } =
                    found.ok_or_else(ApiError::transaction_unknown)?;
                Ok(answer.with(of_transaction(submission, outcome)))
            }
        }
    }

    /// Checks that a deposit or a withdrawal is for an account within the reach of the caller.
    fn reachable(&self, account: AccountKey) -> Result<AccountKey, ApiError> {
        self.caller.within(account).map_err(|_| ApiError::account_to_open().beyond_reach())
    }

    async fn submit(
        &mut self,
        payment: (AccountKey, MessageId, Instruction),
        wait: Option<Wait>,
    ) -> Result<Accepted, ApiError> {
        let (wait, _waiting) = self.caller.wait(self.http, wait)?;
        let services = (self.acceptor, self.accounts_service, self.metrics);
        let submitted =
            submission::submit(self.caller, self.http, services, payment, wait.map(Wait::duration));
        respond::accepted_or_refused(submitted.await?)
    }
}

/// Returns the actions that the headers of a request name: `SOAPAction` in SOAP 1.1, and the parameter `action` of the media
/// type in SOAP 1.2. What is not text is no action of an operation.
fn actions(headers: &HeaderMap) -> impl Iterator<Item = Cow<'_, str>> {
    let of_type = negotiate::media_type_parameter(headers, "action").map(Cow::from);
    let values = headers.get_all(SOAP_ACTION);
    let named = values.map(|value| match value.to_str() {
        Ok(action) => unquoted(action.trim()).into(),
        Err(_) => String::from_utf8_lossy(value.as_bytes()),
    });
    named.chain(of_type)
}

fn of_transaction(submission: Submission, outcome: Option<Outcome>) -> Element {
    TRANSACTION.write(&members_of(&views::transaction(submission, outcome).into()))
}
