//! The body of an upload, passed from the connection to the thread that parses it.

use std::io::{self, Read};
use std::rc::Rc;
use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::web::{Bytes, Payload};
use futures::StreamExt as _;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use super::reading::Pace;
use crate::access::signatures::digest::BodyDigest;
use crate::error::{ApiError, Code};

/// Maximum size of a document after decompression, in bytes.
pub const EXPANDED_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Number of bytes that must arrive within each body timeout.
const PROGRESS_BYTES_MIN: usize = 64 * 1024;
/// Maximum number of bytes to read and discard after an error, so that the client can read the response.
const REST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Blocking reader of the pieces of a body, for a thread that may block.
pub struct ChannelReader {
    input: mpsc::Receiver<Bytes>,
    piece: Bytes,
    pace: Rc<Pace>,
}

impl ChannelReader {
    /// Creates a reader of the pieces from a channel.
    pub(super) const fn new(input: mpsc::Receiver<Bytes>, pace: Rc<Pace>) -> Self {
        Self { input, piece: Bytes::new(), pace }
    }

    /// Returns the next piece, or `None` at the end.
    fn next(&mut self) -> Option<Bytes> {
        match self.input.try_recv() {
            Ok(piece) => Some(piece),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                self.pace.pause();
                self.input.blocking_recv()
            }
        }
    }
}

impl Read for ChannelReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            let next = self.next();
            self.pace.received(next.as_ref().map_or(0, Bytes::len)).map_err(io::Error::other)?;
            match next {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let size = buffer.len().min(self.piece.len());
        let piece = self.piece.split_to(size);
        if let Some(target) = buffer.get_mut(..size) {
            target.copy_from_slice(&piece);
        }
        Ok(size)
    }
}

/// Sends the body to its reader, and verifies its digest at the end. For the reader, an interrupted body just ends; the error
/// is returned here.
///
/// # Errors
/// [`ApiError`] with status 400, 401 or 408.
pub async fn feed(
    request: &HttpRequest,
    mut payload: Payload,
    pieces: mpsc::Sender<Bytes>,
    timeout: Duration,
) -> Result<(), ApiError> {
    let mut digest = BodyDigest::of(request);
    let (mut pieces, mut rest) = (Some(pieces), 0_usize);
    // Bytes received in the current interval, and the time that this process waited for them.
    let (mut size, mut waited) = (0_usize, Duration::ZERO);
    let slow = || {
        let detail = format!("A batch must arrive with at least {PROGRESS_BYTES_MIN} bytes in {timeout:?}.");
        ApiError::new(Code::RequestTimeout, detail)
    };
    loop {
        // Uses the system clock and not the `World`, because this limits a client connection.
        let started = tokio::time::Instant::now();
        let piece = tokio::time::timeout(timeout.saturating_sub(waited), payload.next()).await;
        waited = waited.saturating_add(started.elapsed());
        let Some(piece) = piece.map_err(|_| slow())? else { break };
        let piece = piece
            .map_err(|error| ApiError::new(Code::BodyInvalid, format!("The body is incomplete: {error}.")))?;
        size = size.saturating_add(piece.len());
        rest = rest.saturating_add(if pieces.is_none() { piece.len() } else { 0 });
        digest.update(&piece);
        if size >= PROGRESS_BYTES_MIN {
            (size, waited) = (0, Duration::ZERO);
        }
        if let Some(reader) = &pieces
            && reader.send(piece).await.is_err()
        {
            pieces = None;
        }
        if rest > REST_BYTES_MAX {
            break;
        }
    }
    if pieces.is_none() {
        // The reader has stopped with an error of its own.
        return Ok(());
    }
    digest.check(request)
}

/// A reader that limits the size after decompression.
pub struct Expanded<R> {
    input: R,
    left: u64,
    pace: Rc<Pace>,
}

/// Error of a document larger than [`EXPANDED_BYTES_MAX`].
#[derive(Debug, thiserror::Error)]
#[error("the document is too large")]
struct TooLarge;

/// Returns whether an error means that the document is too large.
pub fn is_too_large(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|source| source.is::<TooLarge>())
}

impl<R> Expanded<R> {
    /// Creates a reader that allows [`EXPANDED_BYTES_MAX`] bytes.
    pub(super) const fn new(input: R, pace: Rc<Pace>) -> Self {
        Self { input, left: EXPANDED_BYTES_MAX, pace }
    }
}

impl<R: Read> Read for Expanded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.input.read(buffer)?;
        let left = self.left.checked_sub(u64::try_from(size).unwrap_or(u64::MAX));
        self.left = left.ok_or_else(|| io::Error::other(TooLarge))?;
        self.pace.expanded(size).map_err(io::Error::other)?;
        Ok(size)
    }
}
