//! The page of a statement. It has the requested number of transactions or fewer, at most [`PAGE_BYTES_MAX`], and at least one
//! transaction. A transaction can have kilobytes of metadata, so the number alone would not bound the memory of a response.

use postonce_schemas::json::Transaction;

use crate::access::shares::PAGE_BYTES_MAX;
use crate::api::negotiate::Reply;

/// Number of transactions in the first read. The sizes of the transactions determine further reads.
const FIRST_READ: usize = 100;

/// A page while it is filled.
pub struct StatementPage {
    reply: Reply,
    limit: usize,
    bytes: usize,
    transactions: Vec<Transaction>,
}

impl StatementPage {
    /// Creates an empty page for up to `limit` transactions.
    pub const fn new(reply: Reply, limit: usize) -> Self {
        Self { reply, limit, bytes: 0, transactions: Vec::new() }
    }

    /// Returns the number of transactions to read next, estimated from the sizes on the page; 0 if the page is full.
    pub fn next_read(&self) -> usize {
        let count = self.transactions.len();
        let left = self.limit.saturating_sub(count);
        if self.bytes >= PAGE_BYTES_MAX {
            return 0;
        }
        let of_same_size =
            PAGE_BYTES_MAX.saturating_sub(self.bytes).saturating_mul(count).checked_div(self.bytes);
        left.min(of_same_size.unwrap_or(FIRST_READ).max(1))
    }

    /// Returns whether the page has no transactions.
    pub const fn is_empty(&self) -> bool {
        self.transactions.is_empty()
    }

    /// Adds transactions, if the page has room for all of them. Returns whether they were added. An empty page has room for one
    /// transaction of any size.
    pub fn add(&mut self, transactions: Vec<Transaction>) -> bool {
        let sizes = transactions.iter().map(|transaction| self.reply.size_of(transaction));
        let bytes = sizes.fold(self.bytes, usize::saturating_add);
        let has_room = bytes <= PAGE_BYTES_MAX || (self.is_empty() && transactions.len() <= 1);
        if has_room {
            self.bytes = bytes;
            self.transactions.extend(transactions);
        }
        has_room
    }

    /// Returns the transactions on the page.
    pub fn into_transactions(self) -> Vec<Transaction> {
        self.transactions
    }
}
