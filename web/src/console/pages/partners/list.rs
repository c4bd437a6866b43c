//! List of partners.

use maud::{Markup, html};
use postonce_schemas::json::{Partner, PartnerPage, PartnerRate};
use postonce_shared::domain::time::Timestamp;

use super::partner_path;
use super::viewer::{Validity, reach_in_words};
use crate::console::addresses::encoded;
use crate::console::html::components::{Column, Tone, badge, empty, notice, pager, table, time};
use crate::console::html::format;
use crate::console::html::shell::Section;

/// Returns the page. `is_first` tells whether it is the first page of the list.
pub fn body(page: &PartnerPage, is_first: bool, now: Timestamp) -> Markup {
    if page.partners.is_empty() && is_first {
        return empty(
            "No partners",
            html! {
                p { "A partner is a client of the bank. This command creates one, and prints its first key once:" }
                p { code { "postonce-web partners add shop --all-accounts" } }
            },
        );
    }
    let head = [
        Column::text("Partner"),
        Column::text("Status"),
        Column::text("Reaches"),
        Column::number("API keys"),
        Column::text("Last use"),
        Column::text("Rate"),
    ];
    let rows: Vec<_> = page.partners.iter().map(|partner| row(partner, now)).collect();
    let next = page.next_cursor.as_deref();
    let next = next.map(|next| format!("{}?cursor={}", Section::Partners.path(), encoded(next)));
    html! {
        @if let Some(attention) = attention(&page.partners, now) { (attention) }
        (table("Partners", &head, &rows))
        p.small { "The last use of a key is recorded about once a day." }
        (pager(next.as_deref()))
    }
}

/// Returns a warning about partners on the page whose keys expire soon or have expired.
fn attention(partners: &[Partner], now: Timestamp) -> Option<Markup> {
    let ends = |partner: &&Partner| {
        partner
            .keys
            .iter()
            .any(|key| matches!(Validity::of(key, now), Validity::EndsSoon(_) | Validity::Ended))
    };
    let ending: Vec<&Partner> = partners.iter().filter(ends).collect();
    if ending.is_empty() {
        return None;
    }
    let body = html! {
        p {
            "Add new keys in time for: "
            @for (index, partner) in ending.iter().enumerate() {
                @if index > 0 { ", " }
                a href=(partner_path(&partner.partner_id)) { (partner.partner_id) }
            }
            "."
        }
    };
    Some(notice(Tone::Warning, "API keys have expired, or expire within two weeks", body))
}

fn row(partner: &Partner, now: Timestamp) -> Vec<Markup> {
    let last_use = partner.keys.iter().filter_map(|key| key.last_used_at.as_deref()).max();
    let ended = partner.keys.iter().filter(|key| Validity::of(key, now) == Validity::Ended).count();
    vec![
        html! { a href=(partner_path(&partner.partner_id)) { (partner.partner_id) } },
        status_badge(&partner.status),
        html! { (reach_in_words(&partner.reach)) },
        html! {
            (partner.keys.len())
            @if ended > 0 { " " (badge(Tone::Warning, &format!("{ended} expired"))) }
            @if partner.keys.is_empty() { " " (badge(Tone::Notice, "no key")) }
        },
        last_use.map_or_else(|| html! { "not recorded" }, time),
        html! { (rate_in_words(partner.rate)) },
    ]
}

/// Returns the status of a partner as a badge.
pub fn status_badge(status: &str) -> Markup {
    badge(if status == "suspended" { Tone::Warning } else { Tone::Good }, status)
}

/// Describes a rate limit.
pub fn rate_in_words(rate: Option<PartnerRate>) -> String {
    rate.map_or_else(
        || "as configured".to_owned(),
        |PartnerRate { per_second, burst }| {
            let (per_second, burst) = (format::count(per_second.into()), format::count(burst.into()));
            format!("{per_second} requests per second, {burst} at once")
        },
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::viewer::tests::{key, shop, viewer};
    use super::*;

    fn shown(partners: Vec<Partner>, next: Option<&str>, is_first: bool) -> String {
        let page = PartnerPage { partners, next_cursor: next.map(ToOwned::to_owned) };
        body(&page, is_first, viewer(&[]).now).into_string()
    }

    #[test]
    fn an_empty_list_says_how_to_begin() {
        assert!(shown(Vec::new(), None, true).contains("postonce-web partners add shop"));
        assert!(shown(Vec::new(), None, false).contains("End of the list"));
    }

    #[test]
    fn partners_are_listed_with_their_state() {
        let busy = shop(&json!({ "rate": { "per_second": 1500, "burst": 200 } }));
        let suspended = shop(&json!({ "partner_id": "old", "status": "suspended", "keys": [] }));
        let html = shown(vec![busy, suspended], Some("c-1"), true);
        assert!(html.contains(r#"<a href="/console/partners/shop">shop</a>"#));
        assert!(
            html.contains("1\u{202f}500 requests per second, 200 at once") && html.contains("as configured")
        );
        assert!(html.contains("suspended") && html.contains("no key") && html.contains("not recorded"));
        assert!(html.contains("2026-11-20 08:00:00 UTC") && html.contains("/console/partners?cursor=c-1"));
        assert!(!html.contains("expire within two weeks"));
    }

    #[test]
    fn keys_that_expire_come_first() {
        let ending = shop(&json!({ "keys": [key("k", Some("2026-11-22T08:00:00.000Z"))] }));
        let html = shown(vec![ending], None, true);
        assert!(html.find("expire within two weeks").unwrap() < html.find("<table").unwrap());
    }
}
