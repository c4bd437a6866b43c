//! The results of a batch: pages of lines in the order of the document.

use serde::{Deserialize, Serialize};

use super::blobs::Blob;
use super::items::{self, ItemError, ResultLine, Stored};
use super::{BatchFault, Batches, load};
use crate::domain::batch::{Batch, Digest, Phase};

/// Size at which a page is complete, in bytes before compression.
const PAGE_BYTES: usize = 256 * 1024;

/// The entry of a page in the list of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageEntry {
    /// The digest of the body.
    pub digest: [u8; 32],
    /// The line number of the last item on the page.
    pub last: u32,
}

impl Stored for PageEntry {
    fn encode_to(&self, raw: &mut Vec<u8>) {
        items::push(self, raw);
    }

    fn decode_from(raw: &mut &[u8]) -> Result<Self, ItemError> {
        items::take(raw)
    }
}

/// A page to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The encoded lines, before compression.
    pub raw: Vec<u8>,
    /// The line number of the last item.
    pub last: u32,
}

/// Divides result lines into pages.
#[derive(Debug, Default)]
pub struct PageWriter {
    raw: Vec<u8>,
    last: u32,
}

impl PageWriter {
    /// Adds the next line. Returns the page that it completes, if any.
    pub fn add(&mut self, line: &ResultLine) -> Option<Page> {
        line.encode_to(&mut self.raw);
        self.last = line.line();
        (self.raw.len() >= PAGE_BYTES).then(|| Page { raw: std::mem::take(&mut self.raw), last: self.last })
    }

    /// Returns the last page, if there is one.
    pub fn finish(self) -> Option<Page> {
        let Self { raw, last } = self;
        (!raw.is_empty()).then_some(Page { raw, last })
    }
}

/// The results of a completed batch, read page by page.
pub struct Results {
    batches: Batches,
    batch: Batch,
    pages: std::vec::IntoIter<(u32, PageEntry)>,
    after: u32,
}

impl Batches {
    /// Returns the results after a line, if the batch is completed.
    ///
    /// # Errors
    /// [`BatchFault`]
    pub async fn results(&self, batch: &Batch, after: u32) -> Result<Option<Results>, BatchFault> {
        let Phase::Completed { results, .. } = &batch.phase else { return Ok(None) };
        let pages: Vec<PageEntry> = load(&self.blobs(batch), Blob::Pages, *results).await?;
        let pages: Vec<_> = (0..).zip(pages).filter(|(_, page)| page.last > after).collect();
        Ok(Some(Results { batches: self.clone(), batch: batch.clone(), pages: pages.into_iter(), after }))
    }
}

impl Results {
    /// Returns the lines of the next page; `None` at the end.
    ///
    /// # Errors
    /// [`BatchFault`]
    pub async fn next(&mut self) -> Result<Option<Vec<ResultLine>>, BatchFault> {
        let Some((number, page)) = self.pages.next() else { return Ok(None) };
        let blobs = self.batches.blobs(&self.batch);
        let mut lines: Vec<ResultLine> = load(&blobs, Blob::Page(number), Digest(page.digest)).await?;
        lines.retain(|line| line.line() > self.after);
        Ok(Some(lines))
    }
}
