//! Operations on batches, which the handlers call.

use std::sync::Arc;

use actix_web::HttpRequest;
use actix_web::web::{Data, Payload};
use futures::FutureExt as _;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use postonce_schemas::json as wire;
use postonce_shared::access::partner_cache::Standing;
use postonce_shared::batches::Batches;
use postonce_shared::batches::intake::{Cancelled, Submitted, Upload};
use postonce_shared::config::HttpLimits;
use postonce_shared::domain::batch::{Batch, BatchKey};
use postonce_shared::domain::ids::{BatchId, PartnerId};
use postonce_shared::domain::partner::Partner;
use postonce_shared::oversight::prices::Prices;
use postonce_shared::ports::fault::StoreFault;
use postonce_shared::ports::operations::metered;
use postonce_shared::ports::world::World;

use crate::access::authentication::Caller;
use crate::access::scopes::Batch as BatchScope;
use crate::api::arguments::{Headers, Query};
use crate::api::batch_query::BatchSubmitParams;
use crate::api::batch_report;
use crate::api::batch_upload::{self, ControlTotals, Reading, Rules, Source};
use crate::api::operation_headers::BatchHeaders;
use crate::api::pages::{Page, cursor};
use crate::error::{ApiError, Code};

/// Number of records that are read concurrently for a page of open batches.
const READS_AT_ONCE: usize = 8;

/// Receives, reports and cancels batches.
pub struct BatchService {
    /// The batches in the store.
    pub batches: Batches,
    prices: Prices,
    world: Arc<dyn World>,
}

/// A request to submit a batch, without its document.
pub struct Submission {
    /// The key of the batch.
    pub key: BatchKey,
    source: Source,
    rules: Rules,
}

impl Submission {
    /// Reads the query and the headers of a request.
    ///
    /// # Errors
    /// [`ApiError`] that names the parameter or the header.
    pub fn of(
        caller: &Caller<BatchScope>,
        request: &HttpRequest,
        on_invalid: Query<BatchSubmitParams>,
        headers: Headers<BatchHeaders>,
    ) -> Result<Self, ApiError> {
        let on_invalid = on_invalid.value()?;
        let source = Source::of(request.headers())?;
        let BatchHeaders { batch, count, sums } = headers.value()?;
        let batch = BatchId::from_uuid(batch.as_uuid());
        let grant = caller.grant();
        let rules = Rules {
            on_invalid,
            items_max: request.app_data::<Data<HttpLimits>>().map_or(0, |limits| limits.batch_items_max),
            control: ControlTotals::parse(count.as_deref(), sums.as_deref())?,
            partner: Arc::clone(&grant.partner),
            scopes: grant.scopes.iter().copied().collect(),
        };
        Ok(Self { key: BatchKey { partner: caller.partner().clone(), batch }, source, rules })
    }
}

impl BatchService {
    /// Creates the service. Batches are reported with their costs at `prices`.
    pub fn new(batches: Batches, prices: Prices, world: Arc<dyn World>) -> Self {
        Self { batches, prices, world }
    }

    /// Receives the document of a batch, and stores the batch if the caller still has its rights afterwards. Returns the batch,
    /// and whether it is new.
    ///
    /// # Errors
    /// [`ApiError`]: the batch is not stored, unless the store was unavailable.
    pub async fn submit(
        &self,
        Submission { key, source, rules }: Submission,
        caller: &mut Caller<BatchScope>,
        request: &HttpRequest,
        payload: Payload,
    ) -> Result<(Batch, bool), ApiError> {
        caller.refuse_in_debt(request)?;
        let mut reading = Reading::of(caller, request)?;
        // The parts of an existing batch are not stored again, but its content is compared.
        let exists = self.batches.find(&key, None).await?.is_some();
        let upload = (!exists).then(|| self.batches.upload(&key));
        let mut arriving = Arriving { upload, world: &self.world };
        let (on_invalid, checked) = (rules.on_invalid, Arc::clone(&rules.partner));
        let receiving = async {
            let upload = &mut arriving.upload;
            let source = (source, &mut reading);
            let summary =
                batch_upload::receive(caller, (request, payload), source, rules, upload.as_mut()).await?;
            let content = summary.content;
            let document = match upload {
                Some(upload) => Some(upload.finish(summary).await?),
                None => None,
            };
            // Nothing refers to the parts before the batch is stored.
            caller.confirm(request).await?;
            check_reach(&checked, &caller.grant().partner)?;
            Ok((document, content))
        };
        let (received, operations) = metered(receiving).await;
        let upload = arriving.upload.take();
        let (document, content) = match received {
            Ok(received) => received,
            Err(error) => {
                abandon(upload).await;
                return Err(error);
            }
        };
        // The parts are not abandoned after a fault here, because the record of the batch may refer to them.
        let submitted = match document {
            None => self.batches.repeat(&key, content).await?,
            Some(document) => {
                let batch = Batch::received(key, on_invalid, document, self.world.now(), operations);
                self.batches.acting_on(caller.standing()).submit(batch).await?
            }
        };
        let existing = match submitted {
            Submitted::New(batch) => {
                reading.accept(batch.document.items());
                return Ok((batch, true));
            }
            Submitted::Existing(batch) => Ok((batch, false)),
            Submitted::KeyReused => {
                let detail =
                    "This id was used for a batch with different content. Use a new id for a new batch.";
                Err(ApiError::new(Code::IdempotencyKeyReused, detail))
            }
        };
        abandon(upload).await;
        existing
    }

    /// Returns a page of the batches of a partner, ordered by id, and the cursor of the next page. `phase` selects batches in
    /// the phase with this code.
    ///
    /// # Errors
    /// [`ApiError`]: the cursor belongs to another listing, or the store was unavailable.
    pub async fn page_of(
        &self,
        partner: &PartnerId,
        page: &Page,
        phase: Option<&str>,
    ) -> Result<(Vec<wire::Batch>, Option<String>), ApiError> {
        let listing = format!("batches of {partner} {}", phase.unwrap_or_default());
        let after = page.position(&listing)?.map(|id| id.parse()).transpose();
        let after: Option<BatchId> = after.map_err(|_| ApiError::cursor_invalid())?;
        let found = self.batches.records.list(partner, after, page.limit).await?;
        let is_last = found.len() < page.limit;
        let next = found.last().filter(|_| !is_last).map(|batch| batch.key.batch.to_string());
        let wanted = found.iter().filter(|batch| is_in(batch, phase));
        Ok((wanted.map(|batch| self.report(batch)).collect(), next.map(|next| cursor(&listing, &next))))
    }

    /// Like [`Self::page_of`], for the open batches of all partners, ordered by partner and id. Omits damaged records.
    ///
    /// # Errors
    /// Same as [`Self::page_of`].
    pub async fn page_of_open(
        &self,
        page: &Page,
        phase: Option<&str>,
    ) -> Result<(Vec<wire::PartnerBatch>, Option<String>), ApiError> {
        let listing = format!("open batches {}", phase.unwrap_or_default());
        let after = page.position(&listing)?;
        let after =
            after.map(|position| key_at(&position).ok_or_else(ApiError::cursor_invalid)).transpose()?;
        let listed = self.batches.records.list_open(after.as_ref(), page.limit).await?;
        let is_last = listed.len() < page.limit;
        let next = listed.last().filter(|_| !is_last).map(|(key, _)| position_of(key));
        let reads = stream::iter(listed.iter().map(|(key, _)| self.find_open(key)));
        let found: Vec<Option<Batch>> = reads.buffered(READS_AT_ONCE).try_collect().await?;
        let wanted = found.iter().flatten().filter(|batch| is_in(batch, phase));
        let batches = wanted.map(|batch| self.report_of_partner(batch)).collect();
        Ok((batches, next.map(|next| cursor(&listing, &next))))
    }

    /// Reads an open batch. Returns `None` if it has ended, or its record is missing or damaged.
    async fn find_open(&self, key: &BatchKey) -> Result<Option<Batch>, StoreFault> {
        match self.batches.records.find(key).await {
            Ok(found) => Ok(found.map(|found| found.value).filter(|batch| !batch.phase.is_final())),
            Err(StoreFault::Corrupt { .. }) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    /// Cancels a batch of which nothing is posted. Returns `None` if the batch does not exist.
    ///
    /// # Errors
    /// [`ApiError`] with status 409 if it is too late.
    pub async fn cancel(&self, key: &BatchKey, standing: &Standing) -> Result<Option<Batch>, ApiError> {
        match self.batches.acting_on(standing).cancel(key).await? {
            Cancelled::Done(batch) => Ok(Some(batch)),
            Cancelled::TooLate(batch) => {
                let detail = format!("The batch is {}; it can only be cancelled before.", batch.phase.code());
                Err(ApiError::new(Code::BatchNotCancellable, detail))
            }
            Cancelled::Unknown => Ok(None),
        }
    }

    /// Like [`Self::report`], with the partner.
    pub fn report_of_partner(&self, batch: &Batch) -> wire::PartnerBatch {
        wire::PartnerBatch { partner_id: batch.key.partner.to_string(), batch: self.report(batch) }
    }

    /// Converts a batch to a response body.
    pub fn report(&self, batch: &Batch) -> wire::Batch {
        batch_report::batch(batch, self.world.now(), &self.prices)
    }
}

/// The upload of a document that arrives, if its batch does not exist. It is abandoned when the client disconnects.
struct Arriving<'a> {
    upload: Option<Upload>,
    world: &'a Arc<dyn World>,
}

impl Drop for Arriving<'_> {
    fn drop(&mut self) {
        if let Some(upload) = self.upload.take() {
            self.world.spawn(upload.abandon().boxed());
        }
    }
}

async fn abandon(upload: Option<Upload>) {
    if let Some(upload) = upload {
        upload.abandon().await;
    }
}

/// Checks that a partner still has the reach with which the items of a batch were compared.
///
/// # Errors
/// [`ApiError`] with status 503: a repeated request checks the items against the present reach.
fn check_reach(checked: &Partner, present: &Partner) -> Result<(), ApiError> {
    if checked.reach.is_within(&present.reach) {
        return Ok(());
    }
    let detail = "The accounts that the partner may access were changed while the batch arrived. Send it again: nothing was \
                  stored.";
    Err(ApiError::new(Code::RightsChanged, detail))
}

fn is_in(batch: &Batch, phase: Option<&str>) -> bool {
    phase.is_none_or(|phase| batch.phase.code() == phase)
}

/// Returns the position of a batch in the listing of open batches.
fn position_of(BatchKey { partner, batch }: &BatchKey) -> String {
    format!("{partner} {batch}")
}

fn key_at(position: &str) -> Option<BatchKey> {
    let (partner, batch) = position.split_once(' ')?;
    Some(BatchKey { partner: PartnerId::parse(partner).ok()?, batch: batch.parse().ok()? })
}
