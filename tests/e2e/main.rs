//! End-to-end tests: the real binaries, on SQLite and on Azurite, over HTTP on loopback.
//!
//! A test that shows something about the stores runs on both ([`on_both_stores`]); one about formats, rights or pages, which do not
//! depend on the store, runs on SQLite ([`on_sqlite`]). The README of the bank has the invariants; the auditor of the harness
//! checks them after tests with much traffic.

/// Runs each test once on SQLite and once on Azurite; those after `on_sqlite:` on SQLite only, because what they show does not
/// depend on the store: the ports have one contract, which all adapters fulfil.
macro_rules! on_both_stores {
    ($($test:ident),* $(,)?) => {
        on_both_stores![$($test),*; on_sqlite:];
    };
    ($($test:ident),*; on_sqlite: $($single:ident),* $(,)?) => {
        on_sqlite![$($test,)* $($single,)*];

        mod on_azurite {
            $(#[tokio::test]
            async fn $test() {
                super::$test(postonce_tests::scenario::StoreKind::Azurite).await;
            })*
        }
    };
}

/// Runs each test on SQLite.
macro_rules! on_sqlite {
    ($($test:ident),* $(,)?) => {
        mod on_sqlite {
            $(#[tokio::test]
            async fn $test() {
                super::$test(postonce_tests::scenario::StoreKind::Sqlite).await;
            })*
        }
    };
}

mod advisories;
mod alert_causes;
mod alert_rules;
mod amounts;
mod anchors;
mod audit_rows;
mod azure_backup;
mod backup;
mod batches;
mod blocked_output;
mod cached_rows;
mod chaos;
mod client_snippets;
mod conformance;
mod console;
mod contracts;
mod crashes;
mod dashboard;
mod dead_letters;
mod deployment;
mod deposits;
mod direct_producers;
mod documents;
mod doorbell;
mod drains;
mod failing_account;
mod failover;
mod floods;
mod following;
mod foreign_payloads;
mod forged_messages;
mod forgiven_receipts;
mod formats_agree;
mod gate;
mod generated_clients;
mod harness;
mod hostile;
mod identity;
mod immediate;
mod json_samples;
mod keys;
mod large_requests;
mod legacy_bodies;
mod legacy_samples;
mod log_lines;
mod lost_files;
mod metrics;
mod operator_commands;
mod operators;
mod outages;
mod partners;
mod passing_on;
mod pings;
mod proofs;
mod queue_count;
mod recovery;
mod repeated_work;
mod restore;
mod retry_table;
mod rights;
mod rolling_upgrade;
mod same_id;
mod scaling;
mod schemathesis;
mod scrubber;
mod secrecy;
mod secret_settings;
mod signals;
mod signatures;
mod soap;
mod storage_rules;
mod store_access;
mod sweep;
mod systemd;
mod tidy;
mod tls;
mod traces;
mod traffic;
mod verify;
mod xml_samples;
mod xml_schemas;
