//! The storage of the design: three tables and a queue of strings, with one method for each request of the
//! design.
//!
//! | table | partition key | row key | row |
//! |---|---|---|---|
//! | balances | account | user | balance, currency |
//! | transactions | account | transaction | amount, balance after it |
//! | log | transaction | account | status |
//!
//! The keys suit the point reads and inserts of the design, so that no request uses a partition that grows with
//! the number of users or of transactions. Only the transactions are partitioned by account, because
//! statements are read by account.

use std::sync::Arc;
use std::time::Duration;

use azure_core::auth::Secret;
use azure_core::error::{Error, ErrorKind};
use azure_core::{Etag, HttpClient, RetryOptions, TransportOptions};
use azure_data_tables::IfMatchCondition;
use azure_data_tables::clients::{TableClient, TableServiceClientBuilder};
use azure_storage::{CloudLocation, StorageCredentials};
use azure_storage_queues::{NumberOfMessages, PopReceipt, QueueClient, QueueServiceClientBuilder};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::peers::classic::connection::Connection;
use crate::peers::classic::counts::Counts;
use crate::peers::classic::entry::{Entry, Malformed, Money};
use crate::peers::classic::transport::{CountingTransport, http_client};

/// Most messages of one receive.
pub const BATCH_MAX: u8 = 32;
/// Visibility timeout of received messages.
const VISIBILITY: Duration = Duration::from_secs(20);

/// The tables and the queue. Clones are cheap.
#[derive(Clone)]
pub struct Storage {
    balances: TableClient,
    transactions: TableClient,
    log: TableClient,
    queue: QueueClient,
}

/// A received message.
pub struct Received {
    /// Its content.
    pub entry: Result<Entry, Malformed>,
    /// The receipt for its deletion.
    pub receipt: PopReceipt,
}

/// A balance with its ETag.
pub struct ReadBalance {
    /// The balance.
    pub balance: Money,
    /// The currency of the account.
    pub currency: String,
    etag: Etag,
}

/// Outcome of a conditional write.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub enum Written {
    /// Written.
    Done,
    /// Not written, because the row was changed or inserted by another process.
    Conflict,
}

/// Final status of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Posted.
    Posted,
    /// Rejected: insufficient funds, or no such account.
    Rejected,
}

/// A whole row in a request.
#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Row<T> {
    partition_key: String,
    row_key: String,
    #[serde(flatten)]
    properties: T,
}

/// Money is text, because the crates change large JSON numbers.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct BalanceRow {
    balance: String,
    currency: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct TransactionRow {
    user_id: Uuid,
    amount: String,
    currency: String,
    balance_after: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LogRow {
    user_id: Uuid,
    amount: String,
    status: Status,
}

impl Storage {
    /// The tables and the queue with names that begin with `prefix`. Sends no request.
    pub fn new(connection: &Connection, prefix: &str, counts: &Arc<Counts>) -> anyhow::Result<Self> {
        let http = http_client()?;
        let Connection { account, key, queue_endpoint, table_endpoint } = connection;
        let credentials = StorageCredentials::access_key(account, Secret::new(key.clone()));
        let place =
            |endpoint: &str| CloudLocation::Custom { account: account.clone(), uri: endpoint.to_owned() };
        let transport = |service| {
            let (http, counts) = (http.clone(), Arc::clone(counts));
            let transport: Arc<dyn HttpClient> = Arc::new(CountingTransport { http, service, counts });
            TransportOptions::new(transport)
        };
        // The retries of the crates also repeat requests that must not be repeated.
        let tables = TableServiceClientBuilder::with_location(place(table_endpoint), credentials.clone())
            .retry(RetryOptions::none())
            .transport(transport("table"))
            .build();
        let queues = QueueServiceClientBuilder::with_location(place(queue_endpoint), credentials)
            .retry(RetryOptions::none())
            .transport(transport("queue"))
            .build();
        Ok(Self {
            balances: tables.table_client(format!("{prefix}balances")),
            transactions: tables.table_client(format!("{prefix}transactions")),
            log: tables.table_client(format!("{prefix}log")),
            queue: queues.queue_client(format!("{prefix}-work")),
        })
    }

    /// Creates the missing tables and the queue.
    pub async fn create(&self) -> azure_core::Result<()> {
        for table in [&self.balances, &self.transactions, &self.log] {
            unless(409, table.create().await)?;
        }
        unless(409, self.queue.create().await)?;
        Ok(())
    }

    /// Inserts the balance row of an account, with a balance of zero.
    pub async fn open_account(
        &self,
        user: Uuid,
        account: Uuid,
        currency: &str,
    ) -> azure_core::Result<Written> {
        let row = BalanceRow { balance: Money::ZERO.to_string(), currency: currency.to_owned() };
        insert(&self.balances, account, user, row).await
    }

    /// The final status of a transaction, if the log has it: a point read.
    pub async fn logged(&self, entry: &Entry) -> azure_core::Result<Option<Status>> {
        let partition = self.log.partition_key_client(entry.transaction.to_string());
        let row = partition.entity_client(entry.account.to_string());
        Ok(unless(404, row.get::<LogRow>().await)?.map(|answer| answer.entity.status))
    }

    /// Sends the string message.
    pub async fn put(&self, entry: &Entry) -> azure_core::Result<()> {
        self.queue.put_message(entry.to_string()).await.map(drop)
    }

    /// Receives up to [`BATCH_MAX`] messages.
    pub async fn receive(&self) -> azure_core::Result<Vec<Received>> {
        let request = self
            .queue
            .get_messages()
            .number_of_messages(NumberOfMessages::new(BATCH_MAX))
            .visibility_timeout(VISIBILITY);
        let messages = request.await?.messages.into_iter();
        Ok(messages
            .map(|message| Received { entry: message.message_text.parse(), receipt: message.into() })
            .collect())
    }

    /// Reads a balance; `None` if there is no such account.
    pub async fn balance(&self, user: Uuid, account: Uuid) -> azure_core::Result<Option<ReadBalance>> {
        let partition = self.balances.partition_key_client(account.to_string());
        let answer = partition.entity_client(user.to_string()).get::<BalanceRow>().await;
        let Some(answer) = unless(404, answer)? else { return Ok(None) };
        let BalanceRow { balance, currency } = answer.entity;
        let balance = balance
            .parse()
            .map_err(|_| Error::message(ErrorKind::DataConversion, "a stored balance is not money"))?;
        Ok(Some(ReadBalance { balance, currency, etag: answer.etag }))
    }

    /// Writes the balance of an account if it is unchanged since it was `read`.
    pub async fn write_balance(
        &self,
        entry: &Entry,
        read: &ReadBalance,
        balance: Money,
    ) -> azure_core::Result<Written> {
        let partition = self.balances.partition_key_client(entry.account.to_string());
        let row = BalanceRow { balance: balance.to_string(), currency: read.currency.clone() };
        let guard = IfMatchCondition::Etag(read.etag.clone());
        let answer = partition.entity_client(entry.user.to_string()).update(row, guard)?.await;
        Ok(unless(412, answer)?.map_or(Written::Conflict, |_| Written::Done))
    }

    /// Inserts the row of a posted transaction.
    pub async fn insert_transaction(
        &self,
        entry: &Entry,
        currency: &str,
        balance_after: Money,
    ) -> azure_core::Result<Written> {
        let row = TransactionRow {
            user_id: entry.user,
            amount: entry.amount.to_string(),
            currency: currency.to_owned(),
            balance_after: balance_after.to_string(),
        };
        insert(&self.transactions, entry.account, entry.transaction, row).await
    }

    /// Inserts the log row, by which a repetition is recognized.
    pub async fn insert_log(&self, entry: &Entry, status: Status) -> azure_core::Result<Written> {
        let row = LogRow { user_id: entry.user, amount: entry.amount.to_string(), status };
        insert(&self.log, entry.transaction, entry.account, row).await
    }

    /// Deletes a message; that it is missing, or was received by another worker, is not an error.
    pub async fn delete(&self, receipt: PopReceipt) -> azure_core::Result<()> {
        let deleted = self.queue.pop_receipt_client(receipt).delete().await;
        // Azurite answers 400 for a receipt that is not the newest.
        let deleted = unless(400, deleted).map(drop);
        unless(404, deleted).map(drop)
    }
}

async fn insert(
    table: &TableClient,
    partition: Uuid,
    row: Uuid,
    properties: impl Serialize,
) -> azure_core::Result<Written> {
    let row = Row { partition_key: partition.to_string(), row_key: row.to_string(), properties };
    let answer = table.insert::<_, Value>(row)?.await;
    Ok(unless(409, answer)?.map_or(Written::Conflict, |_| Written::Done))
}

/// The response, or `None` if it has the status that the caller expects.
fn unless<T>(expected: u16, answer: azure_core::Result<T>) -> azure_core::Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) => match error.kind() {
            ErrorKind::HttpResponse { status, .. } if u16::from(*status) == expected => Ok(None),
            ErrorKind::HttpResponse { .. }
            | ErrorKind::Io
            | ErrorKind::DataConversion
            | ErrorKind::Credential
            | ErrorKind::MockFramework
            | ErrorKind::Other => Err(error),
        },
    }
}
