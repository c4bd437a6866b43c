//! The rules of the bank, without async code, clock or store. Read the modules in this order:
//! [`ids`] and [`money`]; [`credit`] and [`partner`] for the clients of the bank; [`instruction`] and [`json_number`]
//! for their requests; [`account`], [`transaction`], [`journal`], [`batch`], [`audit_row`] and [`anchor`] for stored
//! state; and [`decision`], the only module that decides. [`origin`] informs operators; no rule reads it.

pub mod account;
pub mod anchor;
pub mod audit_row;
pub mod batch;
pub mod credit;
pub mod decision;
pub mod ids;
pub mod instruction;
pub mod journal;
pub mod json_number;
pub mod money;
pub mod origin;
mod page_hash;
pub mod partner;
pub mod rejection;
pub mod scope;
pub mod time;
pub mod transaction;
mod transaction_kind;
