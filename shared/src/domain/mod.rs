//! The rules of the bank, without async, clock or store. Read in this order:
//! ids and money, who a partner is ([`partner`]), then what it asks for ([`instruction`]), what is stored ([`account`],
//! [`transaction`], [`journal`]), and the one place that decides ([`decision`]).

pub mod account;
pub mod decision;
pub mod ids;
pub mod instruction;
pub mod journal;
pub mod money;
pub mod partner;
pub mod rejection;
pub mod scope;
pub mod time;
pub mod transaction;
mod transaction_kind;
