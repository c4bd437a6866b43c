//! Page of an account with its statement.

use maud::{Markup, html};
use postonce_schemas::json::{Account, Holder, Problem, RejectReason, Transaction, TransactionPage};

use super::{Rights, account_path, reason_in_words, refused, signed_amount, transaction_path};
use crate::console::addresses::encoded;
use crate::console::html::components::{
    Column, Tone, badge, card, card_with, copyable, definition, empty, notice, pager, table, tile, tiles,
    time, toned_tile,
};
use crate::console::html::format::{self, decimal};
use crate::console::html::shell::Section;

const SHORT_ID_CHARS: usize = 8;

/// Selection of transactions in a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listed {
    /// Transactions that changed the balance, newest first.
    Posted,
    /// Transactions that wait for a decision.
    Accepted,
    /// Transactions that did not change the balance.
    Rejected,
}

impl Listed {
    const ALL: [Self; 3] = [Self::Posted, Self::Accepted, Self::Rejected];

    /// Parses a selection; by default the posted transactions.
    pub fn of_code(code: &str) -> Self {
        Self::ALL.into_iter().find(|listed| listed.code() == code).unwrap_or(Self::Posted)
    }

    const fn code(self) -> &'static str {
        match self {
            Self::Posted => "posted",
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Posted => "Posted",
            Self::Accepted => "Accepted, not decided",
            Self::Rejected => "Rejected",
        }
    }

    /// Returns the query of the API. Only posted transactions can be listed in the order of time.
    pub const fn query(self) -> &'static str {
        match self {
            Self::Posted => "status=posted&order=newest_first",
            Self::Accepted => "status=accepted",
            Self::Rejected => "status=rejected",
        }
    }

    const fn order(self) -> &'static str {
        match self {
            Self::Posted => "The newest first.",
            Self::Accepted => "By message id, not by time. An order normally waits for less than a second.",
            Self::Rejected => "By message id, not by time.",
        }
    }

    const fn time_title(self) -> &'static str {
        match self {
            Self::Posted => "Posted",
            Self::Accepted => "Accepted",
            Self::Rejected => "Rejected",
        }
    }
}

/// Page of a statement.
#[derive(Debug, Clone, Copy)]
pub struct Statement<'a> {
    /// Selection of transactions.
    pub listed: Listed,
    /// The transactions, or the problem that the API answered.
    pub page: Result<&'a TransactionPage, &'a Problem>,
    /// Partner of the session. Its transactions have no `partner_id`.
    pub own: &'a str,
}

/// Returns the page of an account.
pub fn body(account: &Account, statement: &Statement<'_>, rights: Rights) -> Markup {
    html! {
        @if let Some(state) = state_notice(&account.status) { (state) }
        (figures(account))
        (card("Account", facts(account)))
        (statement_card(account, statement, rights))
    }
}

/// Returns the status of an account as a badge.
pub fn status_badge(status: &str) -> Markup {
    let tone = match status {
        "open" => Tone::Good,
        "frozen" => Tone::Warning,
        _ => Tone::Neutral,
    };
    badge(tone, status)
}

fn state_notice(status: &str) -> Option<Markup> {
    let rejects = |title, why: &str| {
        let body = html! { p { (why) " Every transaction is rejected until the account is opened again." } };
        Some(notice(Tone::Warning, title, body))
    };
    match status {
        "frozen" => rejects("The account is frozen", "Its balance stays as it is."),
        "closed" => rejects("The account is closed", "Its balance was zero then."),
        _ => None,
    }
}

fn figures(account: &Account) -> Markup {
    let (currency, is_overdrawn) = (Some(account.currency.as_str()), account.balance.starts_with('-'));
    let balance = decimal(&account.balance);
    tiles(&[
        if is_overdrawn {
            toned_tile(Tone::Notice, "Balance", &balance, currency, Some("The account is overdrawn."))
        } else {
            tile("Balance", &balance, currency, Some("The sum of its posted transactions"))
        },
        tile("Available", &decimal(&account.available), currency, Some("What can be withdrawn now")),
        tile("Overdraft limit", &decimal(&account.overdraft_limit), currency, None),
        tile("Version", &format::count(account.version), None, Some("Grows with every change")),
    ])
}

fn facts(account: &Account) -> Markup {
    let holder = match &account.holder {
        Some(Holder { given_name, family_name }) => html! { (given_name) " " (family_name) },
        None => html! { "not known to the bank" },
    };
    let of_user = format!("{}?user_id={}", Section::Accounts.path(), encoded(&account.user_id));
    definition(&[
        ("Status", status_badge(&account.status)),
        ("Account", copyable(&account.account_id)),
        ("User", html! { (copyable(&account.user_id)) " " a href=(of_user) { "All accounts of the user" } }),
        ("Holder", holder),
        ("Opened", time(&account.opened_at)),
    ])
}

fn statement_card(account: &Account, statement: &Statement<'_>, rights: Rights) -> Markup {
    let Statement { listed, page, own } = *statement;
    let path = account_path(&account.user_id, &account.account_id);
    let choices = html! {
        nav.actions aria-label="Status of the transactions" {
            @for one in Listed::ALL {
                a.button.button-small href={ (path) "?status=" (one.code()) }
                    aria-current=[(one == listed).then_some("true")]
                    data-tone=[(one == listed).then_some(Tone::Notice.code())] { (one.label()) }
            }
        }
    };
    let next = page.ok().and_then(|page| page.next_cursor.as_deref());
    let next = next.map(|next| format!("{path}?status={}&cursor={}", listed.code(), encoded(next)));
    card_with(
        "Statement",
        choices,
        html! {
            p.small {
                (listed.order())
                @if !rights.admin { " Only transactions of the own partner: others need the scope " code { "admin" } "." }
            }
            @match page.map(|page| page.transactions.as_slice()) {
                Ok([]) => (nothing(listed, next.is_some())),
                Ok(some) => (transactions(&account.currency, listed, some, own)),
                Err(problem) => (refused(problem)),
            }
            (pager(next.as_deref()))
        },
    )
}

fn nothing(listed: Listed, has_more: bool) -> Markup {
    if has_more {
        return empty(
            "Nothing on this page",
            html! { p { "Go to the next page: the search continues there." } },
        );
    }
    match listed {
        Listed::Posted => empty(
            "No posted transactions",
            html! { p { "Nothing has changed the balance of this account." } },
        ),
        Listed::Accepted => {
            empty("Nothing waits", html! { p { "Every accepted transaction of this account was decided." } })
        }
        Listed::Rejected => {
            empty("No rejected transactions", html! { p { "Nothing that was accepted had to be rejected." } })
        }
    }
}

fn transactions(currency: &str, listed: Listed, transactions: &[Transaction], own: &str) -> Markup {
    let amount_title = format!("Amount in {currency}");
    let balance_title = format!("Balance in {currency}");
    let mut head =
        vec![Column::text(listed.time_title()), Column::text("Transaction"), Column::number(&amount_title)];
    match listed {
        Listed::Posted => head.extend([Column::number(&balance_title), Column::text("Order number")]),
        Listed::Accepted => {}
        Listed::Rejected => head.push(Column::text("Reason")),
    }
    head.extend([Column::text("Reference"), Column::text("Partner")]);
    let rows: Vec<_> = transactions.iter().map(|of| row(of, listed, own)).collect();
    table("Transactions of the account", &head, &rows)
}

fn row(of: &Transaction, listed: Listed, own: &str) -> Vec<Markup> {
    let decided_at = match listed {
        Listed::Posted => of.posted_at.as_deref(),
        Listed::Accepted => None,
        Listed::Rejected => of.rejected_at.as_deref(),
    };
    // Only a transaction in another currency than the account has this reason.
    let is_foreign = of.reason == Some(RejectReason::CurrencyMismatch);
    let mut cells = vec![
        time(decided_at.unwrap_or(&of.accepted_at)),
        html! {
            a href=(transaction_path(&of.user_id, &of.account_id, &of.message_id)) title=(of.message_id) {
                code { (short(&of.message_id)) }
            }
        },
        html! { (signed_amount(of)) @if is_foreign { " " (of.currency) } },
    ];
    match listed {
        Listed::Posted => cells.extend([
            html! { (of.balance_after.as_deref().map(decimal).unwrap_or_default()) },
            html! { @if let Some(number) = &of.order_number { code { (number) } } },
        ]),
        Listed::Accepted => {}
        Listed::Rejected => {
            cells.push(html! { (of.reason.as_ref().map(reason_in_words).unwrap_or_default()) })
        }
    }
    cells.extend([
        html! { (of.reference.as_deref().unwrap_or_default()) },
        html! { (of.partner_id.as_deref().unwrap_or(own)) },
    ]);
    cells
}

/// Returns the beginning of an id, which suffices to distinguish the transactions of a page.
fn short(id: &str) -> String {
    let head: String = id.chars().take(SHORT_ID_CHARS).collect();
    format!("{head}\u{2026}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const RIGHTS: Rights =
        Rights { read: true, admin: true, metrics: true, operate: true, partners: true, batches: true };

    fn account(changes: Value) -> Account {
        let mut account = json!({
            "user_id": "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11", "account_id": "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22",
            "currency": "EUR", "status": "open", "balance": "12.30", "available": "12.30", "overdraft_limit": "0.00",
            "version": 1007, "opened_at": "2026-11-21T08:00:00.123Z",
            "holder": { "given_name": "Ada <script>", "family_name": "Byron" }
        });
        account.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(account).unwrap()
    }

    fn page(transactions: &Value, next: Option<&str>) -> TransactionPage {
        serde_json::from_value(json!({ "transactions": transactions, "next_cursor": next })).unwrap()
    }

    fn shown(account: &Account, listed: Listed, page: &TransactionPage) -> String {
        body(account, &Statement { listed, page: Ok(page), own: "ops" }, RIGHTS).into_string()
    }

    #[test]
    fn an_account_is_shown_without_a_statement_that_cannot_be_read() {
        let problem: Problem = serde_json::from_value(json!({
            "type": "/problems/store_unavailable", "title": "The store is not available", "status": 503,
            "code": "store_unavailable", "detail": "Try again."
        }))
        .unwrap();
        let statement = Statement { listed: Listed::Rejected, page: Err(&problem), own: "ops" };
        let html = body(&account(json!({})), &statement, RIGHTS).into_string();
        assert!(html.contains("The store is not available") && html.contains("12.30"), "{html}");
        assert!(!html.contains("No rejected transactions"), "{html}");
    }

    #[test]
    fn a_new_account_says_what_is_empty() {
        let html = shown(&account(json!({})), Listed::Posted, &page(&json!([]), None));
        assert!(html.contains("No posted transactions") && html.contains("Ada &lt;script&gt; Byron"));
        assert!(html.contains(r#"?status=posted" aria-current="true""#));
        assert!(!html.contains("rejected until") && !html.contains("overdrawn"));
        let html = shown(&account(json!({})), Listed::Rejected, &page(&json!([]), Some("a_b")));
        assert!(html.contains("Nothing on this page") && html.contains("?status=rejected&amp;cursor=a_b"));
    }

    #[test]
    fn a_frozen_and_overdrawn_account_says_so_first() {
        let account = account(json!({ "status": "frozen", "balance": "-5.00" }));
        let html = shown(&account, Listed::Accepted, &page(&json!([]), None));
        assert!(html.starts_with("<div class=\"notice\" data-tone=\"warning\""));
        assert!(html.contains("\u{2212}5.00") && html.contains("The account is overdrawn."));
    }

    #[test]
    fn rows_link_to_transactions_and_escape_references() {
        let posted = json!({
            "message_id": "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10", "user_id": "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11",
            "account_id": "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22", "type": "withdrawal", "amount": "1125.50",
            "currency": "EUR", "status": "posted", "reference": "<script>alert(1)</script>",
            "accepted_at": "2026-11-21T08:00:00.123Z", "order_number": "10000422", "sequence": 12,
            "balance_after": "325.50", "posted_at": "2026-11-21T08:00:01.321Z", "partner_id": "shop"
        });
        let html = shown(&account(json!({})), Listed::Posted, &page(&json!([posted]), None));
        assert!(html.contains("/77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22/4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10"));
        assert!(
            html.contains("\u{2212}1\u{202f}125.50") && html.contains("10000422") && html.contains("shop")
        );
        assert!(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;") && !html.contains("<script>"));
        assert!(html.contains("2026-11-21 08:00:01 UTC"));
    }

    #[test]
    fn only_known_statuses_are_listed() {
        assert_eq!(Listed::of_code("rejected"), Listed::Rejected);
        assert_eq!(Listed::of_code(""), Listed::Posted);
        assert_eq!(Listed::of_code("lost"), Listed::Posted);
    }
}
