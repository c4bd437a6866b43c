//! Documents that are the same for all requests, with an `ETag`, and compressed for clients that accept it.

use std::io::Write as _;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, AcceptEncoding, Encoding, Header as _};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

use crate::api::answer_memory::SharedBody;
use crate::api::conditions::EntityTags;

/// A document, plain and compressed.
pub struct StaticDocument {
    content_type: String,
    plain: Bytes,
    gzip: Bytes,
    /// Entity tag, weak because both forms share it.
    tag: String,
}

impl StaticDocument {
    /// Creates a document, and compresses it.
    pub fn new(content_type: impl Into<String>, plain: impl Into<Vec<u8>>) -> Self {
        let plain = Bytes::from(plain.into());
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&plain).expect("writing to memory never fails");
        let gzip = Bytes::from(encoder.finish().expect("writing to memory never fails"));
        let hash: [u8; 32] = Sha256::digest(&plain).into();
        let tag = format!("\"{}\"", hex::encode(hash.split_at(16).0));
        Self { content_type: content_type.into(), plain, gzip, tag }
    }

    /// Builds the response to a request, which is 304 if the client has this document. Clients may cache the document, but must
    /// revalidate it.
    pub fn respond(&self, request: &HttpRequest, mut response: HttpResponseBuilder) -> HttpResponse {
        response
            .insert_header((header::ETAG, format!("W/{}", self.tag)))
            .insert_header((header::CACHE_CONTROL, "no-cache"))
            .insert_header((header::VARY, "Accept-Encoding"));
        if EntityTags::of(request.headers(), "if-none-match")
            .is_some_and(|known| known.list_weakly(&self.tag))
        {
            return response.status(StatusCode::NOT_MODIFIED).finish();
        }
        response.content_type(self.content_type.as_str());
        response.extensions_mut().insert(SharedBody);
        if accepts_gzip(request) {
            response.insert_header((header::CONTENT_ENCODING, "gzip"));
            return response.body(self.gzip.clone());
        }
        response.body(self.plain.clone())
    }
}

fn accepts_gzip(request: &HttpRequest) -> bool {
    let is_sent = request.headers().contains_key(header::ACCEPT_ENCODING);
    let accepted = AcceptEncoding::parse(request).ok().filter(|_| is_sent);
    let supported = [Encoding::gzip(), Encoding::identity()];
    accepted.and_then(|accepted| accepted.negotiate(supported.iter())) == Some(Encoding::gzip())
}
