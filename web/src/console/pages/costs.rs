//! Page of the costs: the storage operations of all processes, at the configured prices.

use std::cmp::Reverse;

use actix_web::HttpResponse;
use maud::{Markup, Render, html};
use postonce_schemas::json::{ProcessCost, StorageOperation, StorageOperations};

use crate::console::html::components::{Table, Tone, card, empty, id, notice, tile, tiles};
use crate::console::html::format::{self, count};
use crate::console::page_error::PageError;
use crate::console::visitor::Visitor;

const NANO: u128 = 1_000_000_000;
/// Number of decimal digits of a nano-dollar in dollars.
const NANO_DIGITS: usize = 9;

/// Shows the costs.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn show(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let costs: StorageOperations = visitor.get("/v1/admin/storage-operations").await?;
    Ok(visitor.page("Costs", body(&costs)))
}

fn body(costs: &StorageOperations) -> Markup {
    html! {
        p.lead {
            "Each process counts its requests to the store since it started, repeated ones too. All count, also those that post \
             nothing, such as looking for messages in empty queues."
        }
        (figures(costs))
        (embedded(costs))
        (card("By kind of operation", kinds(costs)))
        (card("By process", processes(&costs.processes)))
    }
}

fn figures(costs: &StorageOperations) -> Markup {
    let none = || "\u{2013}".to_owned();
    let per_posting = costs.operations_per_posting.clone().unwrap_or_else(none);
    let per_million = costs.price_usd_per_million_postings.as_deref().map_or_else(none, format::usd);
    let (per_month, of_a_month) = match &costs.projected_price_usd_per_month {
        Some(usd) => (format::usd(usd), "30 days at this rate"),
        None => (none(), "until each process has counted for 10 minutes"),
    };
    let immediate = format!("{} of them at once, without the queue", format::count(costs.immediate_postings));
    let no_posting = costs.postings == 0;
    let of_a_posting = if no_posting {
        "nothing was posted or rejected yet"
    } else {
        "all operations divided by all postings"
    };
    let of_a_million =
        if no_posting { "nothing was posted or rejected yet" } else { "at the same rate of operations" };
    tiles(&[
        tile("Storage operations", &format::count(costs.count), None, Some("since the processes started")),
        tile(
            "Price of all",
            &format::usd(&costs.price_usd),
            None,
            Some("US dollars, at the configured prices"),
        ),
        tile("Postings", &format::count(costs.postings), None, Some(&immediate)),
        tile("Operations per posting", &per_posting, None, Some(of_a_posting)),
        tile("Price per million postings", &per_million, None, Some(of_a_million)),
        tile("Price of a month", &per_month, None, Some(of_a_month)),
    ])
}

/// Explains the prices for the embedded store, which costs nothing per operation.
fn embedded(costs: &StorageOperations) -> Markup {
    let is_known = costs.operations.iter().any(|it| it.service == "sqlite");
    let title = if is_known { "The store is embedded" } else { "On the embedded store" };
    notice(
        Tone::Notice,
        title,
        html! {
            p {
                "An embedded store (SQLite) costs nothing per operation. Its operations are counted all the same: their prices here \
                 are what they would cost on Azure Storage, at the settings " code { "price-\u{2026}" } ". The space that is used, and \
                 the traffic, are not included for any store."
            }
        },
    )
}

fn kinds(costs: &StorageOperations) -> Markup {
    if costs.operations.is_empty() {
        let help =
            html! { p { "No process that answers has made a request to the store since it started." } };
        return empty("No storage operations", help);
    }
    let mut operations: Vec<&StorageOperation> = costs.operations.iter().collect();
    operations.sort_by_key(|it| Reverse((nano_usd(&it.price_usd), it.count)));
    let all = nano_usd(&costs.price_usd);
    let table = Table::new("Storage operations by kind, the most expensive ones first", operations)
        .text("Service", |it| it.service.clone())
        .text("Operation", |it| id(&it.operation))
        .number("Operations", |it| count(it.count))
        .number("Price (USD)", |it| format::usd(&it.price_usd))
        .number("Part of the price", |it| format::percent(nano_usd(&it.price_usd), all));
    table.render()
}

fn processes(processes: &[ProcessCost]) -> Markup {
    let table = Table::new("Storage operations by process", processes)
        .text("Process", |it| id(&it.process))
        .number("Postings", |it| count(it.postings))
        .number("At once", |it| count(it.immediate_postings))
        .number("Operations", |it| count(it.count))
        .number("Operations per posting", |it| ratio(it.count, it.postings))
        .number("Price (USD)", |it| format::usd(&it.price_usd));
    html! {
        (table)
        p.muted {
            "Processes that did not answer are missing, and a process that was started again begins at zero. For sums over months, \
             use the metrics."
        }
    }
}

/// Parses a decimal number of dollars as nano-dollars. Smaller parts are cut off. A text in another form is 0.
fn nano_usd(usd: &str) -> u128 {
    let (whole, decimals) = usd.split_once('.').unwrap_or((usd, ""));
    let padded: String = decimals.chars().chain(std::iter::repeat('0')).take(NANO_DIGITS).collect();
    let whole: u128 = whole.parse().unwrap_or_default();
    whole.saturating_mul(NANO).saturating_add(padded.parse().unwrap_or_default())
}

/// Formats a ratio, rounded down to two decimals; a dash if the divisor is zero.
fn ratio(number: u64, by: u64) -> String {
    let Some(hundredths) = u128::from(number).saturating_mul(100).checked_div(u128::from(by)) else {
        return "\u{2013}".to_owned();
    };
    let whole = u64::try_from(hundredths.checked_div(100).unwrap_or_default()).unwrap_or(u64::MAX);
    format!("{}.{:02}", format::count(whole), hundredths.checked_rem(100).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(changes: &Value) -> String {
        let mut costs = json!({
            "operations": [
                { "service": "table", "operation": "get", "count": 40, "price_usd": "0.000001440" },
                { "service": "queue", "operation": "send <b>", "count": 1_200, "price_usd": "0.000480000" }
            ],
            "count": 1_240, "price_usd": "0.000481440", "postings": 500, "immediate_postings": 300,
            "operations_per_posting": "2.48", "price_usd_per_million_postings": "0.962880000", "projected_price_usd_per_month": "12.500000000",
            "processes": [{
                "process": "http://127.0.0.1:8080", "postings": 500, "immediate_postings": 300, "count": 1_240,
                "price_usd": "0.000481440"
            }]
        });
        costs.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        body(&serde_json::from_value(costs).unwrap()).into_string()
    }

    #[test]
    fn the_most_expensive_operations_stand_first() {
        let html = shown(&json!({}));
        assert!(
            html.contains("1\u{202f}240") && html.contains("$0.962880000") && html.contains("2.48"),
            "{html}"
        );
        assert!(html.find("send &lt;b&gt;").unwrap() < html.find(">get<").unwrap(), "{html}");
        assert!(html.contains("99.7 %") && html.contains("0.2 %") && !html.contains("<b>"), "{html}");
        assert!(html.contains("http://127.0.0.1:8080") && html.contains("On the embedded store"));
    }

    #[test]
    fn before_the_first_posting_nothing_is_divided() {
        let html = shown(&json!({
            "operations": [], "count": 0, "price_usd": "0.000000000", "postings": 0, "immediate_postings": 0,
            "operations_per_posting": null, "price_usd_per_million_postings": null, "projected_price_usd_per_month": null, "processes": []
        }));
        assert!(
            html.contains("nothing was posted or rejected yet") && html.contains("No storage operations"),
            "{html}"
        );
    }

    #[test]
    fn the_embedded_store_costs_nothing_per_operation() {
        let operations = json!([{ "service": "sqlite", "operation": "write", "count": 7, "price_usd": "0" }]);
        let html = shown(&json!({ "operations": operations, "price_usd": "0" }));
        assert!(
            html.contains("The store is embedded") && html.contains("costs nothing per operation"),
            "{html}"
        );
        assert!(html.contains("0.0 %"), "{html}");
    }

    #[test]
    fn decimals_are_compared_without_floats() {
        let numbers = [
            ("0.000012480", 12_480),
            ("12.5", 12_500_000_000),
            ("3", 3_000_000_000),
            ("many", 0),
            ("0.0000000019", 1),
        ];
        for (usd, nano) in numbers {
            assert_eq!(nano_usd(usd), nano, "{usd}");
        }
        let ratio = |number, by| ratio(number, by).replace(crate::console::html::format::THIN_SPACE, " ");
        assert_eq!(
            (ratio(1_240, 500), ratio(1, 0), ratio(7_000, 3)),
            ("2.48".to_owned(), "\u{2013}".to_owned(), "2 333.33".to_owned())
        );
    }
}
