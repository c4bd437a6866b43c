//! The counted operations of this store. They have the names and prices of the equivalent Azure operations, so that
//! metrics and dashboards are the same for both stores.

use crate::ports::operations::{Operation, PriceKind, Service};

const fn table(name: &'static str, price: PriceKind) -> Operation {
    Operation { service: Service::Table, name, price }
}

const fn queue(name: &'static str) -> Operation {
    Operation { service: Service::Queue, name, price: PriceKind::Queue }
}

const fn blob(name: &'static str, price: PriceKind) -> Operation {
    Operation { service: Service::Blob, name, price }
}

pub(super) const TABLE_GET: Operation = table("get", PriceKind::Table);
pub(super) const TABLE_INSERT: Operation = table("insert", PriceKind::Table);
pub(super) const TABLE_MERGE: Operation = table("merge", PriceKind::Table);
pub(super) const TABLE_UPDATE: Operation = table("update", PriceKind::Table);
pub(super) const TABLE_DELETE: Operation = table("delete", PriceKind::Table);
pub(super) const TABLE_BATCH: Operation = table("batch", PriceKind::TableBatch);
pub(super) const TABLE_QUERY: Operation = table("query", PriceKind::TableBatch);

pub(super) const QUEUE_SEND: Operation = queue("send");
pub(super) const QUEUE_RECEIVE: Operation = queue("receive");
pub(super) const QUEUE_UPDATE: Operation = queue("update");
pub(super) const QUEUE_DELETE: Operation = queue("delete");
pub(super) const QUEUE_METADATA: Operation = queue("metadata");

pub(super) const BLOB_PUT: Operation = blob("put", PriceKind::BlobWrite);
pub(super) const BLOB_GET: Operation = blob("get", PriceKind::BlobRead);
pub(super) const BLOB_DELETE: Operation = blob("delete", PriceKind::BlobRead);
pub(super) const BLOB_LIST: Operation = blob("list", PriceKind::BlobWrite);
