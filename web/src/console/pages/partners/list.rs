//! List of partners.

use maud::{Markup, html};
use postonce_schemas::json::{Partner, PartnerPage, PartnerRate, PartnerReach};
use postonce_shared::domain::time::Timestamp;

use super::keys::Validity;
use crate::console::addresses::{PARTNER, Section};
use crate::console::html::components::{Place, Table, Tone, badge, empty, notice, time};
use crate::console::html::format::{self, counted};

/// Returns the page. `is_first` tells whether it is the first page of the list.
pub fn body(page: &PartnerPage, is_first: bool, now: Timestamp) -> Markup {
    let PartnerPage { partners, next_cursor } = page;
    let place = Place { first_page: Section::Partners.path(), is_first, next_cursor: next_cursor.as_deref() };
    let help = html! {
        p { "A partner is a client of the bank. This command creates one, and prints its first key once:" }
        p { code { "postonce-web partners add shop --all-accounts" } }
    };
    let table = Table::new("Partners", partners)
        .text("Partner", partner_link)
        .text("Status", |partner| status_badge(&partner.status))
        .text("Reaches", |partner| reach_in_words(&partner.reach))
        .number("API keys", |partner| number_of_keys(partner, now))
        .text("Last use", last_use)
        .text("Rate", |partner| rate_in_words(partner.rate));
    html! {
        @if let Some(attention) = attention(partners, now) { (attention) }
        (place.listing(partners.is_empty(), empty("No partners", help), html! {
            (table)
            p.small { "The last use of a key is recorded about once a day." }
        }))
    }
}

fn partner_link(partner: &Partner) -> Markup {
    html! { a href=(PARTNER.of([&partner.partner_id])) { (partner.partner_id) } }
}

fn number_of_keys(Partner { keys, .. }: &Partner, now: Timestamp) -> Markup {
    let ended = keys.iter().filter(|key| Validity::of(key, now) == Validity::Ended).count();
    html! {
        (keys.len())
        @if ended > 0 { " " (badge(Tone::Warning, &format!("{ended} expired"))) }
        @if keys.is_empty() { " " (badge(Tone::Notice, "no key")) }
    }
}

fn last_use(partner: &Partner) -> Markup {
    let last_use = partner.keys.iter().filter_map(|key| key.last_used_at.as_deref()).max();
    last_use.map_or_else(|| html! { "not recorded" }, time)
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
                (partner_link(partner))
            }
            "."
        }
    };
    Some(notice(Tone::Warning, "API keys have expired, or expire within two weeks", body))
}

/// Returns the status of a partner as a badge.
pub fn status_badge(status: &str) -> Markup {
    badge(if status == "suspended" { Tone::Warning } else { Tone::Good }, status)
}

/// Describes a reach.
pub fn reach_in_words(reach: &PartnerReach) -> String {
    if reach.everything == Some(true) {
        return "every account of the bank".to_owned();
    }
    let users = reach.users.as_ref().map_or(0, Vec::len);
    let accounts = reach.accounts.as_ref().map_or(0, Vec::len);
    match (users, accounts) {
        (0, 0) => "no account".to_owned(),
        (users, 0) => format!("all accounts of {}", counted(users, "user", "users")),
        (0, accounts) => counted(accounts, "account", "accounts"),
        (users, accounts) => {
            format!(
                "all accounts of {}, and {}",
                counted(users, "user", "users"),
                counted(accounts, "account", "accounts")
            )
        }
    }
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
    use serde_json::{Value, json};

    use super::super::tests::{key, shop};
    use super::*;
    use crate::console::viewer::tests::viewer;

    fn shown(partners: Vec<Partner>, next: Option<&str>, is_first: bool) -> String {
        let page = PartnerPage { partners, next_cursor: next.map(ToOwned::to_owned) };
        body(&page, is_first, viewer(&[]).now).into_string()
    }

    #[test]
    fn a_reach_is_described() {
        let check = |reach: Value, words: &str| {
            assert_eq!(reach_in_words(&serde_json::from_value(reach).unwrap()), words);
        };
        check(json!({ "everything": true }), "every account of the bank");
        check(json!({ "users": [], "accounts": [] }), "no account");
        check(json!({ "users": ["u"], "accounts": [] }), "all accounts of 1 user");
        let account = json!({ "user_id": "u", "account_id": "a" });
        check(json!({ "accounts": [account, account] }), "2 accounts");
        check(
            json!({ "users": ["u", "v"], "accounts": [account] }),
            "all accounts of 2 users, and 1 account",
        );
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
