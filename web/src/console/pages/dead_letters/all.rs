//! Decision about all open dead letters with one reason: confirmation, requests, and result.

use std::time::Duration;

use actix_web::http::Method;
use futures::stream::{self, StreamExt as _};
use maud::{Markup, html};
use postonce_schemas::json::{DeadLetter, DeadLetterPage, Problem};
use postonce_shared::domain::time::Timestamp;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::API;
use super::decision::{Decision, RESOLVED};
use super::detail::transactions_in;
use crate::console::addresses::{DEAD_LETTER, Section, with_query};
use crate::console::html::components::{
    Table, Tone, button_link, card, copyable, id, notice, tile, tiles, toned_tile,
};
use crate::console::html::format::{self, counted};
use crate::console::html::forms::{Question, hidden, submit};
use crate::console::page_error::PageError;
use crate::console::viewer::Viewer;
use crate::console::visitor::Visitor;

const PAGE_LEN: usize = 100;
/// Maximum number of pages that are read to count the dead letters with a reason.
const COUNTED_PAGES_MAX: usize = 20;
/// Number of concurrent decisions.
const AT_ONCE: usize = 8;
/// Time after which no further page of dead letters is decided, because browsers and proxies limit the wait.
const TIME_MAX: Duration = Duration::from_secs(20);
/// Maximum number of attempts at a request that the partner's rate limit refuses, and the time between two of them.
const ATTEMPTS_MAX: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// Code of such a refusal.
const RATE_LIMITED: &str = "rate_limited";
const FAILURES_SHOWN_MAX: usize = 50;

/// Dead letters that a decision affects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Affected {
    /// The decision.
    pub decision: Decision,
    /// Reason of the dead letters.
    pub reason: String,
    /// Number of open dead letters with the reason.
    pub letters: u64,
    /// Number of their transactions, as far as known.
    pub transactions: u64,
    /// Number of those dead letters whose transactions are unknown.
    pub unknown: u64,
    /// Whether all open dead letters were counted.
    pub is_complete: bool,
}

impl Affected {
    fn of(decision: Decision, reason: &str) -> Self {
        let reason = reason.to_owned();
        Self { decision, reason, letters: 0, transactions: 0, unknown: 0, is_complete: true }
    }

    fn count(&mut self, letter: &DeadLetter) {
        if !has_reason(letter, &self.reason) {
            return;
        }
        self.letters = self.letters.saturating_add(1);
        match transactions_in(letter) {
            Some(count) => self.transactions = self.transactions.saturating_add(count),
            None => self.unknown = self.unknown.saturating_add(1),
        }
    }
}

/// Counts the dead letters and transactions that a decision would affect.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn affected(visitor: &Visitor, decision: Decision, reason: &str) -> Result<Affected, PageError> {
    let mut affected = Affected::of(decision, reason);
    let mut cursor: Option<String> = None;
    for _ in 0..COUNTED_PAGES_MAX {
        let page: DeadLetterPage = visitor.get(&page_path(cursor.as_deref())).await?;
        page.dead_letters.iter().for_each(|letter| affected.count(letter));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(affected);
        }
    }
    Ok(Affected { is_complete: false, ..affected })
}

/// Result of a decision about all dead letters with a reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Number of dead letters that were decided by this request.
    pub done: u64,
    /// Number of dead letters that had been decided before.
    pub before: u64,
    /// Number of dead letters for which the request failed. They may still be open.
    pub failed: u64,
    /// Ids of the first of these, with their problems.
    pub failures: Vec<(String, Problem)>,
    /// Whether time ran out before all were decided.
    pub is_cut: bool,
    /// Problem that prevented the listing of the remaining dead letters.
    pub unlisted: Option<Problem>,
}

impl Outcome {
    fn add(&mut self, letter: String, decided: Result<(), Problem>) {
        match decided {
            Ok(()) => self.done = self.done.saturating_add(1),
            Err(problem) if problem.code == RESOLVED => self.before = self.before.saturating_add(1),
            Err(problem) => {
                self.failed = self.failed.saturating_add(1);
                if self.failures.len() < FAILURES_SHOWN_MAX {
                    self.failures.push((letter, problem));
                }
            }
        }
    }

    const fn is_complete(&self) -> bool {
        self.failed == 0 && !self.is_cut && self.unlisted.is_none()
    }
}

/// Decides about the open dead letters with a reason. Skips letters that are added later,
/// because failing work would be decided about repeatedly.
///
/// # Errors
/// [`PageError`] when the API gives no answer, or the session ends.
pub async fn decide(visitor: &Visitor, decision: Decision, reason: &str) -> Result<Outcome, PageError> {
    let world = &visitor.console().world;
    let (begun, until) = (world.now(), world.uptime().saturating_add(TIME_MAX));
    let mut outcome = Outcome::default();
    let mut cursor: Option<String> = None;
    loop {
        let path = page_path(cursor.as_deref());
        let page = persistent::<DeadLetterPage>(visitor, Method::GET, &path).await?;
        let DeadLetterPage { dead_letters, next_cursor } = match page {
            Ok(page) => page,
            Err(problem) => return Ok(Outcome { unlisted: Some(problem), ..outcome }),
        };
        let wanted = dead_letters.into_iter().filter(|it| has_reason(it, reason) && was_before(it, begun));
        let decisions = stream::iter(wanted.map(|letter| one(visitor, decision, letter.id)));
        let decided: Vec<_> = decisions.buffered(AT_ONCE).collect().await;
        for result in decided {
            let (letter, result) = result?;
            outcome.add(letter, result);
        }
        cursor = next_cursor;
        if cursor.is_none() {
            return Ok(outcome);
        }
        if world.uptime() >= until {
            return Ok(Outcome { is_cut: true, ..outcome });
        }
    }
}

async fn one(
    visitor: &Visitor,
    decision: Decision,
    letter: String,
) -> Result<(String, Result<(), Problem>), PageError> {
    let decided = persistent::<IgnoredAny>(visitor, decision.method(), &decision.path(&letter)).await?;
    Ok((letter, decided.map(|IgnoredAny| ())))
}

/// Makes a request, and repeats it while the rate limit of the partner refuses it.
async fn persistent<T: DeserializeOwned>(
    visitor: &Visitor,
    method: Method,
    path: &str,
) -> Result<Result<T, Problem>, PageError> {
    let mut attempts = 1_u32;
    loop {
        let answer = visitor.attempt::<T>((method.clone(), path), None).await?;
        let is_limited = answer.as_ref().err().is_some_and(|problem| problem.code == RATE_LIMITED);
        if !is_limited || attempts >= ATTEMPTS_MAX {
            return Ok(answer);
        }
        attempts = attempts.saturating_add(1);
        visitor.console().world.sleep(PAUSE).await;
    }
}

fn page_path(cursor: Option<&str>) -> String {
    with_query(&format!("{API}?limit={PAGE_LEN}"), &[("cursor", cursor)])
}

/// Returns whether a dead letter has a reason from a form, which has CR LF at line ends and is trimmed.
fn has_reason(letter: &DeadLetter, reason: &str) -> bool {
    let as_sent = |text: &str| text.replace("\r\n", "\n").trim().to_owned();
    as_sent(&letter.reason) == as_sent(reason)
}

fn was_before(letter: &DeadLetter, time: Timestamp) -> bool {
    Timestamp::parse(&letter.dead_at).is_none_or(|at| at <= time)
}

/// Returns the question whether to decide so.
pub fn question(affected: &Affected, viewer: &Viewer) -> Markup {
    let Affected { decision, reason, letters, transactions, unknown, is_complete } = affected;
    let list = Section::DeadLetters.path();
    if *letters == 0 && *is_complete {
        let body = html! { p { "No open dead letter has the reason any more: all of them are resolved." } };
        return notice(Tone::Notice, "Nothing is left to decide", body);
    }
    let at_least = if *is_complete { "" } else { "at least " };
    let all = match *letters {
        0 => "an unknown number of dead letters".to_owned(),
        found => format!("{at_least}{}", counted(found, "dead letter", "dead letters")),
    };
    let consequence = html! {
        p { "All open dead letters with this reason: " strong { (all) } "." }
        p { code { (reason) } }
        @if *transactions > 0 { (decision.consequence(at_least, *transactions)) }
        @if *unknown > 0 { (of_unknown(*decision, *unknown)) }
        p { "It may take a while. Dead letters that are added meanwhile are left as they are." }
    };
    let question = Question {
        title: &format!("{} {all}?", decision.verb()),
        consequence,
        action: list,
        fields: html! { (hidden("act", decision.code())) (hidden("reason", reason)) },
        confirmation: decision.confirmation_of_all(),
        button: submit(&format!("{} all with this reason", decision.verb()), decision.tone()),
        back: list,
    };
    question.ask(&viewer.csrf)
}

/// Explains the effect on dead letters whose transactions are unknown.
fn of_unknown(decision: Decision, unknown: u64) -> Markup {
    let count = counted(unknown, "dead letter", "dead letters");
    html! {
        p {
            "Of " strong { (count) } " the transactions are not counted: they are about batches, claim work in the payload \
             store, or cannot be decoded. "
            @match decision {
                Decision::Replay => { "Their messages are sent again." }
                Decision::Discard => { "A batch that waits for the replay of one of them remains as it is for ever." }
            }
        }
    }
}

/// Returns the page with the result of a decision.
pub fn body(outcome: &Outcome, decision: Decision, reason: &str) -> Markup {
    let Outcome { done, before, failed, failures, is_cut, unlisted } = outcome;
    let list = Section::DeadLetters.path();
    let failed_tone = if *failed == 0 { Tone::Neutral } else { Tone::Bad };
    html! {
        @if outcome.is_complete() {
            (notice(Tone::Good, &format!("{} {}", counted(*done, "dead letter", "dead letters"), decision.participle()), html! {
                p { "No open dead letter with this reason is left, except those that were added meanwhile." }
            }))
        }
        @if let Some(problem) = unlisted {
            (notice(Tone::Bad, "Not all dead letters were reached", html! {
                p { (problem.title) ": " (problem.detail) }
                p { "The others are still open. Repeat the act when the API answers again: what is done is not done twice." }
            }))
        }
        @if *is_cut {
            (notice(Tone::Warning, "There was no time for all", html! {
                p { "The rest is still open. Repeat the act from the list: what is done is not done twice." }
            }))
        }
        (tiles(&[
            tile("Decided now", &format::count(*done), None, Some(decision.participle())),
            tile("Resolved before", &format::count(*before), None, Some("by another operator, and not changed")),
            toned_tile(failed_tone, "Failed", &format::count(*failed), None, Some("still open")),
        ]))
        (card("The reason", html! {
            p { code { (reason) } }
            p { "Each decision is an act of your key in the audit trail." }
            @if decision == Decision::Replay {
                p { "Replayed work is normally decided within seconds. What fails again becomes a new dead letter." }
            }
            p { (button_link(list, "Back to the dead letters")) }
        }))
        @if !failures.is_empty() { (failed_letters(failures, *failed)) }
    }
}

fn failed_letters(failures: &[(String, Problem)], count: u64) -> Markup {
    let table = Table::new("Dead letters about which the decision failed", failures)
        .text("Dead letter", |(letter, _)| {
            html! { a href=(DEAD_LETTER.of([letter])) { (id(letter)) } }
        })
        .text("Problem", |(_, problem)| html! { strong { (problem.title) } " " (problem.detail) })
        .text("Request", |(_, problem)| problem.request_id.as_deref().map(copyable).unwrap_or_default());
    let shown = u64::try_from(failures.len()).unwrap_or(u64::MAX);
    card(
        "Those that failed",
        html! {
            (table)
            @if shown < count { p.muted { "These are the first " (format::count(shown)) " of " (format::count(count)) "." } }
        },
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::letter;
    use super::*;
    use crate::console::viewer::tests::viewer;

    fn problem(code: &str) -> Problem {
        serde_json::from_value(json!({
            "type": format!("urn:postonce:problem:{code}"), "title": "T", "status": 503, "detail": "D <script>", "code": code,
            "request_id": "r-1"
        }))
        .unwrap()
    }

    #[test]
    fn letters_of_the_same_reason_are_counted() {
        let mut affected = Affected::of(Decision::Discard, "a\nb");
        for letter in [
            letter(&json!({ "reason": "a\nb", "items": ["x", "y"] })),
            letter(&json!({ "reason": "a\r\nb " })),
            letter(&json!({ "reason": "a b", "items": ["x"] })),
        ] {
            affected.count(&letter);
        }
        assert_eq!((affected.letters, affected.transactions, affected.unknown), (2, 2, 1));
        let html = question(&affected, &viewer(&[])).into_string();
        for part in [
            "Discard 2 dead letters?",
            "<strong>2 transactions</strong>",
            "It cannot be undone.",
            "remains as it is for ever",
            "data-confirm=\"discard\"",
            "name=\"csrf\" value=\"token\"",
            "name=\"reason\" value=\"a\nb\"",
        ] {
            assert!(html.contains(part), "{part}: {html}");
        }
    }

    #[test]
    fn a_question_that_is_not_complete_or_empty_says_so() {
        let affected =
            Affected { letters: 2_000, is_complete: false, ..Affected::of(Decision::Replay, "<script>") };
        let html = question(&affected, &viewer(&[])).into_string();
        assert!(
            html.contains("at least 2\u{202f}000 dead letters") && html.contains("name=\"confirm\""),
            "{html}"
        );
        assert!(!html.contains("<script>"));
        // The letters with the reason may follow after the counted ones.
        let beyond = Affected { is_complete: false, ..Affected::of(Decision::Replay, "x") };
        let html = question(&beyond, &viewer(&[])).into_string();
        assert!(
            html.contains("Replay an unknown number of dead letters?") && html.contains("<form"),
            "{html}"
        );
        let html = question(&Affected::of(Decision::Replay, "x"), &viewer(&[])).into_string();
        assert!(html.contains("Nothing is left to decide") && !html.contains("<form"));
    }

    #[test]
    fn results_are_counted_and_failures_are_listed() {
        let mut outcome = Outcome::default();
        outcome.add("a".to_owned(), Ok(()));
        outcome.add("b".to_owned(), Err(problem(RESOLVED)));
        assert!(body(&outcome, Decision::Replay, "r").into_string().contains("1 dead letter replayed"));
        outcome.add("c".to_owned(), Err(problem("storage_unavailable")));
        assert_eq!((outcome.done, outcome.before, outcome.failed), (1, 1, 1));
        let html = body(&outcome, Decision::Replay, "<script>").into_string();
        assert!(
            html.contains("href=\"/console/dead-letters/c\"") && html.contains("D &lt;script&gt;"),
            "{html}"
        );
        assert!(!html.contains("<script>") && !html.contains("1 dead letter replayed"));
    }

    #[test]
    fn a_walk_that_ended_early_says_what_is_left() {
        let cut = Outcome { done: 7, is_cut: true, ..Outcome::default() };
        assert!(body(&cut, Decision::Discard, "r").into_string().contains("There was no time for all"));
        let unlisted = Outcome { unlisted: Some(problem("overloaded")), ..Outcome::default() };
        assert!(
            body(&unlisted, Decision::Discard, "r")
                .into_string()
                .contains("Not all dead letters were reached")
        );
    }

    #[test]
    fn work_that_fails_again_is_not_decided_about_again() {
        let letter = letter(&json!({ "dead_at": "2026-11-21T08:00:00.001Z" }));
        let at = |text: &str| Timestamp::parse(text).unwrap();
        assert!(was_before(&letter, at("2026-11-21T08:00:00.001Z")));
        assert!(!was_before(&letter, at("2026-11-21T08:00:00.000Z")));
    }
}
