//! A service on PostgreSQL.

use std::path::Path;
use std::pin::pin;

use bytes::Bytes;
use futures::SinkExt as _;
use postonce_shared::domain::ids::AccountKey;
use postonce_tests::postgres::Postgres;
use postonce_tests::prelude::*;
use tokio_postgres::NoTls;

use super::{KEY, peer};
use crate::bench::prelude::*;

/// As [`postgres`], with these open accounts in euro. They are loaded without the service: a million openings would
/// take minutes.
pub async fn postgres_with(accounts: &[AccountKey], directory: &Path) -> Arm {
    let (arm, url) = started(directory, &[]);
    load(&url, accounts).await.expect("accounts can be loaded");
    arm
}

/// One process on its own cluster, with additional arguments. Every request waits for its posting.
pub fn postgres(directory: &Path, more: &[&str]) -> Arm {
    started(directory, more).0
}

/// The arm, and the connection parameters of its database.
fn started(directory: &Path, more: &[&str]) -> (Arm, String) {
    let cluster = Postgres::start(directory);
    let url = cluster.url();
    let arguments = [&["--database", &url, "--key", KEY], more].concat();
    let service = Service::start(Binary::PeerPostgres, &Settings::default(), &arguments, directory);
    let server = ("postgres", cluster.pid());
    let files = Some(cluster.tables_directory());
    let mut arm = peer(Way::Waiting, vec![("web", service)], Box::new(cluster));
    arm.processes.push(server);
    (Arm { files, ..arm }, url)
}

async fn load(url: &str, accounts: &[AccountKey]) -> Result<(), tokio_postgres::Error> {
    let row = |AccountKey { user, account }: &AccountKey| format!("{user},{account},EUR\n");
    let rows = Bytes::from(accounts.iter().map(row).collect::<String>());
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let load = async move {
        // The connection ends with its client.
        let copy = "COPY accounts (user_id, account_id, currency) FROM STDIN CSV";
        let mut sink = pin!(client.copy_in(copy).await?);
        sink.send(rows).await?;
        sink.finish().await?;
        client.batch_execute("VACUUM ANALYZE accounts").await
    };
    let (loaded, ended) = futures::join!(load, connection);
    loaded.and(ended)
}
