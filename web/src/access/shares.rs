//! What partners, and addresses without a key, may use at the same time: each has a share, so that one cannot take what the others
//! need.

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use actix_web::{HttpMessage as _, HttpRequest};
use postonce_process::http::{Place, Places};
use postonce_shared::config::HttpLimits;
use postonce_shared::domain::ids::PartnerId;

use crate::access::page_threads::PageThreads;
use crate::access::rates::RetryAfter;
use crate::access::reader::Reader;
use crate::access::slots::{NoSlot, SlotGuard, Slots};
use crate::access::turns::Turns;
use crate::error::{ApiError, Code};

/// Part of the connections that the requests of one partner may use at the same time.
const PARTNER_SHARE: usize = 2;
/// Part of the connections on which requests may wait for an outcome.
const WAITING_SHARE: usize = 2;
/// Part of the connections on which the requests of one partner may wait.
const PARTNER_WAITING_SHARE: usize = 4;
/// Streams of current values for pages of the console. Each is a connection of a browser.
const STREAMS_MAX: usize = 200;
/// Such streams of the keys of one partner.
const PARTNER_STREAMS_MAX: usize = 20;
/// Forms for signing in that are received at the same time: there is no key yet by which to limit them. One of those that take long
/// gives way to a further one.
const SIGN_INS_MAX: usize = 32;
/// Such forms of one network address.
const ADDRESS_SIGN_INS_MAX: usize = 4;
/// Bytes of large answers that were not yet received, of all clients but operators.
const UNREAD_BYTES_MAX: usize = 52 * 1024 * 1024;
/// Bytes of large answers that a partner, or an address without a key, has not yet received.
const PARTNER_UNREAD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The same of all operators.
const OPERATOR_UNREAD_BYTES_MAX: usize = 12 * 1024 * 1024;
/// Pages of listings that are made at the same time, for all partners. Each takes some megabytes.
const PAGES_MAX: usize = 8;
/// Pages that are made at the same time for a partner.
const PARTNER_PAGES_MAX: usize = 2;
/// Bytes of an item on a page, about: memory for the page is taken before it is made.
const PAGE_ITEM_BYTES: usize = 2 * 1024;
/// Largest number of bytes that are taken for it, which is the size of a page in the format of its answer.
pub const PAGE_BYTES_MAX: usize = 1024 * 1024;
/// Time that a request waits until its page is made.
const PAGE_WAIT_MAX: Duration = Duration::from_secs(10);
/// Bytes of the bodies of all requests to the API except uploads and those of operators, from the moment that they begin to arrive.
const BODY_BYTES_MAX: usize = 56 * 1024 * 1024;
/// Such bytes of one partner.
const PARTNER_BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The same of all operators.
const OPERATOR_BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Part of what all operators may use, which those with keys of one partner may.
const OPERATORS_OF_PARTNER_SHARE: usize = 2;
/// Batches that arrive at the same time; each needs up to 32 MiB.
const UPLOADS_MAX: usize = 16;
/// Such batches of one partner.
const PARTNER_UPLOADS_MAX: usize = 4;
/// Part of the processors on which the documents of batches are read.
const READING_SHARE: usize = 2;
/// Documents of a partner that are read at the same time; its others wait for it.
const PARTNER_READINGS_MAX: usize = 1;
/// Time that a document waits until the next piece of it is read.
const READING_WAIT_MAX: Duration = Duration::from_secs(60);

/// What requests use while they arrive, and until their answers are made and received.
pub struct Capacity {
    /// Bytes of large answers.
    pub unread_bytes: Arc<Slots<Reader>>,
    /// Bytes of bodies.
    pub body_bytes: Arc<Slots>,
    /// Pages of listings.
    pub pages: Turns,
}

/// The place of an upload, among those of its partner and among all.
pub type UploadPlace = (SlotGuard, Place<PartnerId>);

/// Marks a request by an operator, in its extensions.
#[derive(Debug)]
pub struct ByOperator;

/// The shares of the partners in one process.
pub struct PartnerShares {
    /// Requests in progress.
    pub in_progress: Arc<Slots>,
    /// Requests that wait for an outcome.
    pub waiting: Arc<Slots>,
    /// What the requests of partners use.
    pub of_partners: Capacity,
    /// What those by operators use, which must succeed while the partner of their key uses all that it may.
    pub of_operators: Capacity,
    /// Streams of the console.
    pub streams: Arc<Slots>,
    /// Forms for signing in, by the network address of the client.
    pub sign_ins: Arc<Places<Option<IpAddr>>>,
    /// Metrics that are encoded: one after the other, as they lock each other out.
    pub scrapes: Turns,
    /// Where large answers are made.
    pub page_threads: PageThreads,
    /// Batches of each partner that arrive.
    pub uploads: Arc<Slots>,
    /// The same of all partners.
    pub upload_places: Arc<Places<PartnerId>>,
    /// Pieces of the documents of batches, which are decompressed and parsed: deposits need a processor meanwhile.
    pub readings: Arc<Turns>,
}

impl PartnerShares {
    /// Derives the shares from the limits of the process.
    pub fn of(limits: &HttpLimits) -> Self {
        // However large a body may be, one can arrive.
        let body_bytes = |of_one: usize, of_all: usize| {
            Slots::new(of_one.max(limits.body_bytes_max), of_all.max(limits.body_bytes_max))
        };
        let of_one = |of_all: usize| of_all.checked_div(OPERATORS_OF_PARTNER_SHARE).unwrap_or_default();
        let part = |of: usize| limits.connections_max.checked_div(of).unwrap_or_default().max(1);
        Self {
            // The limit of all requests in progress is another one, which operators are exempt from.
            in_progress: Slots::new(part(PARTNER_SHARE), usize::MAX),
            waiting: Slots::new(part(PARTNER_WAITING_SHARE), part(WAITING_SHARE)),
            of_partners: Capacity {
                unread_bytes: Slots::new(PARTNER_UNREAD_BYTES_MAX, UNREAD_BYTES_MAX),
                body_bytes: body_bytes(PARTNER_BODY_BYTES_MAX, BODY_BYTES_MAX),
                pages: Turns::new(PARTNER_PAGES_MAX, PAGES_MAX, PAGE_WAIT_MAX),
            },
            of_operators: Capacity {
                unread_bytes: Slots::new(of_one(OPERATOR_UNREAD_BYTES_MAX), OPERATOR_UNREAD_BYTES_MAX),
                body_bytes: body_bytes(of_one(OPERATOR_BODY_BYTES_MAX), OPERATOR_BODY_BYTES_MAX),
                pages: Turns::new(of_one(PAGES_MAX), PAGES_MAX, PAGE_WAIT_MAX),
            },
            streams: Slots::new(PARTNER_STREAMS_MAX, STREAMS_MAX),
            sign_ins: Places::new(ADDRESS_SIGN_INS_MAX, SIGN_INS_MAX),
            scrapes: Turns::new(1, 1, PAGE_WAIT_MAX),
            page_threads: PageThreads::default(),
            uploads: Slots::new(PARTNER_UPLOADS_MAX, usize::MAX),
            upload_places: Places::new(PARTNER_UPLOADS_MAX, UPLOADS_MAX),
            readings: Arc::new(Turns::new(PARTNER_READINGS_MAX, readings_max(), READING_WAIT_MAX)),
        }
    }

    /// Returns what a request, and others like it, may use.
    pub fn capacity(&self, request: &HttpRequest) -> &Capacity {
        if request.extensions().contains::<ByOperator>() { &self.of_operators } else { &self.of_partners }
    }

    /// Takes the place of an upload of a batch, if necessary from a partner that has more of them: it loses the one that it took
    /// first.
    ///
    /// # Errors
    /// [`ApiError`] with status 429 if the partner has all its places in use, and 503 if all partners have, and none has more.
    pub fn upload_place(&self, request: &HttpRequest, partner: &PartnerId) -> Result<UploadPlace, ApiError> {
        let of_partner = |count| {
            format!("Partner {partner} may send {count} batches at a time. Wait until one has arrived.")
        };
        let of_all = "Too many batches are arriving already. Try again in a moment.";
        let slot = self.uploads.take(partner, 1);
        let slot = slot.map_err(|refusal| refused(request, refusal, of_partner, of_all))?;
        let place = self.upload_places.take_fairly(partner);
        Ok((slot, place.ok_or_else(|| ApiError::new(Code::Overloaded, of_all))?))
    }

    /// Takes the memory of a body with up to `bytes` bytes.
    ///
    /// # Errors
    /// [`ApiError`] with status 429 if the partner sends too much at the same time, and 503 if all partners do.
    pub fn body_memory(
        &self,
        request: &HttpRequest,
        partner: &PartnerId,
        bytes: usize,
    ) -> Result<SlotGuard, ApiError> {
        let of_partner = |bytes_max| {
            format!(
                "Partner {partner} may send bodies with {bytes_max} bytes together at a time; one without Content-Length \
                 counts with the largest size that is allowed. Send fewer requests at a time."
            )
        };
        let of_all = "Too many large requests are arriving already. Try again in a moment.";
        let taken = self.capacity(request).body_bytes.take(partner, bytes);
        taken.map_err(|refusal| refused(request, refusal, of_partner, of_all))
    }

    /// Takes the memory of a page with up to `limit` items, while it is made.
    ///
    /// # Errors
    /// [`ApiError`] if too many large answers were not yet received.
    pub fn page_memory(&self, request: &HttpRequest, limit: usize) -> Result<SlotGuard<Reader>, ApiError> {
        let reader = Reader::of(request);
        let bytes = limit.saturating_mul(PAGE_ITEM_BYTES).min(PAGE_BYTES_MAX);
        self.capacity(request)
            .unread_bytes
            .take(&reader, bytes)
            .map_err(|refusal| unread(request, &reader, refusal))
    }
}

/// Returns the error for an answer beyond the bytes that may wait to be received.
pub fn unread(request: &HttpRequest, reader: &Reader, refusal: NoSlot) -> ApiError {
    let reader = match reader {
        Reader::Partner(id) => format!("Partner {id}"),
        Reader::Address(_) => "A client without an API key".to_owned(),
    };
    let of_reader = |bytes_max| {
        format!(
            "{reader} may have {bytes_max} bytes of large answers that its clients have not yet received. Read \
             the answers, or ask for smaller pages."
        )
    };
    let of_all = "Too many large answers are being sent. Ask for a smaller page.";
    refused(request, refusal, of_reader, of_all)
}

/// Returns how many documents are read at the same time.
fn readings_max() -> usize {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    processors.checked_div(READING_SHARE).unwrap_or_default().max(1)
}

/// Returns the error for a request without a slot: status 429, if its partner has as many as it may have, with the detail for
/// that number; or 503, if all partners together have.
pub fn refused(
    request: &HttpRequest,
    refusal: NoSlot,
    of_partner: impl FnOnce(usize) -> String,
    of_all: &'static str,
) -> ApiError {
    match refusal {
        NoSlot::OfHolder(max) => {
            request.extensions_mut().insert(RetryAfter(1));
            ApiError::new(Code::RateLimited, of_partner(max))
        }
        NoSlot::OfAll(_) => ApiError::new(Code::Overloaded, of_all),
    }
}
