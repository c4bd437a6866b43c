//! Page of the audit trail: administrative acts that were carried out.

use actix_web::HttpResponse;
use maud::{Markup, html};
use postonce_schemas::json::{AuditPage, AuditRow};
use postonce_shared::domain::ids::{AccountId, PartnerId, UserId, parse_hyphenated};

use crate::console::addresses::{ACCOUNT, PARTNER, Section};
use crate::console::html::components::{Place, Table, Tone, copyable, definition, empty, id, notice, time};
use crate::console::html::format::count;
use crate::console::page_error::PageError;
use crate::console::visitor::Visitor;

/// Number of characters of a shortened hash.
const SHORT_CHARS: usize = 10;
/// Actor in the rows of commands.
const OPERATOR: &str = "operator";

/// Lists the rows, newest first.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn list(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let page: AuditPage = visitor.listing("/v1/admin/audit?limit=100").await?;
    Ok(visitor.page("Audit trail", body(&page, visitor.is_first_page())))
}

fn body(AuditPage { rows, next_cursor }: &AuditPage, is_first: bool) -> Markup {
    let place =
        Place { first_page: Section::AuditTrail.path(), is_first, next_cursor: next_cursor.as_deref() };
    let help = html! { p { "Acts of operators appear here: changes of the gate, of partners, keys and accounts, decisions \
    about dead letters, and commands that change the store." } };
    let table = Table::new("Audit trail", rows)
        .number("Row", |row| count(row.sequence))
        .text("Time", |row| time(&row.at))
        .text("Who", who)
        .text("Act", |row| html! { (act_in_words(&row.act)) br; code { (row.act) } })
        .text("Target", |row| target(&row.target))
        .text("From", |row| row.origin.clone())
        .text("Hash", hashes);
    html! {
        p.lead {
            "Administrative acts that were done, the last one first. Each row contains the hash of the row before it, so that no row \
             can be changed, removed or inserted without a trace. Acts that were refused or failed are only in the log."
        }
        (place.listing(rows.is_empty(), empty("Nothing was done yet", help), html! {
            (chain(rows))
            (table)
        }))
    }
}

/// Checks whether the rows of the page form a chain. Only `verify` recomputes their hashes.
fn chain(rows: &[AuditRow]) -> Markup {
    let follows = |(later, earlier): &(&AuditRow, &AuditRow)| {
        later.previous_hash == earlier.hash && later.sequence == earlier.sequence.saturating_add(1)
    };
    let broken = rows.iter().zip(rows.iter().skip(1)).find(|pair| !follows(pair));
    match broken {
        Some((later, earlier)) => notice(
            Tone::Bad,
            "The chain is broken",
            html! {
                p {
                    "Row " (count(later.sequence)) " does not follow row " (count(earlier.sequence)) ". Rows were \
                     changed or removed, or the store went back in time. Run " code { "postonce-web verify" } ", and compare a copy of \
                     an anchor or of a hash with the store."
                }
            },
        ),
        None => html! {
            p.small {
                "Each row on this page has the hash of the row before it. " code { "postonce-web verify" } " also computes the hashes."
            }
        },
    }
}

fn who(row: &AuditRow) -> Markup {
    html! {
        @if row.actor == OPERATOR {
            "an operator, by a command"
        } @else {
            a href=(PARTNER.of([&row.actor])) { (row.actor) }
        }
        @if let Some(key) = &row.key_id { br; "key " code { (key) } }
    }
}

fn hashes(row: &AuditRow) -> Markup {
    let short: String = row.hash.chars().take(SHORT_CHARS).collect();
    html! {
        details {
            summary { code { (short) } }
            (definition(&[
                ("Hash", copyable(&row.hash)),
                ("Hash of the row before", copyable(&row.previous_hash)),
                ("Nonce", copyable(&row.nonce)),
            ]))
        }
    }
}

/// Returns a target, with links to the partner and the account in it. Only well-formed ids are linked.
fn target(text: &str) -> Markup {
    let value = |name: &str| {
        let prefix = format!("{name}=");
        text.split(' ').find_map(|pair| pair.strip_prefix(&prefix))
    };
    let partner =
        value("partner_id").or_else(|| value("partner")).filter(|text| PartnerId::parse(text).is_ok());
    let user = value("user_id").filter(|text| parse_hyphenated::<UserId>(text).is_ok());
    let account = value("account_id").filter(|text| parse_hyphenated::<AccountId>(text).is_ok());
    html! {
        @if text.is_empty() { "the whole bank" } @else { (id(text)) }
        @if let Some(partner) = partner { " " a href=(PARTNER.of([partner])) { "Partner" } }
        @if let (Some(user), Some(account)) = (user, account) { " " a href=(ACCOUNT.of([user, account])) { "Account" } }
    }
}

fn act_in_words(act: &str) -> &'static str {
    match act {
        "account.open" => "Opened an account",
        "account.change" => "Changed an account",
        "batch.cancel" => "Cancelled a batch",
        "gate.change" => "Changed the gate",
        "dead_letter.replay" => "Replayed a dead letter",
        "dead_letter.discard" => "Discarded a dead letter",
        "partner.change" => "Changed a partner",
        "key.add" => "Added an API key",
        "key.revoke" => "Revoked an API key",
        "signature_key.add" => "Added a signature key",
        "signature_key.remove" => "Removed a signature key",
        "order_numbers.advance" => "Moved the order numbers ahead",
        "work.recover" => "Enqueued forgotten work",
        "payloads.sweep" => "Removed old payloads",
        "anchor.append" => "Made an anchor",
        "store.restore" => "Restored the store",
        _ => "Another act",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sequence: u64, hash: &str, previous_hash: &str) -> AuditRow {
        AuditRow {
            sequence,
            at: "2026-11-21T08:00:00.123Z".to_owned(),
            actor: "shop".to_owned(),
            key_id: Some("9f86d081884c7d65".to_owned()),
            act: "gate.change".to_owned(),
            target: "state=held reason=\"<script>\"".to_owned(),
            origin: "192.0.2.1:50114".to_owned(),
            nonce: "n".repeat(32),
            previous_hash: previous_hash.to_owned(),
            hash: hash.to_owned(),
        }
    }

    fn shown(rows: Vec<AuditRow>) -> String {
        body(&AuditPage { rows, next_cursor: Some("c_1".to_owned()) }, true).into_string()
    }

    #[test]
    fn an_empty_trail_says_what_will_be_there() {
        let empty = AuditPage { rows: Vec::new(), next_cursor: None };
        assert!(body(&empty, true).into_string().contains("Nothing was done yet"));
        assert!(body(&empty, false).into_string().contains("End of the list"));
    }

    #[test]
    fn rows_tell_who_did_what_and_are_escaped() {
        let html =
            shown(vec![row(1_002, &"b".repeat(64), &"a".repeat(64)), row(1_001, &"a".repeat(64), "0")]);
        assert!(
            html.contains("1\u{202f}002")
                && html.contains("Changed the gate")
                && html.contains("192.0.2.1:50114")
        );
        assert!(
            html.contains(r#"<a href="/console/partners/shop">shop</a>"#)
                && html.contains("9f86d081884c7d65")
        );
        assert!(html.contains("<code>bbbbbbbbbb</code>") && html.contains(&"b".repeat(64)));
        assert!(html.contains("&lt;script&gt;") && !html.contains("<script>"));
        assert!(html.contains("/console/audit?cursor=c_1") && !html.contains("The chain is broken"));
        let command = AuditRow { actor: OPERATOR.to_owned(), key_id: None, ..row(1, "a", "0") };
        assert!(shown(vec![command]).contains("an operator, by a command"));
    }

    #[test]
    fn a_broken_chain_is_said_first() {
        let changed = shown(vec![row(3, "c", "x"), row(2, "b", "a"), row(1, "a", "0")]);
        assert!(changed.contains("Row 3 does not follow row 2"));
        assert!(changed.find("The chain is broken").unwrap() < changed.find("<table").unwrap());
        assert!(shown(vec![row(3, "c", "a"), row(1, "a", "0")]).contains("Row 3 does not follow row 1"));
    }

    #[test]
    fn targets_link_to_what_they_name() {
        let (user, account) =
            ("0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11", "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22");
        let html = target(&format!("user_id={user} account_id={account} changes=status")).into_string();
        assert!(html.contains(&format!(r#"href="/console/accounts/{user}/{account}""#)));
        assert!(
            target("partner_id=shop is_new=true").into_string().contains(r#"href="/console/partners/shop""#)
        );
        for none in ["", "partner_id=../gate", "user_id=1 account_id=2", "state=held"] {
            assert!(!target(none).into_string().contains("href"), "{none}");
        }
    }
}
