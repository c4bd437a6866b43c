//! The body of an upload: from the connection to the thread that reads it.

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

/// Largest size of a document after decompression, in bytes.
pub const EXPANDED_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Bytes that must arrive within each body timeout.
const PROGRESS_BYTES_MIN: usize = 64 * 1024;
/// Largest number of bytes that are read, and not used, after an error, so that the client reads the response.
const REST_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Reads the body piece by piece, on a thread that may block.
pub struct ChannelReader {
    input: mpsc::Receiver<Bytes>,
    piece: Bytes,
    pace: Rc<Pace>,
}

impl ChannelReader {
    /// Creates the reader of the pieces.
    pub(super) const fn new(input: mpsc::Receiver<Bytes>, pace: Rc<Pace>) -> Self {
        Self { input, piece: Bytes::new(), pace }
    }

    /// Returns the next piece, or none at the end.
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

/// Sends the body to its reader, and compares its digest at the end. To the reader, an interrupted body looks like one that
/// ends early; the error is returned here.
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
    // What arrived in the current interval, and how long this process waited for it.
    let (mut size, mut waited) = (0_usize, Duration::ZERO);
    let slow = || {
        let detail = format!("A batch must arrive with at least {PROGRESS_BYTES_MIN} bytes in {timeout:?}.");
        ApiError::new(Code::RequestTimeout, detail)
    };
    loop {
        // The system clock and not the `World`, because this limits a client connection and no business time.
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
        // The reader has an error of its own.
        return Ok(());
    }
    digest.check(request)
}

/// Counts the bytes after decompression.
pub struct Expanded<R> {
    input: R,
    left: u64,
    pace: Rc<Pace>,
}

/// The document is larger than [`EXPANDED_BYTES_MAX`].
#[derive(Debug, thiserror::Error)]
#[error("the document is too large")]
struct TooLarge;

/// Returns whether an error means that the document is too large.
pub fn is_too_large(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|source| source.is::<TooLarge>())
}

impl<R> Expanded<R> {
    /// Starts before the first byte.
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
