//! The whole HTTP stack in process, over the memory adapter. A [`test_bank::TestBank`] is one bank.
#![expect(clippy::arithmetic_side_effects, clippy::unwrap_used, reason = "test code")]

mod gate;
mod ingest;
mod internal;
mod test_bank;
mod unknown_elements;

mod accounts;
mod admin_batches;
mod anchors;
mod audit;
mod audit_rows;
mod batch_documents;
mod console;
mod coverage;
mod credit;
mod headers;
mod limits;
mod lookups;
mod management_rights;
mod operators;
mod overview;
mod partners;
mod problems;
mod reach;
mod replays;
mod rights;
mod scale;
mod signatures;
mod soap;
mod soap_compat;
mod soap_headers;
mod statements;
mod submissions;
mod uploads;
