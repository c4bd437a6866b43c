//! Pagination of listings: page size, position and cursors.
//!
//! A cursor is opaque to clients. It contains a checksum of its position and its listing, so a modified cursor, or a cursor of
//! another listing, is refused before any store access. A cursor is not secret and grants no permission.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use postonce_shared::ports::ledger::Listing;
use postonce_shared::text::digits;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use utoipa::IntoParams;

use crate::access::shares::PAGE_BYTES_MAX;
use crate::api::arguments::QueryTexts;
use crate::error::ApiError;
use crate::query::Violations;

/// Default page size.
pub const LIMIT_DEFAULT: usize = 100;
/// Maximum page size.
pub const LIMIT_MAX: usize = 1000;
/// Number of large items that are read at a time: dead letters have up to 64 KiB, which are up to six times as many as JSON.
const LARGE_ITEMS_READ: usize = 8;
/// Length of the checksum in a cursor, in bytes.
const CHECK_BYTES: usize = 8;

/// The query of a page of a listing.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageParams {
    /// Maximum number of items.
    #[param(value_type = Option<u16>, minimum = 1, maximum = 1000, default = 100)]
    pub limit: Option<String>,
    /// The `next_cursor` of the previous page.
    #[param(pattern = "^[A-Za-z0-9_-]+$", min_length = 11, max_length = 1024)]
    pub cursor: Option<String>,
}

impl QueryTexts for PageParams {
    type Value = Page;

    fn parse(self, violations: &mut Violations) -> Option<Page> {
        let limits = format!("must be a number from 1 to {LIMIT_MAX}");
        let limit = violations.parse("limit", self.limit, &limits, |text| {
            digits(text).filter(|limit| (1..=LIMIT_MAX).contains(limit))
        });
        Some(Page { limit: limit.unwrap_or(LIMIT_DEFAULT), cursor: self.cursor })
    }
}

/// The page of a listing that a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Maximum number of items.
    pub limit: usize,
    cursor: Option<String>,
}

impl Page {
    /// Returns the position at which the page starts; `None` for the first page.
    ///
    /// # Errors
    /// [`ApiError`] with status 400 when the cursor does not belong to the listing.
    pub fn position(&self, listing: &str) -> Result<Option<String>, ApiError> {
        let decoded =
            self.cursor.as_deref().map(|cursor| decode(listing, cursor).ok_or_else(ApiError::cursor_invalid));
        decoded.transpose()
    }

    /// Like [`Self::position`], for a listing with the last item first: returns the sequence before which the page starts.
    ///
    /// # Errors
    /// Same as [`Self::position`].
    pub fn before(&self, listing: &str) -> Result<Option<u64>, ApiError> {
        let before = self.position(listing)?.map(|sequence| sequence.parse()).transpose();
        before.map_err(|_| ApiError::cursor_invalid())
    }
}

/// Reads a page of a listing whose items can have tens of kilobytes: up to `limit` of them, and no further ones when those have
/// about [`PAGE_BYTES_MAX`]. `read` returns up to as many items as it is asked for, after a position.
///
/// # Errors
/// Those of `read`.
pub async fn page_of_large<T: Serialize>(
    limit: usize,
    mut position: Option<String>,
    read: impl AsyncFn(Option<&str>, usize) -> Result<Listing<T>, ApiError>,
) -> Result<Listing<T>, ApiError> {
    let (mut items, mut bytes) = (Vec::new(), 0_usize);
    loop {
        let left = limit.saturating_sub(items.len());
        let found = read(position.as_deref(), left.min(LARGE_ITEMS_READ)).await?;
        let is_empty = found.items.is_empty();
        for item in found.items {
            let written = serde_json::to_string(&item).map_err(ApiError::internal)?;
            bytes = bytes.saturating_add(written.len());
            items.push(item);
        }
        position = found.next;
        if position.is_none() || is_empty || items.len() >= limit || bytes >= PAGE_BYTES_MAX {
            return Ok(Listing { items, next: position });
        }
    }
}

/// Encodes a position in a listing as a cursor.
pub fn cursor(listing: &str, position: &str) -> String {
    let check = check(listing, position);
    BASE64_URL_SAFE_NO_PAD.encode([check.as_slice(), position.as_bytes()].concat())
}

fn decode(listing: &str, cursor: &str) -> Option<String> {
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let (found, position) = bytes.split_at_checked(CHECK_BYTES)?;
    let position = String::from_utf8(position.to_vec()).ok()?;
    (check(listing, &position) == *found).then_some(position)
}

fn check(listing: &str, position: &str) -> [u8; CHECK_BYTES] {
    let digest: [u8; 32] = Sha256::digest(format!("{listing}\n{position}").as_bytes()).into();
    let mut check = [0; CHECK_BYTES];
    check.copy_from_slice(digest.split_at(CHECK_BYTES).0);
    check
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;
    use crate::api::arguments::QueryParameters as _;

    fn query(text: &str) -> Result<Page, ApiError> {
        PageParams::read(&TestRequest::with_uri(&format!("/?{text}")).to_http_request())
    }

    #[test]
    fn limits_are_validated() {
        let check = |text: &str, expected: Option<usize>| {
            assert_eq!(query(text).ok().map(|query| query.limit), expected, "{text}");
        };
        check("", Some(100));
        check("limit=1", Some(1));
        check("limit=1000&other=thing", Some(1000));
        for wrong in
            ["limit=0", "limit=1001", "limit=-1", "limit=%2B1", "limit=", "limit=many", "limit=1&limit=2"]
        {
            check(wrong, None);
        }
    }

    #[tokio::test]
    async fn a_page_of_large_items_has_as_many_as_fit() {
        let check = async |size: usize, limit: usize, expected: usize| {
            let read = async |after: Option<&str>, count: usize| {
                assert!(count <= LARGE_ITEMS_READ, "{count}");
                let begin = after.map_or(0, |after| after.parse().unwrap());
                let remaining = (begin..40).map(|number: usize| (number, "x".repeat(size)));
                let after = |(number, _): &(usize, String)| number.saturating_add(1).to_string();
                Ok::<_, ApiError>(Listing::first_of(remaining, count, after))
            };
            let page = page_of_large(limit, Some("2".to_owned()), read).await.unwrap();
            let numbers: Vec<usize> = page.items.iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers, (2..40).take(expected).collect::<Vec<_>>(), "{size} {limit}");
            assert_eq!(page.next, (2..40).nth(expected).map(|next| next.to_string()));
        };
        check(10, 1000, 38).await;
        check(10, 20, 20).await;
        check(10, 38, 38).await;
        check(100_000, 1000, 16).await;
        check(1_000_000, 1000, 8).await;
        check(1_000_000, 3, 3).await;
    }

    #[test]
    fn a_cursor_belongs_to_its_listing() {
        let cursor = cursor("accounts of A", "17");
        let position =
            |listing: &str, cursor: &str| query(&format!("cursor={cursor}")).unwrap().position(listing);
        assert_eq!(position("accounts of A", &cursor).unwrap().as_deref(), Some("17"));
        assert!(position("accounts of B", &cursor).is_err());
        assert!(
            position("accounts of A", &cursor.replacen(|c: char| c.is_ascii_lowercase(), "_", 1)).is_err()
        );
        for wrong in ["", "17", "%00", &"A".repeat(5000)] {
            assert!(position("accounts of A", wrong).is_err(), "{wrong}");
        }
        assert_eq!(query("").unwrap().position("any").unwrap(), None);
    }
}
