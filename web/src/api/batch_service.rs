//! The steps of requests on batches, behind their handlers.

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::web::{Data, Payload};
use postonce_schemas::json as wire;
use postonce_shared::batches::Batches;
use postonce_shared::batches::intake::Submitted;
use postonce_shared::config::HttpLimits;
use postonce_shared::domain::batch::{Batch, BatchKey, OnInvalid};
use postonce_shared::domain::ids::BatchId;
use postonce_shared::oversight::prices::Prices;
use postonce_shared::ports::operations::metered;
use postonce_shared::ports::world::World;

use crate::access::authentication::Caller;
use crate::access::scopes::Batch as BatchScope;
use crate::api::batch_report;
use crate::api::batch_upload::{self, ControlTotals, Rules, Source, UploadSlots};
use crate::api::pages::BatchQuery;
use crate::error::{ApiError, Code};
use crate::headers;

/// Receives batches, and reports them.
pub struct BatchService {
    /// The batches of the store.
    pub batches: Batches,
    slots: UploadSlots,
    prices: Prices,
    world: Arc<dyn World>,
}

/// What a request says of a batch, without its document.
pub struct Submission {
    /// The batch.
    pub key: BatchKey,
    source: Source,
    rules: Rules,
}

impl Submission {
    /// Reads the query and the headers of a request.
    ///
    /// # Errors
    /// [`ApiError`] that names the parameter or the header.
    pub fn of(caller: &Caller<BatchScope>, request: &HttpRequest) -> Result<Self, ApiError> {
        let headers = request.headers();
        let on_invalid = BatchQuery::of(request)?.on_invalid.unwrap_or(OnInvalid::Refuse);
        let source = Source::of(headers)?;
        let batch = BatchId::from_uuid(headers::message_id(headers)?.as_uuid());
        let grant = caller.grant();
        let rules = Rules {
            on_invalid,
            items_max: request.app_data::<Data<HttpLimits>>().map_or(0, |limits| limits.batch_items_max),
            control: ControlTotals::of(headers)?,
            partner: Arc::clone(&grant.partner),
            scopes: grant.scopes.iter().copied().collect(),
        };
        Ok(Self { key: BatchKey { partner: caller.partner().clone(), batch }, source, rules })
    }
}

impl BatchService {
    /// Creates the service. Batches are reported with their costs at `prices`.
    pub fn new(batches: Batches, prices: Prices, world: Arc<dyn World>) -> Self {
        Self { batches, slots: UploadSlots::default(), prices, world }
    }

    /// Receives the document of a batch, and stores the batch. Returns it, and whether it is new.
    ///
    /// # Errors
    /// [`ApiError`]: the batch may be stored only if the store was not available.
    pub async fn submit(
        &self,
        Submission { key, source, rules }: Submission,
        request: &HttpRequest,
        payload: Payload,
    ) -> Result<(Batch, bool), ApiError> {
        let _slot = self.slots.take()?;
        // The parts of a batch that exists are not stored again; its content is still compared.
        let exists = self.batches.find(&key, None).await?.is_some();
        let mut upload = self.batches.upload(&key);
        let on_invalid = rules.on_invalid;
        let receiving = async {
            let wanted = (!exists).then_some(&mut upload);
            let summary = batch_upload::receive(request, payload, source, rules, wanted).await?;
            let content = summary.content;
            let document = if exists { None } else { Some(upload.finish(summary).await?) };
            Ok((document, content))
        };
        let (received, operations) = metered(receiving).await;
        let (document, content) = match received {
            Ok(received) => received,
            Err(error) => {
                upload.abandon().await;
                return Err(error);
            }
        };
        // After a fault, the record may refer to the parts.
        let submitted = match document {
            None => self.batches.repeat(&key, content).await?,
            Some(document) => {
                let batch = Batch::received(key, on_invalid, document, self.world.now(), operations);
                self.batches.submit(batch).await?
            }
        };
        let existing = match submitted {
            Submitted::New(batch) => return Ok((batch, true)),
            Submitted::Existing(batch) => Ok((batch, false)),
            Submitted::KeyReused => {
                let detail =
                    "This id was used for a batch with different content. Use a new id for a new batch.";
                Err(ApiError::new(Code::IdempotencyKeyReused, detail))
            }
        };
        upload.abandon().await;
        existing
    }

    /// Converts a batch to the body of a response.
    pub fn report(&self, batch: &Batch) -> wire::Batch {
        batch_report::batch(batch, self.world.now(), &self.prices)
    }
}
