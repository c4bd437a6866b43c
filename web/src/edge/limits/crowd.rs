//! How many requests are in hand at once. Over HTTP/1.1 each has a connection, and connections are
//! counted; over HTTP/2 one connection could bring any number, each with a body in memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use actix_web::Error;
use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::web::Data;

use crate::error::{ApiError, Code};

/// Asked by machines that watch, at no cost: a crowd does not make the process look dead.
const ALWAYS_ANSWERED: [&str; 2] = ["/livez", "/readyz"];

/// The requests in hand.
#[derive(Debug)]
pub struct Crowd {
    count: AtomicUsize,
    most: usize,
}

/// A request in hand, until it is dropped: also when its client went away.
#[derive(Debug)]
struct Place<'a>(&'a Crowd);

impl Crowd {
    /// Room for that many.
    pub const fn of(most: usize) -> Self {
        Self { count: AtomicUsize::new(0), most }
    }

    fn enter(&self) -> Option<Place<'_>> {
        let place = Place(self);
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        (before < self.most).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Around every request: refuses one that is too many.
///
/// # Errors
/// Those of what is around.
pub async fn bound_crowd<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let crowd = request.app_data::<Data<Crowd>>().cloned();
    let crowd = crowd.filter(|_| !ALWAYS_ANSWERED.contains(&request.path()));
    let place = crowd.as_ref().map(|crowd| crowd.enter());
    if matches!(place, Some(None)) {
        let error = ApiError::new(Code::Overloaded, "Try again in a moment: nothing was done.");
        return Ok(ServiceResponse::from_err(error, request.into_parts().0).map_into_right_body());
    }
    Ok(next.call(request).await?.map_into_left_body())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_it_is_left() {
        let crowd = Crowd::of(2);
        let (first, second) = (crowd.enter(), crowd.enter());
        assert!(first.is_some() && second.is_some());
        assert!(crowd.enter().is_none());
        assert!(crowd.enter().is_none(), "who was refused takes no place");
        drop(first);
        let third = crowd.enter();
        assert!(third.is_some() && crowd.enter().is_none());
    }
}
