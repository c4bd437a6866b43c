//! Requests in progress on a connection, and parts of responses that the client has not yet taken.
//!
//! A response is passed to the connection in parts; the next part follows when the connection holds no byte of the previous
//! one. So the framework never holds more than one part of a response: neither over HTTP/1.1, where it copies what it sends,
//! nor over HTTP/2, where it keeps bytes for which the client has granted no credit. A request is in progress until the last
//! part of its response is taken.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use actix_web::body::{BodySize, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{CONTENT_LENGTH, HeaderMap, TRANSFER_ENCODING};
use actix_web::http::{Method, Version};
use actix_web::middleware::Next;
use actix_web::web::Bytes;
use actix_web::{Error, HttpMessage as _};
use futures::task::AtomicWaker;
use pin_project_lite::pin_project;

use super::connections::Connection;

/// Idle time after the response to a request with a chunked body: long enough to read the response.
const CHUNKED_IDLE_MAX: Duration = Duration::from_secs(2);
/// Maximum number of bytes passed to the connection at once. Over HTTP/1.1, the framework copies them behind the response head
/// into a buffer of 8 KiB, which a larger piece would enlarge. A response of at most this size is passed on unchanged.
pub const PIECE_BYTES: usize = 7 * 1024;
/// Maximum number of bytes of a larger response that the connection holds. It gets the next part when it holds none.
const PART_BYTES: usize = 64 * 1024;

/// Counts a request as in progress until the client has taken the last part of the response, or disconnects.
struct RequestGuard(Arc<Connection>);

impl RequestGuard {
    fn on(connection: Arc<Connection>, body: Option<u64>) -> Self {
        let is_chunked = body.is_none();
        connection.turn.begin(body);
        connection.update(|it| {
            it.requests_in_progress = it.requests_in_progress.saturating_add(1);
            if is_chunked {
                it.idle_max = it.idle_max.min(CHUNKED_IDLE_MAX);
            }
        });
        Self(connection)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let now = self.0.world.uptime();
        self.0.update(|it| {
            it.requests_in_progress = it.requests_in_progress.saturating_sub(1);
            it.since = now;
        });
        self.0.turn.end();
    }
}

/// Marks a response on the connection as unread until it is dropped.
struct Unread {
    connection: Arc<Connection>,
    answer: u64,
}

impl Unread {
    fn on(connection: Arc<Connection>) -> Self {
        let mut answer = 0;
        connection.update(|it| {
            answer = it.next_answer;
            it.next_answer = it.next_answer.wrapping_add(1);
        });
        Self { connection, answer }
    }

    /// Records whether the client has a part of the response to take.
    fn mark(&self, is_unread: bool) {
        let since = is_unread.then(|| self.connection.world.uptime());
        self.connection.update(|it| match since {
            Some(since) => drop(it.unread_since.insert(self.answer, since)),
            None => drop(it.unread_since.remove(&self.answer)),
        });
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.mark(false);
    }
}

/// Whether the connection holds a part of a response, and the task to wake when it no longer does.
#[derive(Debug, Default)]
struct Loan {
    is_open: AtomicBool,
    waiting: AtomicWaker,
}

/// A part of a response that the connection holds. Dropping its last byte allows the next part.
struct Lent {
    part: Bytes,
    loan: Arc<Loan>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.part
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.loan.is_open.store(false, Ordering::Release);
        self.loan.waiting.wake();
    }
}

pin_project! {
    /// A body that is passed on in parts, and marks when the client has one to take. It keeps the request in progress.
    struct TrackedBody<B> {
        #[pin]
        body: B,
        // Whether the body may be larger than one piece.
        is_large: bool,
        // Remaining pieces of the part that was handed out.
        lent: Bytes,
        // Bytes that the body produced and that were not yet handed out.
        rest: Bytes,
        loan: Arc<Loan>,
        unread: Option<Unread>,
        _guard: Option<RequestGuard>,
    }
}

impl<B: MessageBody> TrackedBody<B> {
    fn new(body: B, unread: Option<Unread>, guard: Option<RequestGuard>) -> Self {
        let is_large = match body.size() {
            BodySize::None => false,
            BodySize::Sized(bytes) => usize::try_from(bytes).map_or(true, |bytes| bytes > PIECE_BYTES),
            BodySize::Stream => true,
        };
        let (lent, rest) = (Bytes::new(), Bytes::new());
        Self { body, is_large, lent, rest, loan: Arc::default(), unread, _guard: guard }
    }
}

impl<B: MessageBody> MessageBody for TrackedBody<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        let this = self.project();
        if this.lent.is_empty() && *this.is_large {
            this.loan.waiting.register(context.waker());
            if this.loan.is_open.load(Ordering::Acquire) {
                // The client has not taken the part: the response stays marked as unread.
                return Poll::Pending;
            }
        }
        if this.lent.is_empty() && this.rest.is_empty() {
            let polled = this.body.poll_next(context);
            // While the body produces nothing, the client waits for it, so the response is not unread.
            if let Some(unread) = this.unread {
                unread.mark(matches!(polled, Poll::Ready(Some(Ok(_)))));
            }
            match ready!(polled) {
                Some(Ok(part)) if *this.is_large => *this.rest = part,
                other => return Poll::Ready(other),
            }
        } else if let Some(unread) = this.unread {
            unread.mark(true);
        }
        if this.lent.is_empty() && !this.rest.is_empty() {
            let part = this.rest.split_to(this.rest.len().min(PART_BYTES));
            this.loan.is_open.store(true, Ordering::Release);
            *this.lent = Bytes::from_owner(Lent { part, loan: Arc::clone(this.loan) });
        }
        Poll::Ready(Some(Ok(this.lent.split_to(this.lent.len().min(PIECE_BYTES)))))
    }
}

/// Middleware that counts each request as in progress on its connection, and marks the connection as unread while the client
/// has a part of the response to take.
///
/// # Errors
/// Returns the errors of the wrapped service.
pub async fn track_request<B: MessageBody>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<impl MessageBody<Error = B::Error>>, Error> {
    drop_unread_body(&mut request);
    let body = body_length(request.headers());
    let connection = request.conn_data::<Arc<Connection>>().cloned();
    let guard = connection.clone().map(|connection| RequestGuard::on(connection, body));
    let response = next.call(request).await?;
    Ok(response.map_body(|_, body| TrackedBody::new(body, connection.map(Unread::on), guard)))
}

/// Returns the announced length of a request body over HTTP/1.1 (RFC 9112, section 6.3), or `None` for a chunked body. The
/// framework has already refused ambiguous lengths.
fn body_length(headers: &HeaderMap) -> Option<u64> {
    if headers.contains_key(TRANSFER_ENCODING) {
        return None;
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    Some(length.and_then(|length| length.trim().parse().ok()).unwrap_or(0))
}

/// Drops the body of a request whose method defines none (RFC 9110, section 9.3). Over HTTP/2, such a body would stay in memory
/// until the request is answered.
fn drop_unread_body(request: &mut ServiceRequest) {
    let has_none = [Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS].contains(request.method());
    if has_none && request.version() == Version::HTTP_2 {
        drop(request.take_payload());
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::super::connections::UNREAD_MAX;
    use super::*;

    #[test]
    fn an_answer_that_is_not_taken_counts_beside_others_that_are() {
        let connection = Connection::of_test(UNREAD_MAX);
        let later = connection.world.uptime().saturating_add(UNREAD_MAX).saturating_add(UNREAD_MAX);
        let in_progress = RequestGuard::on(Arc::clone(&connection), Some(0));
        let [left, taken] = [(); 2].map(|()| Unread::on(Arc::clone(&connection)));
        assert!(!connection.is_unused(later), "nothing was sent yet");
        left.mark(true);
        taken.mark(true);
        taken.mark(false);
        drop(taken);
        assert!(connection.is_unused(later), "over HTTP/2, the client takes other answers meanwhile");
        left.mark(false);
        assert!(!connection.is_unused(later));
        drop((left, in_progress));
        assert!(connection.is_unused(later), "and then it is idle");
    }

    #[actix_web::test]
    async fn a_large_body_is_given_in_parts_that_were_taken_before() {
        let connection = Connection::of_test(UNREAD_MAX);
        let later = connection.world.uptime().saturating_add(UNREAD_MAX).saturating_add(UNREAD_MAX);
        let bytes: Vec<u8> = (0..200_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let guard = RequestGuard::on(Arc::clone(&connection), Some(0));
        let unread = Unread::on(Arc::clone(&connection));
        let mut body = Box::pin(TrackedBody::new(Bytes::from(bytes.clone()), Some(unread), Some(guard)));
        assert_eq!(body.size(), BodySize::Sized(200_000));
        let (mut taken, mut waiting) = (Vec::new(), Vec::new());
        loop {
            let polled = std::future::poll_fn(|context| body.as_mut().poll_next(context)).now_or_never();
            match polled {
                Some(Some(piece)) => {
                    let piece = piece.unwrap();
                    assert!(piece.len() <= PIECE_BYTES);
                    waiting.push(piece);
                }
                Some(None) => break,
                None => {
                    assert_eq!(
                        waiting.iter().map(Bytes::len).sum::<usize>(),
                        PART_BYTES.min(200_000_usize.saturating_sub(taken.len()))
                    );
                    assert!(connection.is_unused(later), "the client does not take its part");
                    waiting.drain(..).for_each(|piece| taken.extend_from_slice(&piece));
                }
            }
        }
        assert!(waiting.is_empty(), "it ends when its last part is taken");
        assert!(taken == bytes);
    }
}
