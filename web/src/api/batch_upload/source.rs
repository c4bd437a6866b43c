//! Format, compression and character encoding of a document.

use std::io::{BufRead, BufReader, Read};
use std::rc::Rc;

use actix_web::http::header::{self, HeaderMap};
use flate2::read::MultiGzDecoder;
use postonce_shared::text::Charset;

use super::body::Expanded;
use super::reading::Pace;
use crate::api::negotiate;
use crate::error::{ApiError, Code};
use crate::formats::GENERIC_XML;
use crate::formats::items::{ITEM_FORMATS, ItemFormat};

const BUFFER_BYTES: usize = 64 * 1024;
/// Maximum window of a zstd body, as a power of two: 8 MiB, which RFC 8878 recommends to support.
const WINDOW_LOG_MAX: u32 = 23;

/// Description of a document by its headers.
#[derive(Clone, Copy)]
pub struct Source {
    /// The format (`Content-Type`).
    pub format: &'static ItemFormat,
    /// The compression.
    pub encoding: Encoding,
    /// The character encoding of the text.
    pub charset: Charset,
}

impl Source {
    /// Parses the headers.
    ///
    /// # Errors
    /// [`ApiError`] with status 415 that lists the supported values.
    pub fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        let charset = negotiate::charset(headers)?;
        Ok(Self { format: format_of(headers)?, encoding: Encoding::of(headers)?, charset })
    }
}

/// The compression of a body (`Content-Encoding`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// No compression.
    Identity,
    /// `gzip`.
    Gzip,
    /// `zstd`.
    Zstd,
}

impl Encoding {
    /// Parses the header of a request.
    ///
    /// # Errors
    /// [`ApiError`] with status 415 for any other encoding.
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

    /// Decompresses a body. The returned reader fails if the document is too large.
    pub(super) fn expand(
        self,
        input: impl Read + 'static,
        pace: &Rc<Pace>,
    ) -> std::io::Result<Box<dyn BufRead>> {
        fn buffered(input: impl Read + 'static, pace: &Rc<Pace>) -> Box<dyn BufRead> {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, Expanded::new(input, Rc::clone(pace))))
        }
        Ok(match self {
            Self::Identity => buffered(input, pace),
            Self::Gzip => buffered(MultiGzDecoder::new(input), pace),
            Self::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(input)?;
                decoder.window_log_max(WINDOW_LOG_MAX)?;
                buffered(decoder, pace)
            }
        })
    }
}

fn format_of(headers: &HeaderMap) -> Result<&'static ItemFormat, ApiError> {
    let known: Vec<&str> = ITEM_FORMATS.iter().map(|format| format.media_type).collect();
    let known = known.join(", ");
    let unsupported = |detail| ApiError::new(Code::MediaTypeUnsupported, detail);
    let essence = negotiate::utf8_media_type(headers)?
        .ok_or_else(|| unsupported(format!("Send the header Content-Type: one of {known}.")))?;
    // Both names of XML mean the same (RFC 7303).
    let generic = GENERIC_XML.iter().find(|name| name.eq_ignore_ascii_case(essence)).and(GENERIC_XML.first());
    let essence = generic.copied().unwrap_or(essence);
    let format = ITEM_FORMATS.iter().find(|format| format.media_type.eq_ignore_ascii_case(essence));
    format.ok_or_else(|| unsupported(format!("Send one of {known}; {essence:?} is not supported here.")))
}
