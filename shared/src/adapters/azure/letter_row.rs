//! The row of a dead letter.

use serde::{Deserialize, Serialize};

use super::invalid_property::InvalidProperty;
use super::parts;
use super::rows::{corrupt, number, parse, properties, time};
use super::table::{Found, Properties};
use crate::ports::dead_letters::{DeadLetter, Resolution, ResolutionKind};
use crate::ports::fault::{Cause, StoreFault};
use crate::ports::queue::QueueName;

/// Properties of a letter other than its body.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LetterRow {
    queue: String,
    reason: String,
    dequeue_count: String,
    inserted_at: String,
    dead_at: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct QueueRow {
    queue: String,
}

/// Properties that resolving a letter adds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct ResolutionRow {
    resolution: String,
    resolved_by: String,
    resolved_at: String,
}

impl ResolutionRow {
    pub(super) fn of(resolution: &Resolution) -> Self {
        let Resolution { kind, by, at } = resolution;
        Self {
            resolution: kind.code().to_owned(),
            resolved_by: by.clone(),
            resolved_at: at.unix_ms().to_string(),
        }
    }

    fn to_resolution(&self) -> Result<Resolution, InvalidProperty> {
        Ok(Resolution {
            kind: ResolutionKind::from_code(&self.resolution).ok_or(InvalidProperty("Resolution"))?,
            by: self.resolved_by.clone(),
            at: time(&self.resolved_at, "ResolvedAt")?,
        })
    }
}

/// Encodes a letter as the properties of its row.
pub(super) fn write(letter: &DeadLetter) -> Properties {
    let DeadLetter { id: _, queue, reason, body, dequeue_count, inserted_at, dead_at, resolution } = letter;
    let mut row = properties(&LetterRow {
        queue: queue.as_str().to_owned(),
        reason: reason.clone(),
        dequeue_count: dequeue_count.to_string(),
        inserted_at: inserted_at.unix_ms().to_string(),
        dead_at: dead_at.unix_ms().to_string(),
    });
    if let Some(resolution) = resolution {
        row.extend(properties(&ResolutionRow::of(resolution)));
    }
    row.extend(parts::write(body));
    row
}

/// Decodes a letter. `id` is the row key without its prefix.
pub(super) fn read(found: &Found, id: &str, doing: &'static str) -> Result<DeadLetter, StoreFault> {
    let row: LetterRow = parse(found, doing)?;
    let resolved = found.properties.contains_key("Resolution");
    let resolution: Option<ResolutionRow> = resolved.then(|| parse(found, doing)).transpose()?;
    assemble(found, id, row, resolution).map_err(|cause| corrupt(found, doing, cause))
}

fn assemble(
    found: &Found,
    id: &str,
    row: LetterRow,
    resolution: Option<ResolutionRow>,
) -> Result<DeadLetter, Cause> {
    let LetterRow { queue, reason, dequeue_count, inserted_at, dead_at } = row;
    Ok(DeadLetter {
        id: id.to_owned(),
        queue: queue_name(&queue)?,
        reason,
        body: parts::read(&found.properties)?,
        dequeue_count: number(&dequeue_count, "DequeueCount")?,
        inserted_at: time(&inserted_at, "InsertedAt")?,
        dead_at: time(&dead_at, "DeadAt")?,
        resolution: resolution.map(|resolution| resolution.to_resolution()).transpose()?,
    })
}

/// Returns the queue of a letter from a row of which only this property was read.
pub(super) fn queue(found: &Found, doing: &'static str) -> Result<QueueName, StoreFault> {
    let row: QueueRow = parse(found, doing)?;
    queue_name(&row.queue).map_err(|invalid| corrupt(found, doing, invalid))
}

fn queue_name(text: &str) -> Result<QueueName, InvalidProperty> {
    QueueName::of_stored(text).ok_or(InvalidProperty("Queue"))
}
