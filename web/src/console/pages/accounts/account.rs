//! Page of an account with its statement.

use maud::{Markup, Render, html};
use postonce_schemas::json::{Account, Holder, Problem, RejectReason, Transaction, TransactionPage};

use super::{reason_in_words, signed_amount};
use crate::access::scopes::Scope;
use crate::console::addresses::{ACCOUNT, TRANSACTION, accounts_of, with_query};
use crate::console::html::components::{
    Place, Table, Tone, badge, card, card_with, copyable, definition, empty, notice, refusal, tile, tiles,
    time, toned_tile,
};
use crate::console::html::format::{self, decimal};
use crate::console::viewer::Viewer;

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

    /// Returns the time of the last change of a transaction that is listed.
    fn decided_at(self, of: &Transaction) -> &str {
        let decided_at = match self {
            Self::Posted => of.posted_at.as_deref(),
            Self::Accepted => None,
            Self::Rejected => of.rejected_at.as_deref(),
        };
        decided_at.unwrap_or(&of.accepted_at)
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
    /// Whether this is the first page of the statement.
    pub is_first: bool,
}

/// Returns the page of an account.
pub fn body(account: &Account, statement: &Statement<'_>, viewer: &Viewer) -> Markup {
    html! {
        @if let Some(state) = state_notice(&account.status) { (state) }
        (figures(account))
        (card("Account", facts(account)))
        (statement_card(account, statement, viewer))
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
    definition(&[
        ("Status", status_badge(&account.status)),
        ("Account", copyable(&account.account_id)),
        (
            "User",
            html! { (copyable(&account.user_id)) " " a href=(accounts_of(&account.user_id)) { "All accounts of the user" } },
        ),
        ("Holder", holder),
        ("Opened", time(&account.opened_at)),
    ])
}

fn statement_card(account: &Account, statement: &Statement<'_>, viewer: &Viewer) -> Markup {
    let Statement { listed, page, is_first } = *statement;
    let path = ACCOUNT.of([&account.user_id, &account.account_id]);
    let address = |of: Listed| with_query(&path, &[("status", Some(of.code()))]);
    let choices = html! {
        nav.actions aria-label="Status of the transactions" {
            @for one in Listed::ALL {
                a.button.button-small href=(address(one))
                    aria-current=[(one == listed).then_some("true")]
                    data-tone=[(one == listed).then_some(Tone::Notice.code())] { (one.label()) }
            }
        }
    };
    card_with(
        "Statement",
        choices,
        html! {
            p.small {
                (listed.order())
                @if !viewer.may(Scope::Admin) { " Only transactions of the own partner: others need the scope " code { "admin" } "." }
            }
            @match page {
                Ok(TransactionPage { transactions: found, next_cursor }) => {
                    @let first_page = address(listed);
                    @let place =
                        Place { first_page: &first_page, is_first, next_cursor: next_cursor.as_deref() };
                    (place.listing(
                        found.is_empty(),
                        nothing(listed),
                        transactions(&account.currency, listed, found, &viewer.partner),
                    ))
                }
                Err(problem) => (refusal(problem)),
            }
        },
    )
}

fn nothing(listed: Listed) -> Markup {
    let (title, help) = match listed {
        Listed::Posted => ("No posted transactions", "Nothing has changed the balance of this account."),
        Listed::Accepted => ("Nothing waits", "Every accepted transaction of this account was decided."),
        Listed::Rejected => ("No rejected transactions", "Nothing that was accepted had to be rejected."),
    };
    empty(title, html! { p { (help) } })
}

/// Returns the table of transactions. Those of the partner `own` do not have a `partner_id`.
fn transactions(currency: &str, listed: Listed, transactions: &[Transaction], own: &str) -> Markup {
    let amount_title = format!("Amount in {currency}");
    let balance_title = format!("Balance in {currency}");
    let table = Table::new("Transactions of the account", transactions)
        .text(listed.time_title(), |of| time(listed.decided_at(of)))
        .text("Transaction", transaction_link)
        .number(&amount_title, amount);
    let table = match listed {
        Listed::Posted => table
            .number(&balance_title, |of| of.balance_after.as_deref().map(decimal).unwrap_or_default())
            .text(
                "Order number",
                |of| html! { @if let Some(number) = &of.order_number { code { (number) } } },
            ),
        Listed::Accepted => table,
        Listed::Rejected => {
            table.text("Reason", |of| of.reason.as_ref().map(reason_in_words).unwrap_or_default().to_owned())
        }
    };
    let table = table
        .text("Reference", |of| of.reference.clone().unwrap_or_default())
        .text("Partner", |of| of.partner_id.as_deref().unwrap_or(own).to_owned());
    table.render()
}

fn transaction_link(of: &Transaction) -> Markup {
    html! {
        a href=(TRANSACTION.of([&of.user_id, &of.account_id, &of.message_id])) title=(of.message_id) {
            code { (short(&of.message_id)) }
        }
    }
}

fn amount(of: &Transaction) -> Markup {
    // Only a transaction in another currency than the account has this reason.
    let is_foreign = of.reason == Some(RejectReason::CurrencyMismatch);
    html! { (signed_amount(of)) @if is_foreign { " " (of.currency) } }
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
    use crate::console::viewer::tests::viewer;

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
        body(account, &Statement { listed, page: Ok(page), is_first: true }, &viewer(Scope::ALL))
            .into_string()
    }

    #[test]
    fn an_account_is_shown_without_a_statement_that_cannot_be_read() {
        let problem: Problem = serde_json::from_value(json!({
            "type": "/problems/store_unavailable", "title": "The store is not available", "status": 503,
            "code": "store_unavailable", "detail": "Try again."
        }))
        .unwrap();
        let statement = Statement { listed: Listed::Rejected, page: Err(&problem), is_first: true };
        let html = body(&account(json!({})), &statement, &viewer(Scope::ALL)).into_string();
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
