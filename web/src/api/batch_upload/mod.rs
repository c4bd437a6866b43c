//! The upload of a batch: the document is checked and divided into stored parts while it arrives, in bounded memory.
//!
//! The body goes through a thread of its own, which decompresses and parses it. Two short channels connect it to the
//! connection and to the store, so that the slowest of the three sets the pace.

mod body;
mod checks;
mod control;

use std::io::{BufRead, BufReader, Read};
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderMap};
use actix_web::web::{Data, Payload};
use flate2::read::MultiGzDecoder;
use postonce_shared::batches::document::{Part, Summary};
use postonce_shared::batches::intake::Upload;
use postonce_shared::config::HttpLimits;
use postonce_shared::messaging::sweep::AGE_MIN;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use self::body::{ChannelReader, Expanded, feed};
pub use self::checks::Rules;
use self::checks::check;
pub use self::control::{ControlTotals, decimal};
use crate::api::negotiate;
use crate::error::{ApiError, Code};
use crate::formats::items::{Broken, ITEM_FORMATS, ItemFormat};

/// Number of pieces of the body between the connection and the parser.
const PIECES: usize = 8;
/// Number of parts between the parser and the store.
const PARTS: usize = 2;
/// Size of the buffer of the parser.
const BUFFER_BYTES: usize = 64 * 1024;
/// Largest window of a compressed body, as a power of two: 8 MiB, which the standard recommends to support (RFC 8878).
const WINDOW_LOG_MAX: u32 = 23;

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

/// Longest time of an upload: the sweep removes parts without a batch when they are a day old.
const UPLOAD_TIME_MAX: Duration = Duration::from_secs(6 * 3600);
const _: () = assert!(UPLOAD_TIME_MAX.as_secs() < AGE_MIN.as_secs());

/// The compression of a body (`Content-Encoding`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// None.
    Identity,
    /// `gzip`.
    Gzip,
    /// `zstd`.
    Zstd,
}

impl Encoding {
    /// Reads the encoding of a body.
    ///
    /// # Errors
    /// [`ApiError`] with status 415 for any other one.
    pub fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        let unsupported = |encoding: &str| {
            let detail =
                format!("A batch can be sent with gzip, zstd or no encoding, and not with {encoding:?}.");
            Err(ApiError::new(Code::MediaTypeUnsupported, detail))
        };
        let mut values = headers.get_all(header::CONTENT_ENCODING);
        let encoding = values.next().map_or("identity", |value| value.to_str().unwrap_or_default().trim());
        if values.next().is_some() {
            return unsupported("several encodings");
        }
        match encoding.to_ascii_lowercase().as_str() {
            "identity" => Ok(Self::Identity),
            "gzip" | "x-gzip" => Ok(Self::Gzip),
            "zstd" => Ok(Self::Zstd),
            other => unsupported(other),
        }
    }

    fn expand(self, input: impl Read + 'static) -> std::io::Result<Box<dyn BufRead>> {
        fn buffered(input: impl Read + 'static) -> Box<dyn BufRead> {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, Expanded::new(input)))
        }
        Ok(match self {
            Self::Identity => buffered(input),
            Self::Gzip => buffered(MultiGzDecoder::new(input)),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(input)?;
                decoder.window_log_max(WINDOW_LOG_MAX)?;
                buffered(decoder)
            }
        })
    }
}

/// Returns the format of a batch document.
///
/// # Errors
/// [`ApiError`] with status 415.
pub fn format_of(headers: &HeaderMap) -> Result<&'static ItemFormat, ApiError> {
    let known: Vec<&str> = ITEM_FORMATS.iter().map(|format| format.media_type).collect();
    let known = known.join(", ");
    let unsupported = |detail| ApiError::new(Code::MediaTypeUnsupported, detail);
    let essence = negotiate::utf8_media_type(headers)?
        .ok_or_else(|| unsupported(format!("Send the header Content-Type: one of {known}.")))?;
    let format = ITEM_FORMATS.iter().find(|format| format.media_type.eq_ignore_ascii_case(essence));
    format.ok_or_else(|| unsupported(format!("Send one of {known}; {essence:?} is not supported here.")))
}

/// Receives a document: checks it, and stores its parts if they are `wanted`. After an error the upload has to be
/// abandoned.
///
/// # Errors
/// [`ApiError`] that names what is wrong with the document, or that the store is not available.
pub async fn receive(
    request: &HttpRequest,
    payload: Payload,
    (format, encoding): (&'static ItemFormat, Encoding),
    rules: Rules,
    mut upload: Option<&mut Upload>,
) -> Result<Summary, ApiError> {
    let limits = request.app_data::<Data<HttpLimits>>().map_or_else(HttpLimits::default, |it| ***it);
    let (pieces, input) = mpsc::channel(PIECES);
    let (finished, mut parts) = mpsc::channel::<Part>(PARTS);
    let parsing =
        actix_web::web::block(move || parse(ChannelReader::new(input), format, encoding, rules, &finished));
    let storing = async move {
        while let Some(part) = parts.recv().await {
            if let Some(upload) = &mut upload {
                upload.put(&part).await?;
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

fn parse(
    input: ChannelReader,
    format: &ItemFormat,
    encoding: Encoding,
    rules: Rules,
    parts: &mpsc::Sender<Part>,
) -> Result<Summary, ApiError> {
    let input = encoding.expand(input).map_err(|error| broken(Broken::Input(error)))?;
    let mut items = (format.open)(input).map_err(broken)?;
    check(&mut *items, rules, parts)
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
