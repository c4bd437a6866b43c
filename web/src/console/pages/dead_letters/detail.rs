//! Page of a dead letter: its reason, its work, the possible decisions, its history and its body.

use maud::{Markup, html};
use postonce_schemas::json::{DeadLetter, Resolution};
use postonce_shared::batches::messages::Named;
use postonce_shared::domain::batch::BatchKey;
use postonce_shared::domain::ids::TransactionKey;
use postonce_shared::domain::time::Timestamp;
use postonce_shared::messaging::envelope::{self, Names};

use super::decision::Decision;
use crate::access::scopes::Scope;
use crate::console::addresses::{BATCH, DEAD_LETTER, Section, TRANSACTION};
use crate::console::html::components::{
    Table, TimelineEvent, Tone, age, badge, button_link, card, card_with, copyable, definition, id, link_if,
    notice, time, timeline,
};
use crate::console::html::format::{self, counted};
use crate::console::html::forms::{Confirmation, Question, hidden, submit};
use crate::console::viewer::Viewer;

const TRANSACTIONS_SHOWN_MAX: usize = 200;

/// Work of a dead letter, if its body can be decoded. The content is untrusted, so it is only shown and linked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Transactions of accounts.
    Transactions(Vec<TransactionKey>),
    /// Step of a batch.
    Batch(BatchKey),
    /// Work in the payload store, with its name there.
    Claim(String),
    /// The body cannot be decoded.
    Unknown,
}

impl Work {
    /// Reads the work of a dead letter.
    pub fn of(letter: &DeadLetter) -> Self {
        let body = letter.body.as_bytes();
        if let Some(names) = Names::read(body).ok().filter(Names::is_complete) {
            return Self::Transactions(names.items().iter().filter_map(|name| name.key.clone()).collect());
        }
        if let Some(claim) = envelope::claimed(body) {
            return Self::Claim(claim.name);
        }
        Named::decode(body).map_or(Self::Unknown, |named| Self::Batch(named.key))
    }
}

/// Returns the number of transactions in a dead letter; `None` if unknown.
pub fn transactions_in(letter: &DeadLetter) -> Option<u64> {
    letter.items.as_ref().map(|items| u64::try_from(items.len()).unwrap_or(u64::MAX))
}

/// Returns the seconds since a time in RFC 3339; `None` if it cannot be parsed.
pub fn age_of(rfc3339: &str, now: Timestamp) -> Option<u64> {
    Timestamp::parse(rfc3339).map(|at| now.since(at).as_secs())
}

/// Returns the state of a dead letter as a badge.
pub fn state(letter: &DeadLetter) -> Markup {
    letter.resolution.as_ref().map_or_else(|| badge(Tone::Bad, "open"), |it| badge(Tone::Neutral, &it.kind))
}

/// Returns the page. `question` is a decision that awaits confirmation; `done` is the code of the act that led to the page.
pub fn body(letter: &DeadLetter, viewer: &Viewer, question: Option<Decision>, done: &str) -> Markup {
    let work = Work::of(letter);
    let is_open = letter.resolution.is_none();
    html! {
        @if let Some(resolution) = &letter.resolution { (resolved(resolution, done)) }
        @if is_open {
            (notice(Tone::Bad, "Its work waits for a decision", html! {
                p { strong { (letter.reason) } }
                p { "The work is not posted, and nothing of it is tried again until you replay or discard it." }
            }))
            @match question {
                Some(decision) => { (confirmation(letter, &work, decision, viewer)) }
                None => { (decisions(letter)) }
            }
        }
        (card_with("About the dead letter", state(letter), facts(letter, viewer)))
        (card("Its work", work_of(&work, viewer)))
        (card("History", history(letter)))
        (card("Body of the message", message(letter)))
    }
}

fn resolved(Resolution { kind, by, at }: &Resolution, done: &str) -> Markup {
    let what_now = match &**kind {
        "replayed" => "Its work was enqueued again. What fails again becomes a new dead letter.",
        _ => "Its transactions that were not final are rejected with the reason discarded.",
    };
    let title = match done {
        "replay" | "discard" => format!("The dead letter is {kind}"),
        "before" => format!("It had been {kind} before: nothing was done now"),
        _ => format!("The dead letter was {kind}"),
    };
    let tone = match done {
        "replay" | "discard" => Tone::Good,
        _ => Tone::Notice,
    };
    notice(tone, &title, html! { p { "By " strong { (by) } ", at " (time(at)) ". " (what_now) } })
}

fn decisions(letter: &DeadLetter) -> Markup {
    let page = DEAD_LETTER.of([&letter.id]);
    let link = |decision: Decision| {
        let href = format!("{page}?confirm={}", decision.code());
        button_link(&href, &format!("{}\u{2026}", decision.verb()))
    };
    card(
        "Decide",
        html! {
            p { "If the cause is removed, replay it. If the work must never be posted, discard it." }
            .actions { @for decision in Decision::ALL { (link(decision)) } }
        },
    )
}

fn confirmation(letter: &DeadLetter, work: &Work, decision: Decision, viewer: &Viewer) -> Markup {
    let page = DEAD_LETTER.of([&letter.id]);
    let (title, label) = match decision {
        Decision::Replay => {
            ("Replay the dead letter?", "The cause is removed, or I want to see whether it still exists")
        }
        Decision::Discard => ("Discard the dead letter?", "This work must never be posted"),
    };
    let question = Question {
        title,
        consequence: consequence(letter, work, decision),
        action: &page,
        fields: hidden("act", decision.code()),
        confirmation: Confirmation::Ticked(label),
        button: submit(decision.verb(), decision.tone()),
        back: &page,
    };
    question.ask(&viewer.csrf)
}

/// Describes the consequence of a decision, which depends on the kind of work.
fn consequence(letter: &DeadLetter, work: &Work, decision: Decision) -> Markup {
    let words = match (work, decision) {
        (Work::Transactions(_), _) => {
            return decision.consequence("", transactions_in(letter).unwrap_or_default());
        }
        (Work::Batch(_), Decision::Replay) => {
            "The message about the batch is sent again, and the work of the batch continues. What is posted is not posted again."
        }
        (Work::Batch(_), Decision::Discard) => {
            "No item is rejected. If nothing of the batch is tried because of this message, the batch remains as it is for ever: \
             its open items are never posted, and the partner never gets results. It cannot be undone."
        }
        (Work::Claim(_), Decision::Replay) => {
            "The message is sent again. A worker reads its transactions from the payload store, and posts or rejects those that \
             are not final, exactly once."
        }
        (Work::Claim(_), Decision::Discard) => {
            "No transaction is rejected: they are in the payload store and not in this message. The service enqueues those that \
             are not final again by itself. It cannot be undone."
        }
        (Work::Unknown, Decision::Replay) => {
            "The message is sent to its queue again as it is. If no worker can read it now, it becomes another dead letter."
        }
        (Work::Unknown, Decision::Discard) => {
            "The body cannot be decoded completely. Transactions in it that can be decoded, and that are not final, are rejected \
             with the reason discarded; the partners see that. Otherwise nothing happens. It cannot be undone."
        }
    };
    html! { p { (words) } }
}

fn facts(letter: &DeadLetter, viewer: &Viewer) -> Markup {
    let passed = age_of(&letter.dead_at, viewer.now);
    let transactions = transactions_in(letter);
    definition(&[
        ("Dead letter", copyable(&letter.id)),
        ("Reason", html! { (letter.reason) }),
        ("Queue", html! { a href=(Section::Queues.path()) { (letter.queue) } }),
        ("Deliveries", html! { (format::count(letter.dequeue_count.into())) }),
        ("Sent", time(&letter.inserted_at)),
        (
            "Set aside",
            html! {
                (time(&letter.dead_at))
                @if let Some(seconds) = passed { ", " (age(seconds)) " ago" }
            },
        ),
        ("Transactions", html! { (transactions.map_or_else(|| "not known".to_owned(), format::count)) }),
    ])
}

fn work_of(work: &Work, viewer: &Viewer) -> Markup {
    match work {
        Work::Transactions(keys) => transactions(keys, viewer),
        Work::Batch(key) => {
            let (partner, batch) = (key.partner.to_string(), key.batch.to_string());
            html! {
                p {
                    "The message is about the batch " a href=(BATCH.of([&partner, &batch])) { (id(&batch)) } " of the partner "
                    (partner) ". Look at its progress before you decide."
                }
            }
        }
        Work::Claim(payload) => html! {
            p { "The message claims work in the payload store, in " (id(payload)) ". Its transactions are not in the message." }
        },
        Work::Unknown => html! {
            p {
                "The body is not a message that this version can decode completely: it is from a newer version or a direct producer, \
                 or damaged. The reason says what is wrong with it; the body is below."
            }
        },
    }
}

fn transactions(keys: &[TransactionKey], viewer: &Viewer) -> Markup {
    let shown = keys.get(..TRANSACTIONS_SHOWN_MAX).unwrap_or(keys);
    let table = Table::new("Transactions in the message", shown)
        .text("Transaction", |key| transaction_link(key, viewer))
        .text("Account", |TransactionKey { account, .. }| {
            let (user, account) = (account.user.to_string(), account.account.to_string());
            viewer.account_link(&user, &account, id(&account))
        })
        .text("Partner", |key| viewer.partner_link(key.partner.as_str()));
    let count = |length: usize| format::count(u64::try_from(length).unwrap_or(u64::MAX));
    html! {
        @if !viewer.may(Scope::Admin) {
            p { "To read these transactions, the key needs the scope " code { "admin" } "." }
        }
        (table)
        @if shown.len() < keys.len() { p.muted { "The first " (count(shown.len())) " of " (count(keys.len())) "." } }
    }
}

fn transaction_link(TransactionKey { account, message, .. }: &TransactionKey, viewer: &Viewer) -> Markup {
    let (user, account, message) =
        (account.user.to_string(), account.account.to_string(), message.to_string());
    link_if(viewer.may(Scope::Admin), &TRANSACTION.of([&user, &account, &message]), id(&message))
}

fn history(letter: &DeadLetter) -> Markup {
    let deliveries = counted(letter.dequeue_count, "delivery", "deliveries");
    let deliveries = format!("After {deliveries}: {}", letter.reason);
    let decided = letter
        .resolution
        .as_ref()
        .map(|it| (format!("Dead letter {}", it.kind), format!("By {}", it.by), &it.at));
    let mut events = vec![
        TimelineEvent { time: &letter.inserted_at, title: "Message sent", note: None, tone: Tone::Neutral },
        TimelineEvent { time: &letter.dead_at, title: "Set aside", note: Some(deliveries), tone: Tone::Bad },
    ];
    if let Some((title, by, at)) = &decided {
        events.push(TimelineEvent { time: at, title, note: Some(by.clone()), tone: Tone::Good });
    }
    timeline(&events)
}

fn message(letter: &DeadLetter) -> Markup {
    let size = format::bytes(u64::try_from(letter.body.len()).unwrap_or(u64::MAX));
    html! {
        p.muted { (size) ". Bytes that are not text are replaced." }
        .table-region.message-body role="region" tabindex="0" aria-label="Body of the message" {
            pre { code { (letter.body) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::letter;
    use super::*;
    use crate::console::viewer::tests::viewer;

    /// The body of a message with one transaction, without a seal.
    const OF_TRANSACTION: &str = r#"{"v":1,"items":[{"u":"0b1c6f0a54f24f0c9c642f4b6a3f0d11",
        "c":"77aa0b9e7c2f4c358f0d0a4f6f1f2e22","p":"shop","m":"4f9d0c9e5d3e4c0e9a511b7a4a4e2f10"}]}"#;
    /// The body of a message about a batch.
    const OF_BATCH: &str = r#"{"v":1,"partner":"shop","batch":"1c1d6c9e-5d3e-4c0e-9a51-1b7a4a4e2f10"}"#;

    const ITEM: &str = "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10";

    fn shown(changes: &Value, question: Option<Decision>, done: &str) -> String {
        body(&letter(changes), &viewer(Scope::ALL), question, done).into_string()
    }

    #[test]
    fn transactions_and_batches_are_recognized() {
        let of = |body: &str| Work::of(&letter(&json!({ "body": body })));
        let Work::Transactions(keys) = of(OF_TRANSACTION) else { panic!("no transactions") };
        assert_eq!(keys[0].message.to_string(), "4f9d0c9e-5d3e-4c0e-9a51-1b7a4a4e2f10");
        let Work::Batch(key) = of(OF_BATCH) else { panic!("no batch") };
        assert_eq!(key.to_string(), "shop-1c1d6c9e-5d3e-4c0e-9a51-1b7a4a4e2f10");
        for other in
            ["", "{}", "not a message of the bank", r#"{"v":1,"items":[{}]}"#, r#"{"v":1,"items":[]}"#]
        {
            assert_eq!(of(other), Work::Unknown, "{other}");
        }
    }

    #[test]
    fn an_open_letter_begins_with_its_reason_and_the_decisions() {
        let html = shown(&json!({ "reason": "no <script>", "body": "</pre><script>" }), None, "");
        assert!(html.starts_with("<div class=\"notice\" data-tone=\"bad\""), "{html}");
        assert!(
            html.contains("no &lt;script&gt;")
                && html.contains("&lt;/pre&gt;&lt;script&gt;")
                && !html.contains("<script>")
        );
        for decision in ["replay", "discard"] {
            assert!(
                html.contains(&format!("href=\"/console/dead-letters/letter-1?confirm={decision}\"")),
                "{html}"
            );
        }
        assert!(html.contains("30 min") && !html.contains("<form"), "{html}");
    }

    #[test]
    fn its_transactions_are_linked_for_those_who_may_read_them() {
        let of_one = json!({ "body": OF_TRANSACTION, "items": [ITEM] });
        let html = shown(&of_one, None, "");
        let account =
            "/console/accounts/0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11/77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22";
        assert!(html.contains(&format!("href=\"{account}\"")), "{html}");
        assert!(
            html.contains(&format!("href=\"{account}/{ITEM}\""))
                && html.contains("href=\"/console/partners/shop\"")
        );
        let html = body(&letter(&of_one), &viewer(&[Scope::Operate]), None, "").into_string();
        assert!(
            html.contains(ITEM) && html.contains("<code>admin</code>") && !html.contains("/console/accounts"),
            "{html}"
        );
    }

    #[test]
    fn a_confirmation_names_the_consequence() {
        let check = |changes: &Value, decision, words: &str| {
            let html = shown(changes, Some(decision), "");
            assert!(html.contains(words), "{words}: {html}");
            assert!(
                html.contains("action=\"/console/dead-letters/letter-1\"")
                    && html.contains("name=\"confirm\""),
                "{html}"
            );
            assert!(html.contains(&format!("name=\"act\" value=\"{}\"", decision.code())), "{html}");
        };
        let of_one = json!({ "body": OF_TRANSACTION, "items": [ITEM] });
        check(
            &of_one,
            Decision::Discard,
            "<strong>1 transaction</strong>: those that are not final are rejected",
        );
        check(&of_one, Decision::Replay, "posted or rejected exactly once");
        check(&json!({ "body": OF_BATCH }), Decision::Discard, "the batch remains as it is for ever");
        check(&json!({ "body": OF_BATCH }), Decision::Replay, "href=\"/console/batches/shop/1c1d6c9e");
        check(&json!({}), Decision::Discard, "cannot be decoded completely");
    }

    #[test]
    fn a_resolved_letter_says_who_decided_and_offers_nothing() {
        let resolution = json!({ "kind": "discarded", "by": "ops <b>", "at": "2026-11-21T07:45:00.000Z" });
        let changes = json!({ "resolution": resolution });
        let html = shown(&changes, Some(Decision::Replay), "discard");
        assert!(html.contains("The dead letter is discarded") && html.contains("ops &lt;b&gt;"), "{html}");
        assert!(!html.contains("<form") && !html.contains("waits for a decision"), "{html}");
        assert!(shown(&changes, None, "before").contains("It had been discarded before"));
        assert!(shown(&changes, None, "").contains("The dead letter was discarded"));
    }
}
