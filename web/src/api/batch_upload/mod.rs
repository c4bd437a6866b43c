//! The upload of a batch. The document is checked and divided into stored parts while it arrives, in bounded memory.
//!
//! A separate thread decompresses and parses the body. Two short channels connect it to the client connection and to the
//! store, so the slowest of the three determines the speed.

mod body;
mod checks;
mod control;
mod reading;
mod source;

use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::web::{Data, Payload};
use futures::future::{Either, select};
use postonce_shared::batches::document::{Part, Summary};
use postonce_shared::batches::intake::Upload;
use postonce_shared::config::HttpLimits;
use postonce_shared::messaging::sweep::AGE_MIN;
use tokio::sync::mpsc;

pub use self::body::EXPANDED_BYTES_MAX;
use self::body::{ChannelReader, feed};
pub use self::checks::Rules;
use self::checks::check;
pub use self::control::{ControlTotals, decimal};
pub use self::reading::Reading;
pub use self::source::{Encoding, Source};
use crate::access::authentication::Caller;
use crate::api::translate::xml_limits;
use crate::error::{ApiError, Code};
use crate::formats::items::ItemsError;

/// Capacity of the channel between the connection and the parser, in pieces of the body.
const PIECES: usize = 8;
/// Capacity of the channel between the parser and the store, in parts.
const PARTS: usize = 2;
/// Interval at which the rights of the uploading key are checked.
const RIGHTS_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum duration of an upload. The sweep removes parts without a batch when they are a day old.
const UPLOAD_TIME_MAX: Duration = Duration::from_secs(6 * 3600);
const _: () = assert!(UPLOAD_TIME_MAX.as_secs() < AGE_MIN.as_secs());

/// Receives a document: checks it, and stores its parts in an upload, which only a new batch has. Ends about a second after
/// the rights of the caller, and when its place is left to another partner. After an error the upload has to be abandoned.
///
/// # Errors
/// [`ApiError`] for an invalid document, for lost rights, or for an unavailable store.
pub async fn receive<P>(
    caller: &mut Caller<P>,
    (request, payload): (&HttpRequest, Payload),
    (source, reading): (Source, &mut Reading),
    rules: Rules,
    upload: Option<&mut Upload>,
) -> Result<Summary, ApiError> {
    let mut lost = reading.until_lost();
    let mut received = pin!(receive_all(request, payload, (source, reading), rules, upload));
    loop {
        // The system clock and not the `World`, because this limits a client connection and no business time.
        match tokio::time::timeout(RIGHTS_INTERVAL, select(&mut received, &mut lost)).await {
            Ok(Either::Left((received, _))) => return received,
            Ok(Either::Right(_)) => {
                let detail = "All places of batches were taken, and this one was left to a partner with fewer. Send it again.";
                return Err(ApiError::new(Code::Overloaded, detail));
            }
            Err(_) => {}
        }
        match caller.still_permitted().await {
            Ok(()) => {}
            // The rights cannot be read now. The caller checks them again at the end.
            Err(unknown) if unknown.fault().is_some() => {}
            Err(ended) => return Err(ended),
        }
    }
}

async fn receive_all(
    request: &HttpRequest,
    payload: Payload,
    (source, reading): (Source, &mut Reading),
    rules: Rules,
    mut upload: Option<&mut Upload>,
) -> Result<Summary, ApiError> {
    let limits = request.app_data::<Data<HttpLimits>>().map_or_else(HttpLimits::default, |it| ***it);
    let (pieces, input) = mpsc::channel(PIECES);
    let (finished, mut parts) = mpsc::channel::<Part>(PARTS);
    let (xml_limits, is_new) = (xml_limits(request), upload.is_some());
    let pace = reading.start()?;
    let parsing = actix_web::web::block(move || {
        let Source { format, encoding, charset } = source;
        let pace = Rc::new(pace);
        let input = ChannelReader::new(input, Rc::clone(&pace));
        let input = encoding.expand(input, &pace).map_err(|error| broken(ItemsError::Input(error)))?;
        let mut items = format.read(input, charset, &xml_limits).map_err(broken)?;
        check(&mut *items, rules, is_new, (&finished, &pace))
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
    // Failures of the connection or the store are reported first, because they stop the parser.
    fed?;
    stored.map_err(|fault: postonce_shared::ports::fault::StoreFault| ApiError::from(fault))?;
    if let Some(overloaded) = reading.overloaded() {
        return Err(overloaded);
    }
    parsed.map_err(|error| ApiError::internal(error.to_string()))?
}

/// Converts the reason why a document cannot be read to an error response.
fn broken(broken: ItemsError) -> ApiError {
    match &broken {
        ItemsError::Input(error) if body::is_too_large(error) => {
            let max = body::EXPANDED_BYTES_MAX >> 30;
            ApiError::new(Code::BodyTooLarge, format!("A batch has at most {max} GiB after decompression."))
        }
        ItemsError::Input(_) | ItemsError::TooLong | ItemsError::Empty | ItemsError::Form(_) => {
            ApiError::new(Code::BodyInvalid, broken.to_string())
        }
    }
}

#[cfg(test)]
mod tests;
