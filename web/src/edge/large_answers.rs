//! Large answers: sent in pieces as fast as the client receives them, within a number of bytes that its partner has not yet
//! received. Otherwise a client that reads slowly, or not at all, could fill the memory of the process.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::ServiceResponse;
use actix_web::web::{Bytes, Data};
use actix_web::{HttpMessage as _, HttpRequest};
use postonce_shared::domain::partner::Partner;

use crate::access::shares::{self, PartnerShares};
use crate::access::slots::{NoSlot, SlotGuard};
use crate::error::ApiError;

/// Size up to which an answer counts as small.
const SMALL_BYTES_MAX: u64 = 64 * 1024;
/// Size of a piece.
const PIECE_BYTES: usize = 32 * 1024;

/// A body in memory, with the slots for its bytes.
struct Pieces {
    rest: Bytes,
    _slots: SlotGuard,
}

impl MessageBody for Pieces {
    type Error = std::convert::Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(u64::try_from(self.rest.len()).unwrap_or(u64::MAX))
    }

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let rest = &mut self.get_mut().rest;
        if rest.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(Ok(rest.split_to(rest.len().min(PIECE_BYTES)))))
    }
}

/// Bounds the bytes of large answers which their partner has not yet received: a large response is sent in pieces, or replaced by
/// an error. Answers that are produced while they are sent, and those to callers without a partner, are not changed.
pub fn bound_large_answers(
    response: ServiceResponse<impl MessageBody + 'static>,
) -> ServiceResponse<BoxBody> {
    let is_small = match response.response().body().size() {
        BodySize::Sized(bytes) => bytes <= SMALL_BYTES_MAX,
        BodySize::None | BodySize::Stream => true,
    };
    let partner = response.request().extensions().get::<Arc<Partner>>().cloned();
    let shares = response.request().app_data::<Data<PartnerShares>>().cloned();
    let (false, Some(partner), Some(shares)) = (is_small, partner, shares) else {
        return response.map_into_boxed_body();
    };
    let (request, response) = response.into_parts();
    let (head, body) = response.into_parts();
    let body = match body.try_into_bytes() {
        Ok(bytes) => bytes,
        Err(body) => return ServiceResponse::new(request, head.set_body(body).map_into_boxed_body()),
    };
    match shares.unread_bytes.take(&partner.id, body.len()) {
        Ok(slots) => {
            let pieces = Pieces { rest: body, _slots: slots };
            ServiceResponse::new(request, head.set_body(pieces).map_into_boxed_body())
        }
        Err(refusal) => {
            drop(body);
            ServiceResponse::from_err(unread(&request, &partner, refusal), request).map_into_boxed_body()
        }
    }
}

fn unread(request: &HttpRequest, partner: &Partner, refusal: NoSlot) -> ApiError {
    let of_partner = |bytes_max| {
        format!(
            "Partner {} may have {bytes_max} bytes of large answers that its clients have not yet received. Read \
             the answers, or ask for smaller pages.",
            partner.id
        )
    };
    shares::refused(
        request,
        refusal,
        of_partner,
        "Too many large answers are being sent. Ask for a smaller page.",
    )
}

#[cfg(test)]
mod tests {
    use postonce_shared::domain::ids::PartnerId;

    use super::*;
    use crate::access::slots::Slots;

    #[actix_web::test]
    async fn a_large_body_is_sent_in_pieces_and_its_bytes_are_free_when_it_is_dropped() {
        let shop = PartnerId::parse("shop").unwrap();
        let slots = Slots::new(100_000, 100_000);
        let bytes: Vec<u8> = (0..100_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let rest = Bytes::from(bytes.clone());
        let mut pieces = Box::pin(Pieces { rest, _slots: slots.take(&shop, 100_000).unwrap() });
        assert_eq!(pieces.size(), BodySize::Sized(100_000));
        let mut received = Vec::new();
        while let Some(piece) = std::future::poll_fn(|context| pieces.as_mut().poll_next(context)).await {
            let piece = piece.unwrap();
            assert!(piece.len() <= PIECE_BYTES);
            received.extend_from_slice(&piece);
        }
        assert!(received == bytes);
        assert!(slots.take(&shop, 1).is_err(), "the last piece may not be received yet");
        drop(pieces);
        drop(slots.take(&shop, 100_000).unwrap());
    }
}
