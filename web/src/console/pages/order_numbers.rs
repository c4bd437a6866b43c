//! Page of the register of order numbers.

use actix_web::HttpResponse;
use maud::{Markup, html};
use postonce_schemas::json::{OrderNumberRange, OrderNumbers};
use postonce_shared::domain::ids::OrderNumber;

use crate::console::html::components::{Table, card, empty, id, tile, tiles, time};
use crate::console::html::format;
use crate::console::html::pictures::{RangeBar, ranges};
use crate::console::page_error::PageError;
use crate::console::visitor::Visitor;

/// Shows the register.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn show(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let register: OrderNumbers = visitor.get("/v1/admin/order-numbers").await?;
    Ok(visitor.page("Order numbers", body(&register)))
}

fn body(register: &OrderNumbers) -> Markup {
    let unit = Some("numbers");
    let figure = |label, number: u64, note| tile(label, &format::count(number), unit, Some(note));
    let in_ranges = register.ranges.iter().map(size).fold(0, u64::saturating_add);
    html! {
        p.lead {
            "Each posted transaction gets a number that users can quote. A process reserves a range of numbers before it uses one \
             of them, so no number is issued twice, also after a crash. Numbers are unique, but have gaps."
        }
        (tiles(&[
            figure("Reserved", register.reserved, "By processes, since the bank began"),
            figure("Issued", register.issued, "Assigned to transactions"),
            figure("Returned", register.returned, "At a clean stop; they are reserved again"),
            figure("Lost", register.lost, "Never assigned: a process ended without notice, or a posting failed"),
            figure("In use", in_ranges, "Size of the ranges below"),
        ]))
        (card("Ranges in use", in_use(&register.ranges)))
        p.small {
            "Numbers of this process are current; other processes report theirs when they reserve a range. If the register went \
             back in time, nothing is posted: stop all processes, and move it ahead with "
            code { "postonce-web order-numbers advance" } "."
        }
    }
}

fn in_use(of: &[OrderNumberRange]) -> Markup {
    if of.is_empty() {
        return empty(
            "No process holds a range",
            html! { p { "The next process that posts a transaction reserves one." } },
        );
    }
    let bars: Vec<RangeBar<'_>> = of.iter().map(bar).collect();
    let table = Table::new("Ranges in use", of)
        .text("Process", |range| id(&range.holder))
        .number("First", |range| range.first.clone())
        .number("Last", |range| range.last.clone())
        .number("Numbers", |range| format::count(size(range)))
        .text("Reserved", |range| time(&range.at));
    html! {
        (ranges(&bars))
        p.small {
            "A range lasts for about ten seconds under load, and as long as its process without load. The range of a process that \
             ended without notice stays here, until 64 later ones are reserved. The last digit of a number is a check digit."
        }
        (table)
    }
}

fn bar(range: &OrderNumberRange) -> RangeBar<'_> {
    RangeBar {
        label: &range.holder,
        first: number(&range.first),
        last: number(&range.last),
        since: &range.at,
    }
}

/// Returns the position of an order number in the picture.
fn number(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}

/// Returns the size of a range. The last digit of an order number is a check digit, so the counters are compared.
fn size(range: &OrderNumberRange) -> u64 {
    let counter = |text: &str| OrderNumber::parse(text).ok().map(OrderNumber::counter);
    let ends = counter(&range.first).zip(counter(&range.last));
    ends.map_or(0, |(first, last)| last.saturating_sub(first).saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: u64, last: u64) -> OrderNumberRange {
        OrderNumberRange {
            holder: "4f9d0c9e5d3e4c0e9a511b7a4a4e2f10".to_owned(),
            first: OrderNumber::from_counter(first).to_string(),
            last: OrderNumber::from_counter(last).to_string(),
            at: "2026-11-21T08:00:00.123Z".to_owned(),
        }
    }

    #[test]
    fn a_new_bank_has_no_ranges() {
        let register = OrderNumbers { reserved: 0, issued: 0, returned: 0, lost: 0, ranges: Vec::new() };
        let html = body(&register).into_string();
        assert!(html.contains("No process holds a range") && !html.contains("<table"));
    }

    #[test]
    fn ranges_are_a_picture_and_a_table() {
        let ranges = vec![range(1_000_000, 1_009_999), range(1_010_000, 1_010_099)];
        let register = OrderNumbers { reserved: 10_100, issued: 1_234, returned: 5, lost: 6, ranges };
        let html = body(&register).into_string();
        assert_eq!(html.matches("range-part").count(), 2);
        assert!(html.contains("10\u{202f}100") && html.contains("1\u{202f}234"));
        assert!(html.contains(">10\u{202f}000</td>") && html.contains(">100</td>"));
        assert!(html.contains("2026-11-21 08:00:00 UTC"));
    }

    #[test]
    fn what_cannot_be_read_counts_nothing() {
        let odd = OrderNumberRange { first: "<script>".to_owned(), ..range(1, 2) };
        assert_eq!((size(&odd), size(&range(7, 7))), (0, 1));
        assert!(!in_use(&[odd]).into_string().contains("<script>"));
    }
}
