//! Limit on the memory of large answers: the bytes that the clients of a partner, or of an address without a key,
//! have not received yet. Without it, slow clients could fill the memory of the process. The connection takes an
//! answer in pieces (see `track_request`); the bytes are counted until it has taken the last piece.

use std::pin::Pin;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::ServiceResponse;
use actix_web::http::Method;
use actix_web::web::{Bytes, Data};
use pin_project_lite::pin_project;
use postonce_process::http::PIECE_BYTES;

use crate::access::reader::Reader;
use crate::access::shares::{self, PartnerShares};
use crate::access::slots::SlotGuard;
use crate::api::answer_memory::{PartBytes, SharedBody};

/// Counted bytes of an answer that is produced while it is sent and does not state its memory.
const STREAM_BYTES: usize = 64 * 1024;

pin_project! {
    /// A body that holds the slots for its bytes until it is dropped.
    struct Counted<B> {
        #[pin]
        body: B,
        _slots: SlotGuard<Reader>,
    }
}

impl<B: MessageBody> MessageBody for Counted<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        self.project().body.poll_next(context)
    }
}

/// Limits the bytes of large answers that a reader has not received yet. An answer above the limit is replaced by an
/// error. Small answers are not counted, because a connection holds few of them.
pub fn bound_large_answers(
    response: ServiceResponse<impl MessageBody + 'static>,
) -> ServiceResponse<BoxBody> {
    let shares = response.request().app_data::<Data<PartnerShares>>().cloned();
    let (Some(bytes), Some(shares)) = (held_bytes(&response), shares) else {
        return response.map_into_boxed_body();
    };
    let reader = Reader::of(response.request());
    match shares.capacity(response.request()).unread_bytes.take(&reader, bytes) {
        Ok(slots) => response.map_body(|_, body| BoxBody::new(Counted { body, _slots: slots })),
        Err(refusal) => {
            let (request, response) = response.into_parts();
            drop(response);
            ServiceResponse::from_err(shares::unread(&request, &reader, refusal), request)
                .map_into_boxed_body()
        }
    }
}

/// Returns how many bytes an answer holds until it is received; `None` if it is too small to be counted.
fn held_bytes<B: MessageBody>(response: &ServiceResponse<B>) -> Option<usize> {
    let extensions = response.response().extensions();
    if response.request().method() == Method::HEAD || extensions.contains::<SharedBody>() {
        return None;
    }
    match response.response().body().size() {
        BodySize::None => None,
        BodySize::Sized(bytes) => {
            Some(usize::try_from(bytes).unwrap_or(usize::MAX)).filter(|bytes| *bytes > PIECE_BYTES)
        }
        BodySize::Stream => Some(extensions.get().map_or(STREAM_BYTES, |PartBytes(bytes)| *bytes)),
    }
}

#[cfg(test)]
mod tests {
    use actix_web::HttpResponse;
    use actix_web::test::TestRequest;

    use super::*;

    fn held(request: TestRequest, answer: HttpResponse) -> Option<usize> {
        held_bytes(&ServiceResponse::new(request.to_http_request(), answer))
    }

    #[test]
    fn answers_hold_what_is_not_shared_or_small() {
        let large = || HttpResponse::Ok().body(vec![0; 100_000]);
        assert_eq!(held(TestRequest::get(), large()), Some(100_000));
        assert_eq!(held(TestRequest::default().method(Method::HEAD), large()), None);
        assert_eq!(held(TestRequest::get(), HttpResponse::Ok().body(vec![0; PIECE_BYTES])), None);
        let mut shared = large();
        shared.extensions_mut().insert(SharedBody);
        assert_eq!(held(TestRequest::get(), shared), None);
        let stream =
            || HttpResponse::Ok().streaming(futures::stream::empty::<Result<Bytes, std::io::Error>>());
        assert_eq!(held(TestRequest::get(), stream()), Some(STREAM_BYTES));
        let mut pages = stream();
        pages.extensions_mut().insert(PartBytes(1_000_000));
        assert_eq!(held(TestRequest::get(), pages), Some(1_000_000));
    }
}
