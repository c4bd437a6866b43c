//! The document of a batch: a JSON object on each line. It is never in memory as a whole.

use std::borrow::Cow;
use std::collections::HashSet;
use std::pin::{Pin, pin};

use actix_web::web::Payload;
use futures::StreamExt as _;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio_postgres::Client;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::peers::postgres::answer::Refusal;
use crate::peers::postgres::fault::Fault;
use crate::peers::postgres::request::{Direction, check_reference};

/// Longest line in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// The table of the items, which belongs to the connection. `repeated` marks an item whose message id an earlier line
/// has, of this account or of another.
const EMPTY: &str = "
    CREATE TEMPORARY TABLE IF NOT EXISTS items (
        line integer NOT NULL,
        user_id uuid NOT NULL,
        account_id uuid NOT NULL,
        message_id uuid NOT NULL,
        amount bigint NOT NULL,
        currency text NOT NULL,
        reference text,
        repeated boolean NOT NULL
    );
    TRUNCATE items";
const COPY: &str = "COPY items FROM STDIN BINARY";
const COLUMNS: [Type; 8] =
    [Type::INT4, Type::UUID, Type::UUID, Type::UUID, Type::INT8, Type::TEXT, Type::TEXT, Type::BOOL];

/// A line. Unknown members are refused, because they cannot be stored.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    user_id: Uuid,
    account_id: Uuid,
    message_id: Uuid,
    r#type: Direction,
    #[serde(borrow)]
    amount: Cow<'a, str>,
    #[serde(borrow)]
    currency: Cow<'a, str>,
    #[serde(borrow)]
    reference: Option<Cow<'a, str>>,
}

/// A received document, whose valid items are in the table `items`.
#[derive(Debug)]
pub struct Document {
    /// SHA-256 of the document.
    pub content: Vec<u8>,
    /// The number of lines that are not empty.
    pub items: i64,
    /// The number of lines that are no items.
    pub invalid: i64,
}

/// Receives a document, over a connection that nothing else uses.
pub async fn receive(client: &Client, mut body: Payload) -> Result<Document, Refusal> {
    client.batch_execute(EMPTY).await.map_err(Fault::from)?;
    let sink = client.copy_in(COPY).await.map_err(Fault::from)?;
    let mut copy = pin!(BinaryCopyInWriter::new(sink, &COLUMNS));
    let mut lines = Lines::default();
    let mut content = Sha256::new();
    // The beginning of a line whose end has not arrived.
    let mut rest = Vec::new();
    while let Some(chunk) = body.next().await {
        let chunk = chunk.map_err(Refusal::BodyBroken)?;
        content.update(&chunk);
        for piece in chunk.split_inclusive(|byte| *byte == b'\n') {
            let is_whole = piece.ends_with(b"\n");
            if is_whole && rest.is_empty() {
                lines.add(piece, copy.as_mut()).await?;
                continue;
            }
            rest.extend_from_slice(piece);
            if rest.len() > LINE_BYTES_MAX {
                return Err(Refusal::LineTooLong);
            }
            if is_whole {
                lines.add(&rest, copy.as_mut()).await?;
                rest.clear();
            }
        }
    }
    lines.add(&rest, copy.as_mut()).await?;
    copy.finish().await.map_err(Fault::from)?;
    client.batch_execute("ANALYZE items").await.map_err(Fault::from)?;
    let Lines { number, invalid, .. } = lines;
    Ok(Document { content: content.finalize().to_vec(), items: number.into(), invalid })
}

/// Empties the table of the items.
pub async fn discard(client: &Client) -> Result<(), Fault> {
    Ok(client.batch_execute("TRUNCATE items").await?)
}

/// The lines so far.
#[derive(Debug, Default)]
struct Lines {
    number: i32,
    invalid: i64,
    seen: HashSet<Uuid>,
}

impl Lines {
    /// Adds a line. Empty lines do not count.
    async fn add(&mut self, text: &[u8], copy: Pin<&mut BinaryCopyInWriter>) -> Result<(), Refusal> {
        if text.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        self.number = self.number.saturating_add(1);
        let Some((line, amount)) = item(text) else {
            self.invalid = self.invalid.saturating_add(1);
            return Ok(());
        };
        let Line { user_id, account_id, message_id, currency, reference, .. } = line;
        let repeated = !self.seen.insert(message_id);
        copy.write(&[
            &self.number,
            &user_id,
            &account_id,
            &message_id,
            &amount,
            &currency,
            &reference,
            &repeated,
        ])
        .await
        .map_err(Fault::from)?;
        Ok(())
    }
}

/// Parses a line, and its amount with its sign.
fn item(text: &[u8]) -> Option<(Line<'_>, i64)> {
    let line: Line<'_> = serde_json::from_slice(text).ok()?;
    let amount = line.r#type.amount(&line.amount).ok()?;
    check_reference(line.reference.as_deref()).ok()?;
    // A text with a NUL cannot be stored; no currency has one.
    (line.currency.len() == 3 && line.currency.is_ascii() && !line.currency.contains('\0'))
        .then_some((line, amount))
}
