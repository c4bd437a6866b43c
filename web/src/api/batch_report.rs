//! Conversion of batches and their results to response bodies.

use std::time::Duration;

use actix_web::http::header::{self, HeaderMap};
use actix_web::web::Bytes;
use actix_web::{HttpRequest, HttpResponse};
use futures::stream;
use postonce_schemas::json::{
    self as wire, BatchHindrance, BatchItemStatus, BatchResult, BatchSum, RejectReason,
};
use postonce_shared::batches::Batches;
use postonce_shared::batches::items::{InvalidItem, ResultLine};
use postonce_shared::batches::results::Results;
use postonce_shared::domain::batch::{Batch, Hindrance, ItemOutcome, ItemResult, ItemStatus, Phase};
use postonce_shared::domain::money::Currency;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::oversight::prices::{Cost, Prices, operations_per_item};
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::operations::PriceKind;

use crate::access::authentication::Caller;
use crate::api::answer_memory::PartBytes;
use crate::api::arguments::Query;
use crate::api::batch_query::ResultParams;
use crate::api::batch_upload::decimal;
use crate::error::{ApiError, Code};
use crate::formats::spreadsheet;

/// Reason of an item whose id was used before with different content.
const KEY_REUSED: &str = "idempotency_key_reused";
/// Approximate memory of a result line with its item, in bytes.
const LINE_BYTES: usize = 256;
/// Approximate maximum memory of a page of results, in bytes. One page at a time is produced and sent.
const PAGE_BYTES_MAX: usize = 1024 * 1024;

/// Converts a batch, including its cost at these prices.
pub fn batch(batch: &Batch, now: Timestamp, prices: &Prices) -> wire::Batch {
    let totals = batch.phase.totals();
    let count = |status| totals.of(status).count;
    let items = batch.document.items();
    let sums = totals.of(ItemStatus::Posted).sums;
    let sums = sums.iter().filter_map(|(flow, sum)| {
        let currency = Currency::parse(flow.currency).ok()?;
        let posted = decimal(currency, *sum);
        Some(BatchSum { currency: flow.currency.into(), r#type: flow.kind.into(), posted })
    });
    let (items_per_second, estimated_end) = rate(batch, now).unzip();
    let operations = batch.operations.iter().fold(0_u64, |all, (_, count)| all.saturating_add(count));
    let priced = |(category, count): (&str, u64)| Some(prices.of(PriceKind::from_code(category)?, count));
    let cost: Cost = batch.operations.iter().filter_map(priced).sum();
    wire::Batch {
        batch_id: batch.key.batch.to_string(),
        phase: batch.phase.code().into(),
        on_invalid: batch.on_invalid.code().into(),
        items,
        posted: count(ItemStatus::Posted),
        rejected: count(ItemStatus::Rejected),
        refused: count(ItemStatus::Refused),
        replayed: count(ItemStatus::Replayed),
        invalid: batch.document.invalid,
        sums: sums.collect(),
        operations_per_item: operations_per_item(operations, items),
        usd_per_million_items: cost.of_a_million(items).unwrap_or_default().usd(),
        received_at: batch.received_at.to_string(),
        items_per_second,
        estimated_end: estimated_end.map(|at| at.to_string()),
        hindrance: batch.hindrance.map(|Hindrance { reason, at, stop: _ }| BatchHindrance {
            code: reason.code().into(),
            message: reason.message().into(),
            at: at.to_string(),
        }),
        completed_at: match batch.phase {
            Phase::Completed { at, .. } => Some(at.to_string()),
            Phase::Received | Phase::Splitting | Phase::Posting { .. } | Phase::Cancelled { .. } => None,
        },
        cancelled_at: match batch.phase {
            Phase::Cancelled { at } => Some(at.to_string()),
            Phase::Received | Phase::Splitting | Phase::Posting { .. } | Phase::Completed { .. } => None,
        },
    }
}

/// Returns the items per second so far, and the estimated end of the batch at that rate.
fn rate(batch: &Batch, now: Timestamp) -> Option<(u64, Timestamp)> {
    let Phase::Posting { progress, since, .. } = &batch.phase else { return None };
    let done = progress.totals.sum().count;
    let left = batch.document.valid.count.saturating_sub(done);
    let elapsed_ms = u64::try_from(now.since(*since).as_millis()).unwrap_or(u64::MAX).max(1);
    let per_second = done.saturating_mul(1000).checked_div(elapsed_ms)?;
    let left_ms = left.saturating_mul(elapsed_ms).checked_div(done)?;
    Some((per_second, now.after(Duration::from_millis(left_ms))))
}

/// The format and the first line of the results that a client requests.
pub struct WantedResults {
    format: ResultFormat,
    /// Number of the last line that the client has.
    after: u32,
}

impl WantedResults {
    /// Reads the query and the accepted format of a request.
    ///
    /// # Errors
    /// [`ApiError`] that names the parameter, or with status 406.
    pub fn of(request: &HttpRequest, after: Query<ResultParams>) -> Result<Self, ApiError> {
        let format = ResultFormat::of(request.headers())?;
        Ok(Self { format, after: after.value()? })
    }

    /// Streams the results of a batch, page by page, while the rights of the caller are valid.
    ///
    /// # Errors
    /// [`ApiError`] with status 409 while the batch is not completed.
    pub async fn answer<P: 'static>(
        self,
        batches: &Batches,
        batch: &Batch,
        caller: Caller<P>,
    ) -> Result<HttpResponse, ApiError> {
        let Self { format, after } = self;
        let Some(results) = batches.results(batch, after).await? else {
            let detail =
                format!("The batch is {}; its results exist once it is completed.", batch.phase.code());
            return Err(ApiError::new(Code::BatchNotCompleted, detail));
        };
        let head = if after == 0 { format.head() } else { Bytes::new() };
        let pages =
            stream::unfold((Some(head), results, caller), move |(head, results, mut caller)| async move {
                let (piece, (head, results)) = next_piece(format, head, results).await?;
                // A client can receive slowly, and its rights can end before it has received everything.
                let piece = match caller.still_permitted().await {
                    Ok(()) => piece,
                    Err(ended) => Err(std::io::Error::other(ended.to_string())),
                };
                Some((piece, (head, results, caller)))
            });
        let mut response = HttpResponse::Ok();
        let bytes = usize::try_from(batch.document.items()).unwrap_or(usize::MAX).saturating_mul(LINE_BYTES);
        response.extensions_mut().insert(PartBytes(bytes.min(PAGE_BYTES_MAX)));
        Ok(response
            .insert_header((header::VARY, "Accept"))
            .content_type(format.media_type())
            .streaming(pages))
    }
}

type Piece = Result<Bytes, std::io::Error>;

async fn next_piece(
    format: ResultFormat,
    head: Option<Bytes>,
    mut results: Results,
) -> Option<(Piece, (Option<Bytes>, Results))> {
    if let Some(head) = head.filter(|head| !head.is_empty()) {
        return Some((Ok(head), (None, results)));
    }
    let piece = match results.next().await {
        Ok(Some(lines)) => Ok(format.write(&lines)),
        Ok(None) => return None,
        // The response ends without its last chunk. The client detects this, and can continue with `after`.
        Err(fault) => {
            tracing::warn!("The results of a batch cannot be read: {}", chain(&fault));
            Err(std::io::Error::other("the store is not available"))
        }
    };
    Some((piece, (None, results)))
}

/// Format of batch results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResultFormat {
    /// `application/x-ndjson`.
    NdJson,
    /// `text/csv`.
    Csv,
}

impl ResultFormat {
    /// Selects the accepted format with the highest weight; NDJSON if all are accepted.
    ///
    /// # Errors
    /// [`ApiError`] with status 406.
    pub fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        let lines = headers.get_all(header::ACCEPT).filter_map(|value| value.to_str().ok());
        let ranges = lines.flat_map(|line| line.split(',')).map(str::trim);
        let accepted: Vec<&str> = ranges.filter(|range| !range.is_empty()).collect();
        let weight = |format: Self| crate::api::negotiate::weight(&accepted, format.essence());
        let best = if weight(Self::Csv) > weight(Self::NdJson) { Self::Csv } else { Self::NdJson };
        if accepted.is_empty() || weight(best) > 0 {
            return Ok(best);
        }
        Err(ApiError::new(Code::NotAcceptable, "Accept application/x-ndjson or text/csv."))
    }

    const fn essence(self) -> &'static str {
        match self {
            Self::NdJson => "application/x-ndjson",
            Self::Csv => "text/csv",
        }
    }

    /// Returns the media type of the response.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::NdJson => "application/x-ndjson",
            Self::Csv => "text/csv; charset=utf-8; header=present",
        }
    }

    /// Returns the header line of the format, which is empty for NDJSON.
    pub fn head(self) -> Bytes {
        match self {
            Self::NdJson => Bytes::new(),
            Self::Csv => Bytes::from(format!("{}\r\n", COLUMNS.join(","))),
        }
    }

    /// Writes result lines.
    pub fn write(self, lines: &[ResultLine]) -> Bytes {
        let results = lines.iter().map(result);
        match self {
            Self::NdJson => {
                let mut text = Vec::new();
                for result in results {
                    serde_json::to_writer(&mut text, &result).expect("a result can be written as JSON");
                    text.push(b'\n');
                }
                text.into()
            }
            Self::Csv => {
                let mut writer =
                    csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
                for result in results {
                    writer.write_record(cells(&result)).expect("a record can be written to memory");
                }
                writer.into_inner().expect("memory needs no flush").into()
            }
        }
    }
}

/// Names of the columns of results in CSV.
pub const COLUMNS: [&str; 6] = ["line", "message_id", "status", "order_number", "balance_after", "reason"];

/// Returns the cells of a result in CSV.
pub fn cells(result: &BatchResult) -> [String; 6] {
    let BatchResult { line, message_id, status, order_number, balance_after, reason } = result;
    let cells = [
        &line.to_string(),
        message_id.as_deref().unwrap_or_default(),
        status.code(),
        order_number.as_deref().unwrap_or_default(),
        balance_after.as_deref().unwrap_or_default(),
        reason.as_ref().map(RejectReason::code).unwrap_or_default(),
    ];
    cells.map(|cell| spreadsheet::cell(cell).into_owned())
}

fn result(line: &ResultLine) -> BatchResult {
    match line {
        ResultLine::Item(ItemResult { line, message, status, outcome }) => {
            let (order_number, balance_after, reason) = match outcome {
                ItemOutcome::Posted { order_number, balance_after } => {
                    (Some(order_number.to_string()), Some(balance_after.to_string()), None)
                }
                ItemOutcome::Rejected(reason) => (None, None, Some(reason.code().into())),
                ItemOutcome::KeyReused => (None, None, Some(KEY_REUSED.into())),
            };
            BatchResult {
                line: *line,
                message_id: Some(message.to_string()),
                status: status.code().into(),
                order_number,
                balance_after,
                reason,
            }
        }
        ResultLine::Invalid(InvalidItem { line, message, reason }) => BatchResult {
            line: *line,
            message_id: message.map(|id| id.to_string()),
            status: BatchItemStatus::Invalid,
            order_number: None,
            balance_after: None,
            reason: Some(reason.as_str().into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_range_accepts_nothing_and_refuses_nothing() {
        let accepted = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, header::HeaderValue::from_static(value));
            ResultFormat::of(&headers).ok()
        };
        assert_eq!(accepted(""), Some(ResultFormat::NdJson));
        assert_eq!(accepted(" , "), Some(ResultFormat::NdJson));
        assert_eq!(accepted(", text/csv,"), Some(ResultFormat::Csv));
        assert_eq!(accepted("text/html,"), None);
    }

    #[test]
    fn a_reason_in_csv_is_no_formula() {
        let reason = "=HYPERLINK(\"http://x\") is not known".to_owned();
        let lines = [ResultLine::Invalid(InvalidItem { line: 7, message: None, reason: reason.clone() })];
        let csv = ResultFormat::Csv.write(&lines);
        assert_eq!(csv, "7,,invalid,,,\"'=HYPERLINK(\"\"http://x\"\") is not known\"\r\n");
        let json: serde_json::Value = serde_json::from_slice(&ResultFormat::NdJson.write(&lines)).unwrap();
        assert_eq!(json["reason"], reason);
    }
}
