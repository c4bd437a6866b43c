//! Output of commands: tables, JSON, and the exit code of an incomplete act.

use std::io::Write;

use anyhow::Context as _;
use serde::Serialize;

/// Exit code of an act that was carried out only in part. The output shows what is missing.
pub const INCOMPLETE: u8 = 5;

/// Help text about the exit codes of acts.
pub const EXIT_CODES: &str = "Exit codes:
  0  done
  1  nothing was done, or the outcome is unknown
  2  wrong usage
  5  done in part; the output shows what is missing";

/// Writes a JSON document, indented.
///
/// # Errors
/// When the value cannot be serialized or the output fails.
pub fn json(value: &impl Serialize, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(value).context("the result cannot be written as JSON")?;
    Ok(writeln!(out, "{text}")?)
}

/// Writes a head and rows as aligned columns, without white space at the ends of lines.
///
/// # Errors
/// When the output fails.
pub fn table<const N: usize>(
    head: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let rows: Vec<_> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let mut widths = [0; N];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in rows {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut out = Vec::new();
        table(["name", "depth"], [["work-10", "7"].map(str::to_owned)].into_iter(), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "name     depth\nwork-10  7\n");
    }
}
