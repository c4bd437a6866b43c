//! The upload of a batch: the document is checked and divided into stored parts while it arrives, in bounded memory.
//!
//! The body goes through a thread of its own, which decompresses and parses it. Two short channels connect it to the
//! connection and to the store, so that the slowest of the three sets the pace.

mod body;
mod checks;
mod control;
mod source;

use std::pin::pin;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::web::{Data, Payload};
use postonce_shared::batches::document::{Part, Summary};
use postonce_shared::batches::intake::Upload;
use postonce_shared::config::HttpLimits;
use postonce_shared::messaging::sweep::AGE_MIN;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

pub use self::body::EXPANDED_BYTES_MAX;
use self::body::{ChannelReader, feed};
pub use self::checks::Rules;
use self::checks::check;
pub use self::control::{ControlTotals, decimal};
pub use self::source::{Encoding, Source};
use crate::access::authentication::Caller;
use crate::api::translate::xml_limits;
use crate::error::{ApiError, Code};
use crate::formats::items::Broken;

/// Number of pieces of the body between the connection and the parser.
const PIECES: usize = 8;
/// Number of parts between the parser and the store.
const PARTS: usize = 2;
/// Number of uploads of a process at once; each needs up to 32 MiB.
const UPLOADS_MAX: usize = 16;

/// Limits the uploads at once.
#[derive(Debug)]
pub struct UploadSlots(Semaphore);

impl Default for UploadSlots {
    fn default() -> Self {
        Self(Semaphore::new(UPLOADS_MAX))
    }
}

impl UploadSlots {
    /// Takes a slot, until the returned value is dropped.
    ///
    /// # Errors
    /// [`ApiError`] with status 503 when all are taken.
    pub fn take(&self) -> Result<SemaphorePermit<'_>, ApiError> {
        self.0.try_acquire().map_err(|_| {
            let detail = format!("{UPLOADS_MAX} batches are arriving already. Try again in a moment.");
            ApiError::new(Code::Overloaded, detail)
        })
    }
}

/// Time between two look-ups of the rights of who uploads.
const RIGHTS_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time of an upload: the sweep removes parts without a batch when they are a day old.
const UPLOAD_TIME_MAX: Duration = Duration::from_secs(6 * 3600);
const _: () = assert!(UPLOAD_TIME_MAX.as_secs() < AGE_MIN.as_secs());

/// Receives a document: checks it, and stores its parts in an upload, which only a new batch has. Ends about a second after
/// the rights of the caller. After an error the upload has to be abandoned.
///
/// # Errors
/// [`ApiError`] that names what is wrong with the document, that the rights have ended, or that the store is not available.
pub async fn receive<P>(
    caller: &mut Caller<P>,
    (request, payload): (&HttpRequest, Payload),
    source: Source,
    rules: Rules,
    upload: Option<&mut Upload>,
) -> Result<Summary, ApiError> {
    let mut received = pin!(receive_all(request, payload, source, rules, upload));
    loop {
        // The system clock and not the `World`, because this limits a client connection and no business time.
        if let Ok(received) = tokio::time::timeout(RIGHTS_INTERVAL, &mut received).await {
            return received;
        }
        match caller.still_permitted().await {
            Ok(()) => {}
            // They cannot be read now. They are looked up again at the end.
            Err(unknown) if unknown.fault().is_some() => {}
            Err(ended) => return Err(ended),
        }
    }
}

async fn receive_all(
    request: &HttpRequest,
    payload: Payload,
    source: Source,
    rules: Rules,
    mut upload: Option<&mut Upload>,
) -> Result<Summary, ApiError> {
    let limits = request.app_data::<Data<HttpLimits>>().map_or_else(HttpLimits::default, |it| ***it);
    let (pieces, input) = mpsc::channel(PIECES);
    let (finished, mut parts) = mpsc::channel::<Part>(PARTS);
    let (xml_limits, is_new) = (xml_limits(request), upload.is_some());
    let parsing = actix_web::web::block(move || {
        let Source { format, encoding, charset } = source;
        let input =
            encoding.expand(ChannelReader::new(input)).map_err(|error| broken(Broken::Input(error)))?;
        let mut items = format.read(input, charset, &xml_limits).map_err(broken)?;
        check(&mut *items, rules, is_new, &finished)
    });
    let storing = async move {
        while let Some(part) = parts.recv().await {
            if let Some(upload) = &mut upload {
                upload.put(part).await?;
            }
        }
        Ok(())
    };
    let feeding = async {
        let fed = tokio::time::timeout(UPLOAD_TIME_MAX, feed(request, payload, pieces, limits.body_timeout));
        fed.await.unwrap_or_else(|_| {
            let detail = format!("A batch must arrive within {UPLOAD_TIME_MAX:?}.");
            Err(ApiError::new(Code::RequestTimeout, detail))
        })
    };
    let (fed, stored, parsed) = futures::join!(feeding, storing, parsing);
    // What is wrong with the connection or the store explains why the parser stopped.
    fed?;
    stored.map_err(|fault: postonce_shared::ports::fault::StoreFault| ApiError::from(fault))?;
    parsed.map_err(|error| ApiError::internal(error.to_string()))?
}

/// Converts the reason why a document cannot be read.
fn broken(broken: Broken) -> ApiError {
    match &broken {
        Broken::Input(error) if body::is_too_large(error) => {
            let max = body::EXPANDED_BYTES_MAX >> 30;
            ApiError::new(Code::BodyTooLarge, format!("A batch has at most {max} GiB after decompression."))
        }
        Broken::Input(_) | Broken::TooLong | Broken::Form(_) => {
            ApiError::new(Code::BodyInvalid, broken.to_string())
        }
    }
}

#[cfg(test)]
mod tests;
