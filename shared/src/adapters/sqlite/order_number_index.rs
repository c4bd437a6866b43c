//! Finds order numbers with an SQL index over the transactions, which every commit updates.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension as _};
use uuid::Uuid;

use super::columns;
use super::database::Database;
use super::fault::SqlFault;
use super::meter;
use crate::domain::ids::{AccountId, AccountKey, MessageId, OrderNumber, PartnerId, TransactionKey, UserId};
use crate::ports::fault::StoreFault;
use crate::ports::order_number_index::{OrderNumberIndex, RecordedNumbers};

pub(super) struct SqliteOrderNumberIndex {
    database: Arc<Database>,
}

impl SqliteOrderNumberIndex {
    pub(super) fn new(database: Arc<Database>) -> Self {
        Self { database }
    }
}

#[async_trait]
impl OrderNumberIndex for SqliteOrderNumberIndex {
    fn contains_every_posting(&self) -> bool {
        true
    }

    async fn find(&self, number: OrderNumber) -> Result<Option<TransactionKey>, StoreFault> {
        let job = move |connection: &Connection| find(connection, number);
        self.database.read(meter::TABLE_GET, "finding an order number", job).await
    }

    async fn record(&self, _: &[(OrderNumber, TransactionKey)]) -> Result<(), StoreFault> {
        Ok(())
    }

    async fn recorded(&self, _: u64) -> Result<RecordedNumbers, StoreFault> {
        Ok(RecordedNumbers { numbers: Vec::new(), next_block: None })
    }
}

fn find(connection: &Connection, number: OrderNumber) -> Result<Option<TransactionKey>, SqlFault> {
    let sql = "SELECT a.user_id, a.account_id, p.name, t.message
               FROM transactions t JOIN account_names a ON a.id = t.account JOIN partners p ON p.id = t.partner
               WHERE t.order_number = ?1 LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row([columns::signed(number.counter())?], |row| {
        let id = |column| row.get(column).map(Uuid::from_bytes);
        Ok((id(0)?, id(1)?, row.get::<_, String>(2)?, id(3)?))
    });
    let Some((user, account, partner, message)) = found.optional()? else { return Ok(None) };
    Ok(Some(TransactionKey {
        account: AccountKey { user: UserId::from_uuid(user), account: AccountId::from_uuid(account) },
        partner: PartnerId::parse(&partner).map_err(|_| SqlFault::Column("name"))?,
        message: MessageId::from_uuid(message),
    }))
}
