//! JSON bodies to the domain, for whoever has nothing but bytes.
//!
//! What a body may hold is told by the structs of [`postonce_schemas::json`]; a test compares.

use postonce_shared::domain::instruction::{Instruction, TransactionKind};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::gate::GateState;

use super::{AccountChange, AccountTerms, content};
use crate::error::ApiError;
use crate::formats::json::members;

/// The instruction in a body.
///
/// # Errors
/// [`ApiError`] of status 400 or 422; so with all functions here.
pub fn instruction(kind: TransactionKind, body: &[u8]) -> Result<Instruction, ApiError> {
    content::instruction(kind, members(body)?)
}

/// The terms of a new account in a body.
///
/// # Errors
/// As [`instruction`].
pub fn account_terms(body: &[u8]) -> Result<AccountTerms, ApiError> {
    content::account_terms(members(body)?)
}

/// The change of an account in a body.
///
/// # Errors
/// As [`instruction`].
pub fn account_change(body: &[u8]) -> Result<AccountChange, ApiError> {
    content::account_change(members(body)?)
}

/// The state of the gate in a body.
///
/// # Errors
/// As [`instruction`].
pub fn gate_state(body: &[u8], now: Timestamp) -> Result<GateState, ApiError> {
    content::gate_state(members(body)?, now)
}

#[cfg(test)]
mod tests;
