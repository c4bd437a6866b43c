//! Large bodies, stored as block blobs in one container. The first write creates the container.

use std::num::NonZeroU32;
use std::sync::Arc;

use async_trait::async_trait;
use azure_core::prelude::NextMarker;
use azure_storage_blobs::blob::Blob;
use azure_storage_blobs::container::operations::ListBlobsResponse;
use azure_storage_blobs::prelude::{BlobClient, ContainerClient};
use futures::StreamExt as _;

use super::attempt::{RequestFault, Retries};
use super::cursor;
use crate::domain::time::Timestamp;
use crate::ports::fault::StoreFault;
use crate::ports::ledger::Listing;
use crate::ports::payload_store::{PAYLOAD_BODY_BYTES_MAX, PayloadEntry, PayloadStore, is_name};
use crate::ports::world::World;

/// Maximum number of bytes that are read from a body. No valid body is larger. For ranges below 4 MiB the crate also
/// requests a checksum, which the emulator does not support.
const READ_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Maximum number of blobs per page of a listing.
const LIST_MAX: usize = 5000;

pub(super) struct AzurePayloadStore {
    pub(super) world: Arc<dyn World>,
    pub(super) container: ContainerClient,
}

impl AzurePayloadStore {
    async fn put_or_create(&self, name: &str, body: &[u8]) -> Result<(), RequestFault> {
        let blob = blob(&self.container, name);
        let put = async || blob.put_block_blob(body.to_vec()).await.map(drop).map_err(RequestFault::from);
        match put().await {
            Err(failure) if failure.has_code("ContainerNotFound") => {
                match self.container.create().await.map_err(RequestFault::from) {
                    Err(failure) if !failure.has_status(409) => return Err(failure),
                    Ok(()) | Err(_) => {}
                }
                put().await
            }
            answer => answer,
        }
    }

    /// Reads a body, or as much of it as is needed to detect that it is too large.
    async fn get_bounded(&self, name: &str) -> Result<Option<Vec<u8>>, RequestFault> {
        let mut pieces = blob(&self.container, name).get().chunk_size(READ_BYTES_MAX).into_stream();
        match pieces.next().await.map(|piece| piece.map_err(RequestFault::from)) {
            Some(Ok(piece)) => Ok(Some(piece.data.collect().await?.to_vec())),
            Some(Err(failure)) if is_absent(&failure) => Ok(None),
            // The crate requests a byte range, which is invalid for an empty blob.
            Some(Err(failure)) if failure.has_status(416) => Ok(Some(Vec::new())),
            Some(Err(failure)) => Err(failure),
            None => Ok(Some(Vec::new())),
        }
    }

    async fn delete_if_exists(&self, name: &str) -> Result<(), RequestFault> {
        match blob(&self.container, name).delete().await.map_err(RequestFault::from) {
            Ok(_) => Ok(()),
            Err(failure) if is_absent(&failure) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Reads one page of a listing. Returns `None` if the container does not exist.
    async fn list_page(
        &self,
        prefix: &str,
        marker: Option<&str>,
        limit: u32,
    ) -> Result<Option<ListBlobsResponse>, RequestFault> {
        let most = NonZeroU32::new(limit).unwrap_or(NonZeroU32::MIN);
        let mut listing = self.container.list_blobs().prefix(prefix.to_owned()).max_results(most);
        if let Some(marker) = marker {
            listing = listing.marker(NextMarker::new(marker.to_owned()));
        }
        match listing.into_stream().next().await {
            Some(Ok(page)) => Ok(Some(page)),
            Some(Err(error)) => match RequestFault::from(error) {
                failure if is_absent(&failure) => Ok(None),
                failure => Err(failure),
            },
            None => Ok(None),
        }
    }
}

#[async_trait]
impl PayloadStore for AzurePayloadStore {
    async fn put(&self, name: &str, body: &[u8]) -> Result<(), StoreFault> {
        // The content of a name never changes, so the write is idempotent.
        let mut retries = Retries::new(&self.world);
        let put = retries.retry_write(|| self.put_or_create(name, body)).await;
        put.map_err(|failure| retries.fault(failure, "storing a payload"))
    }

    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, StoreFault> {
        let doing = "reading a payload";
        let read = Retries::new(&self.world).retry_read(|| self.get_bounded(name)).await;
        let body = read.map_err(|failure| failure.into_fault(doing))?;
        if body.as_ref().is_some_and(|body| body.len() > PAYLOAD_BODY_BYTES_MAX) {
            let source = format!("it has more than {PAYLOAD_BODY_BYTES_MAX} bytes").into();
            return Err(StoreFault::Corrupt { doing, source });
        }
        Ok(body)
    }

    async fn delete(&self, name: &str) -> Result<(), StoreFault> {
        let mut retries = Retries::new(&self.world);
        let deleted = retries.retry_write(|| self.delete_if_exists(name)).await;
        deleted.map_err(|failure| retries.fault(failure, "deleting a payload"))
    }

    async fn list(
        &self,
        prefix: &str,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Listing<PayloadEntry>, StoreFault> {
        let (doing, listing) = ("listing payloads", format!("payloads.{prefix}"));
        let marker = cursor::read(&listing, cursor, doing)?.map(|(marker, _)| marker);
        let limit = u32::try_from(limit.min(LIST_MAX)).unwrap_or(1);
        let mut retries = Retries::new(&self.world);
        let page = retries.retry_read(|| self.list_page(prefix, marker.as_deref(), limit)).await;
        let Some(page) = page.map_err(|failure| failure.into_fault(doing))? else {
            return Ok(Listing { items: Vec::new(), next: None });
        };
        let entry = |blob: &Blob| PayloadEntry {
            name: blob.name.clone(),
            // The service reports the time in seconds.
            stored_at: Timestamp::from_unix_ms(
                blob.properties.last_modified.unix_timestamp().saturating_mul(1000),
            ),
        };
        let next = page.next_marker.as_ref().map(|next| (next.as_str().to_owned(), None));
        Ok(Listing {
            items: page.blobs.blobs().filter(|blob| is_name(&blob.name)).map(entry).collect(),
            next: next.map(|next| cursor::write(&listing, next)),
        })
    }
}

fn is_absent(failure: &RequestFault) -> bool {
    ["BlobNotFound", "ContainerNotFound"].into_iter().any(|code| failure.has_code(code))
}

/// Panics if the name is not a valid payload name.
fn blob(container: &ContainerClient, name: &str) -> BlobClient {
    assert!(is_name(name), "{name:?} cannot name a payload");
    container.blob_client(name)
}
