//! The rules of the bank, without async code, clock or store. Read the modules in this order:
//! [`ids`] and [`money`], then [`credit`] and [`partner`] (clients of the bank), [`instruction`] (their requests) and [`json_number`], [`account`],
//! [`transaction`], [`journal`], [`batch`], [`audit_row`] and [`anchor`] (stored state), and [`decision`], the only module
//! that decides. [`origin`] only informs operators.

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
