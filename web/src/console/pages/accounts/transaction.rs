//! Page of a transaction with its events.

use std::time::Duration;

use maud::{Markup, html};
use postonce_schemas::json::{
    FoundTransaction, FoundTransactions, Transaction, TransactionEventKind as Kind, TransactionWay,
};
use postonce_shared::domain::time::Timestamp;
use serde_json::Value;

use super::{reason_in_words, signed_amount};
use crate::access::scopes::Scope;
use crate::console::addresses::{ACCOUNT, BATCH, Section};
use crate::console::html::components::{
    Table, TimelineEvent, Tone, badge, card, card_with, copyable, definition, id, link_if, notice, timeline,
};
use crate::console::html::format::{self, decimal};
use crate::console::viewer::Viewer;

/// A transaction with its known events.
#[derive(Clone, Copy)]
struct History<'a> {
    transaction: &'a Transaction,
    partner: &'a str,
    /// Details of its processing, if the key may read them.
    found: Option<&'a FoundTransaction>,
}

/// Returns the page for a message id, which several partners may have used.
pub fn bodies(found: &FoundTransactions, viewer: &Viewer) -> Markup {
    html! {
        @if found.transactions.len() > 1 {
            (notice(
                Tone::Notice,
                "Several partners used this message id",
                html! { p { "Message ids belong to partners: these are different transactions." } },
            ))
        }
        @for one in &found.transactions {
            @let partner = one.transaction.partner_id.as_deref().unwrap_or_default();
            (history(History { transaction: &one.transaction, partner, found: Some(one) }, viewer))
        }
    }
}

/// Returns the page of a transaction of the operator's own partner, with the details that a partner may read.
pub fn body_of_own(transaction: &Transaction, viewer: &Viewer) -> Markup {
    let partner = &viewer.partner;
    html! {
        (history(History { transaction, partner, found: None }, viewer))
        p.small {
            "With the scope " code { "admin" } ", this page also shows the way through the queue, the id of the request, and \
             transactions of other partners."
        }
    }
}

fn history(of: History<'_>, viewer: &Viewer) -> Markup {
    let History { transaction, partner, found } = of;
    let title = format!("{} of {partner}", kind_in_words(transaction));
    let unknown = serde_json::to_value(&transaction.unknown_members).unwrap_or_default();
    let unknown: Vec<(String, String)> = match unknown {
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name, value.to_string())).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Vec::new(),
    };
    let metadata: Vec<_> = transaction.metadata.clone().into_iter().collect();
    html! {
        @if let Some(state) = state_notice(transaction, found, viewer) { (state) }
        (card_with(&title, status_badge(&transaction.status), facts(of, viewer)))
        (card("History", html! {
            (timeline(&events(of)))
            @if found.is_some() { p.small { "The clocks of the processes may differ." } }
        }))
        (members("Metadata", "The partner's own data, which the bank returns unchanged.", &metadata))
        (members("Unknown members", "Members of the request that this version does not know.", &unknown))
    }
}

fn kind_in_words(transaction: &Transaction) -> &'static str {
    if transaction.r#type == "withdrawal" { "Withdrawal" } else { "Deposit" }
}

fn status_badge(status: &str) -> Markup {
    let tone = match status {
        "posted" => Tone::Good,
        "rejected" => Tone::Warning,
        _ => Tone::Notice,
    };
    badge(tone, status)
}

/// Explains the state of a transaction that is not posted, and what an operator can do.
fn state_notice(
    transaction: &Transaction,
    found: Option<&FoundTransaction>,
    viewer: &Viewer,
) -> Option<Markup> {
    if found.is_some_and(|found| found.is_dead_letter) {
        let body = html! {
            p {
                "Nothing happens to it until an operator replays or discards its "
                (viewer.link(Section::DeadLetters, "dead letter")) "."
            }
        };
        return Some(notice(Tone::Bad, "The work is in the dead letters", body));
    }
    if let Some(reason) = transaction.reason.as_ref() {
        let body = html! {
            p { "The reason: " (reason_in_words(reason)) ". The balance did not change, and this is final: the partner may send \
                 a new transaction with another message id." }
        };
        return Some(notice(Tone::Warning, "The transaction was rejected", body));
    }
    let is_open = transaction.status == "accepted";
    let body = html! {
        p {
            "It is stored, and will be posted or rejected exactly once. If it waits for more than a few seconds, look whether the "
            (viewer.link(Section::Gate, "gate")) " is held, whether the "
            (viewer.link(Section::Queues, "queues")) " are long, and when the "
            (viewer.link(Section::Scrubber, "scrubber")) " looks for forgotten work."
        }
    };
    is_open.then(|| notice(Tone::Notice, "The transaction is not decided yet", body))
}

fn facts(of: History<'_>, viewer: &Viewer) -> Markup {
    let History { transaction, partner, found } = of;
    let account = ACCOUNT.of([&transaction.user_id, &transaction.account_id]);
    let mut entries = vec![
        ("Amount", html! { (signed_amount(transaction)) " " (transaction.currency) }),
        ("Reference", html! { (transaction.reference.as_deref().unwrap_or("none")) }),
        ("Partner", viewer.partner_link(partner)),
        ("Account", html! { a href=(account) { (id(&transaction.account_id)) } }),
        ("User", id(&transaction.user_id)),
        ("Message id", copyable(&transaction.message_id)),
    ];
    if let Some(number) = &transaction.order_number {
        entries.push(("Order number", copyable(number)));
    }
    if let Some(balance) = &transaction.balance_after {
        entries.push(("Balance after it", html! { (decimal(balance)) " " (transaction.currency) }));
    }
    if let Some(sequence) = transaction.sequence {
        entries.push(("Position in the journal", html! { (format::count(sequence)) }));
    }
    if let Some(found) = found {
        entries.push(("Way", html! { (way_in_words(&found.way)) }));
        if let Some(batch) = &found.batch_id {
            entries.push(("Batch", batch_link((partner, batch), found.batch_line, viewer)));
        }
        if let Some(request) = &found.request_id {
            let words =
                html! { (copyable(request)) " All processes log this id in lines about the transaction." };
            entries.push(("Request", words));
        }
        if found.enqueued_again > 0 {
            let times = format::count(found.enqueued_again.into());
            entries.push(("Enqueued again", html! { (times) " times, because its message was lost" }));
        }
    }
    definition(&entries)
}

fn batch_link((partner, batch): (&str, &str), line: Option<u32>, viewer: &Viewer) -> Markup {
    html! {
        (link_if(viewer.may(Scope::Batch), &BATCH.of([partner, batch]), id(batch)))
        @if let Some(line) = line { ", line " (format::count(line.into())) }
    }
}

fn way_in_words(way: &TransactionWay) -> &str {
    match way {
        TransactionWay::Immediate => "immediate: posted while the request waited",
        TransactionWay::Queued => "queued: a worker posted it",
        TransactionWay::Batch => "from a batch",
        TransactionWay::Open => "open: not decided yet",
        TransactionWay::Other(way) => way,
    }
}

/// Returns the events that the API reports, or else those that follow from the times of the transaction.
fn events(of: History<'_>) -> Vec<TimelineEvent<'_>> {
    let History { transaction, found, .. } = of;
    let known: Vec<(&Kind, &str)> = match found {
        Some(found) => found.events.iter().map(|event| (&event.event, event.at.as_str())).collect(),
        None => [
            Some((&Kind::Accepted, transaction.accepted_at.as_str())),
            transaction.posted_at.as_deref().map(|at| (&Kind::Posted, at)),
            transaction.rejected_at.as_deref().map(|at| (&Kind::Rejected, at)),
        ]
        .into_iter()
        .flatten()
        .collect(),
    };
    known.into_iter().map(|(event, at)| timeline_event(of, event, at)).collect()
}

fn timeline_event<'a>(of: History<'a>, event: &Kind, time: &'a str) -> TimelineEvent<'a> {
    let transaction = of.transaction;
    let after = since(&transaction.accepted_at, time);
    let (title, note, tone) = match event {
        Kind::Accepted => {
            ("Accepted", Some("Stored, and from then on sure to be decided.".to_owned()), Tone::Neutral)
        }
        Kind::Sent => ("Sent to the queue", after, Tone::Neutral),
        Kind::Received => ("Received by the worker that decided it", after, Tone::Neutral),
        Kind::EnqueuedAgain => {
            let times = of.found.map_or(0, |found| found.enqueued_again);
            let note = format!("Its message was lost; this is the last of {times} times.");
            ("Enqueued again", Some(note), Tone::Notice)
        }
        Kind::Posted => {
            let number = transaction.order_number.as_deref().unwrap_or_default();
            let after = after.map_or_else(String::new, |after| format!(", {after}"));
            ("Posted", Some(format!("Order number {number}{after}")), Tone::Good)
        }
        Kind::Rejected => {
            let reason = transaction.reason.as_ref().map_or("", reason_in_words);
            let after = after.map_or_else(String::new, |after| format!(", {after}"));
            ("Rejected", Some(format!("The reason: {reason}{after}")), Tone::Warning)
        }
        Kind::Other(_) => ("An event that this version of the console does not know", None, Tone::Neutral),
    };
    TimelineEvent { time, title, note, tone }
}

/// Returns the time that passed between the acceptance of a transaction and an event.
fn since(accepted_at: &str, time: &str) -> Option<String> {
    let passed: Duration = Timestamp::parse(time)?.since(Timestamp::parse(accepted_at)?);
    let text = match passed.as_secs() {
        0..60 => format!("{}.{:03} s", passed.as_secs(), passed.subsec_millis()),
        seconds => format::duration_s(seconds),
    };
    Some(format!("{text} after its acceptance"))
}

fn members(title: &str, note: &str, members: &[(String, String)]) -> Markup {
    if members.is_empty() {
        return html! {};
    }
    let table =
        Table::new(title, members).text("Name", |(name, _)| id(name)).text("Value", |(_, value)| id(value));
    card(
        title,
        html! {
            p.small { (note) }
            (table)
        },
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::console::viewer::tests::viewer;

    fn transaction(changes: Value) -> Value {
        let mut transaction = json!({
            "message_id": "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10", "user_id": "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11",
            "account_id": "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22", "type": "deposit", "amount": "1125.50",
            "currency": "EUR", "status": "accepted", "accepted_at": "2026-11-21T08:00:00.123Z"
        });
        transaction.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        transaction
    }

    fn posted() -> Value {
        transaction(json!({
            "status": "posted", "order_number": "10000422", "sequence": 12, "balance_after": "1325.50",
            "posted_at": "2026-11-21T08:00:00.321Z", "partner_id": "shop", "reference": "<script>1</script>",
            "metadata": { "note": "<script>2</script>" }, "unknown_members": { "x": ["<script>3</script>"] },
            "x": ["<script>3</script>"]
        }))
    }

    fn found(transaction: &Value, changes: Value) -> FoundTransactions {
        let mut found = json!({
            "transaction": transaction, "way": "queued", "request_id": "9b2d4c6e", "is_dead_letter": false,
            "enqueued_again": 0, "events": [
                { "event": "accepted", "at": "2026-11-21T08:00:00.123Z" },
                { "event": "sent", "at": "2026-11-21T08:00:00.140Z" },
                { "event": "posted", "at": "2026-11-21T08:02:00.321Z" }
            ]
        });
        found.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(json!({ "transactions": [found] })).unwrap()
    }

    #[test]
    fn a_life_has_its_events_and_links() {
        let html =
            bodies(&found(&posted(), json!({ "batch_id": "b-1", "batch_line": 7 })), &viewer(Scope::ALL))
                .into_string();
        assert!(html.contains("Sent to the queue") && html.contains("0.017 s after its acceptance"));
        assert!(html.contains("Order number 10000422, 2 min after its acceptance"));
        assert!(
            html.contains(r#"href="/console/partners/shop""#)
                && html.contains(r#"href="/console/batches/shop/b-1""#)
        );
        assert!(html.contains("9b2d4c6e") && html.contains("+1\u{202f}125.50 EUR"));
        let html =
            bodies(&found(&posted(), json!({ "batch_id": "b-1" })), &viewer(&[Scope::Read])).into_string();
        assert!(
            html.contains("b-1") && !html.contains("/console/partners") && !html.contains("/console/batches")
        );
    }

    #[test]
    fn text_of_partners_is_escaped() {
        let html = bodies(&found(&posted(), json!({})), &viewer(Scope::ALL)).into_string();
        assert!(!html.contains("<script>"));
        for number in 1..=3 {
            assert!(html.contains(&format!("&lt;script&gt;{number}&lt;/script&gt;")), "{number}");
        }
    }

    #[test]
    fn what_needs_an_operator_is_said_first() {
        let dead = found(
            &transaction(json!({})),
            json!({ "way": "open", "is_dead_letter": true, "enqueued_again": 2 }),
        );
        let html = bodies(&dead, &viewer(Scope::ALL)).into_string();
        assert!(html.starts_with("<div class=\"notice\" data-tone=\"bad\" role=\"alert\""));
        assert!(html.contains(r#"href="/console/dead-letters""#) && html.contains("2 times"));
        let open = bodies(&found(&transaction(json!({})), json!({ "way": "open" })), &viewer(&[Scope::Read]))
            .into_string();
        assert!(open.contains("not decided yet") && !open.contains("href=\"/console/gate\""));
    }

    #[test]
    fn without_admin_the_times_of_the_transaction_are_the_life() {
        let rejected = transaction(json!({
            "status": "rejected", "reason": "account_frozen", "rejected_at": "2026-11-21T08:00:00.200Z"
        }));
        let rejected: Transaction = serde_json::from_value(rejected).unwrap();
        let mut viewer = viewer(&[Scope::Read]);
        viewer.partner = "shop".to_owned();
        let html = body_of_own(&rejected, &viewer).into_string();
        assert!(html.contains("The reason: the account was frozen, 0.077 s after its acceptance"));
        assert!(html.contains("Deposit of shop") && html.contains("the scope <code>admin</code>"));
    }

    #[test]
    fn several_partners_may_use_a_message_id() {
        let mut both = found(&posted(), json!({}));
        both.transactions.extend(both.transactions.clone());
        assert!(
            bodies(&both, &viewer(Scope::ALL))
                .into_string()
                .contains("Several partners used this message id")
        );
    }
}
