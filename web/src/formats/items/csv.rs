//! `text/csv` (RFC 4180) with a header line, whose columns can be in any order. A column `metadata.NAME` is a member of
//! the metadata. An empty cell means that the member is absent. The cells of control totals have columns of their own, which
//! are empty in the records of items.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::Read;
use std::rc::Rc;

use csv::{ByteRecord, ErrorKind, ReaderBuilder};
use postonce_shared::text::digits;
use serde_json::{Map, Value};

use super::csv_grammar::Checked;
use super::{Bounded, CONTROL, ITEM_BYTES_MAX, Items, ItemsError, Parsed, PlainItem, of_input};
use crate::error::{ApiError, Code};
use crate::formats::members::Members;

/// Size of the read buffer in bytes.
const BUFFER_BYTES: usize = 64 * 1024;
/// Prefix of the columns of metadata.
const METADATA: &str = "metadata.";
/// The column of the number of items.
const COUNT: &str = "control.count";
/// Prefix of the columns of the sums.
const SUMS: &str = "control.sums.";

/// The columns of items besides those of metadata.
const COLUMNS: [&str; 7] = ["user_id", "account_id", "message_id", "type", "amount", "currency", "reference"];

/// A CSV document.
pub struct Csv<R> {
    reader: csv::Reader<Bounded<Checked<R>>>,
    allowance: Rc<Cell<usize>>,
    columns: Vec<String>,
    record: ByteRecord,
}

impl<R: Read> Csv<R> {
    /// Reads the header line.
    ///
    /// # Errors
    /// [`ItemsError`] if a column is not known, occurs twice, or cannot be read, and if the document leaves the grammar of CSV.
    pub fn new(input: R) -> Result<Self, ItemsError> {
        let (bounded, allowance) = Bounded::new(Checked::new(input));
        let mut reader =
            ReaderBuilder::new().buffer_capacity(BUFFER_BYTES).has_headers(true).from_reader(bounded);
        let header = reader.headers().map_err(broken)?;
        let columns: Vec<String> = header.iter().map(str::to_owned).collect();
        let mut known = BTreeSet::new();
        for column in &columns {
            let is_known = COLUMNS.contains(&column.as_str()) || column.starts_with(METADATA);
            if !is_known && !is_control(column) {
                if let Some(separator) = other_separator(column) {
                    return Err(ItemsError::Form(format!(
                        "The columns of line 1 are separated by {separator}, expected ,: write CSV with commas."
                    )));
                }
                let allowed = COLUMNS.join(", ");
                return Err(ItemsError::Form(format!(
                    "The column {column:?} is not known; allowed are {allowed}, {METADATA}NAME, {COUNT} and \
                     {SUMS}CURRENCY."
                )));
            }
            if !known.insert(column) {
                return Err(ItemsError::Form(format!("The column {column:?} occurs twice.")));
            }
        }
        Ok(Self { reader, allowance, columns, record: ByteRecord::new() })
    }
}

impl<R: Read> Items for Csv<R> {
    fn next(&mut self) -> Result<Option<Result<Parsed, ApiError>>, ItemsError> {
        // What the buffer contains already is not counted again.
        self.allowance.set(ITEM_BYTES_MAX);
        let error = match self.reader.read_byte_record(&mut self.record) {
            Ok(true) => {
                if let Some(item) = plain(&self.columns, &self.record).and_then(PlainItem::parse) {
                    return Ok(Some(Ok(Parsed::Plain(Box::new(item)))));
                }
                let filled = self.columns.iter().zip(&self.record).filter(|(_, cell)| !cell.is_empty());
                let (totals, of_item): (Vec<_>, Vec<_>) = filled.partition(|(column, _)| is_control(column));
                if !totals.is_empty() && !of_item.is_empty() {
                    let detail = "A record with control totals must not have cells of an item.";
                    return Err(ItemsError::Form(detail.to_owned()));
                }
                return Ok(Some(members(&self.columns, &self.record).map(Parsed::Members)));
            }
            Ok(false) => return Ok(None),
            Err(error) => error,
        };
        if let ErrorKind::UnequalLengths { expected_len, len, .. } = error.kind() {
            let detail = format!("The record has {len} cells instead of {expected_len}.");
            return Ok(Some(Err(ApiError::new(Code::BodyInvalid, detail))));
        }
        Err(broken(error))
    }

    fn sent(&self) -> Vec<u8> {
        let cells: Vec<&[u8]> = self.record.iter().collect();
        serde_json::to_vec(&cells).expect("bytes can be written as JSON")
    }
}

/// Returns the members of a record without metadata.
fn plain<'a>(columns: &[String], record: &'a ByteRecord) -> Option<PlainItem<'a>> {
    let mut item = PlainItem::default();
    for (column, cell) in columns.iter().zip(record).filter(|(_, cell)| !cell.is_empty()) {
        item.set(column, std::str::from_utf8(cell).ok()?)?;
    }
    Some(item)
}

fn members(columns: &[String], record: &ByteRecord) -> Result<Members, ApiError> {
    let mut members = Members::default();
    for (column, cell) in columns.iter().zip(record) {
        let text = std::str::from_utf8(cell)
            .map_err(|_| ApiError::new(Code::BodyInvalid, format!("The cell {column:?} is not UTF-8.")))?;
        if text.is_empty() {
            continue;
        }
        match column.strip_prefix(SUMS) {
            Some(currency) => put_sum(&mut members, currency, text),
            None if column == COUNT => {
                members.put(column, digits::<u64>(text).map_or_else(|| text.into(), Value::from));
            }
            None => members.put(column, text.into()),
        }
    }
    Ok(members)
}

/// Returns the separator of a header whose columns are not separated by commas, as spreadsheets write it in many countries.
fn other_separator(column: &str) -> Option<&'static str> {
    let separators = [(';', ";"), ('\t', "tabs"), ('|', "|")];
    let found = separators.into_iter().find(|(separator, _)| {
        column.split(*separator).filter(|part| COLUMNS.contains(&part.trim().trim_matches('"'))).count() > 1
    });
    found.map(|(_, name)| name)
}

fn is_control(column: &str) -> bool {
    column == COUNT || column.starts_with(SUMS)
}

fn put_sum(members: &mut Members, currency: &str, sum: &str) {
    let totals = members.object(CONTROL).as_object_mut();
    let sums = totals.map(|totals| totals.entry("sums").or_insert_with(|| Value::Object(Map::new())));
    if let Some(sums) = sums.and_then(Value::as_object_mut) {
        sums.insert(currency.to_owned(), sum.into());
    }
}

fn broken(error: csv::Error) -> ItemsError {
    let text = error.to_string();
    if let ErrorKind::Io(source) = error.into_kind() {
        return of_input(source);
    }
    ItemsError::Form(format!("The body is not valid CSV: {text}."))
}
