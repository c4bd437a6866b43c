//! Page of the scrubber, which checks all rows of the store in rounds: its findings first, then its rounds.

use actix_web::HttpResponse;
use maud::{Markup, html};
use postonce_schemas::json::{Scrubber, ScrubberFinding, ScrubberRecovery, ScrubberRound};
use postonce_shared::domain::ids::{AccountId, UserId, parse_hyphenated};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::oversight::verify::{FindingKind, OVERDUE_AFTER, Severity};

use crate::console::addresses::{ACCOUNT, Section};
use crate::console::html::components::{
    Table, Tone, badge, card, card_with, definition, empty, id, notice, progress, tile, tiles, time,
    toned_tile,
};
use crate::console::html::format::{self, count};
use crate::console::page_error::PageError;
use crate::console::visitor::Visitor;

/// Shows the state of the scrubber.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn show(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let scrubber: Scrubber = visitor.get("/v1/admin/scrubber").await?;
    Ok(visitor.page("Scrubber", body(&scrubber, visitor.viewer().now)))
}

fn body(scrubber: &Scrubber, now: Timestamp) -> Markup {
    html! {
        p.lead {
            "The scrubber walks over all rows of the store again and again. It checks what the bank wrote, and enqueues the work of \
             accepted transactions that have no message."
        }
        (state_notices(scrubber))
        (findings(&scrubber.findings, scrubber.last_round.is_some()))
        (figures(scrubber, now))
        (rounds(scrubber))
        (recovery(scrubber.last_recovery.as_ref()))
        p.small { "This is the state as the process that scrubs last wrote it: up to 15 minutes ago during a round." }
    }
}

/// Returns notices about what stops or delays the scrubber.
fn state_notices(scrubber: &Scrubber) -> Markup {
    html! {
        @if scrubber.operations_per_day == 0 {
            (notice(Tone::Warning, "There are no rounds", html! {
                p {
                    "The setting " code { "scrubber-operations-per-day" } " is 0: rows are not checked, and accepted work whose message \
                     was lost is found only after a process ended without notice, or with " code { "postonce-web recover" } "."
                }
            }))
        } @else if scrubber.process.is_none() {
            (notice(Tone::Notice, "No process scrubs at present", html! {
                p { "A worker takes it over within some minutes. If this stays, look whether a worker runs." }
            }))
        }
        @if let Some(at) = &scrubber.recovery_requested_at {
            (notice(Tone::Notice, "A process ended without notice", html! {
                p {
                    "Since " (time(at)) " all accepted transactions are to be examined at full speed, so that work which that process \
                     had stored and not sent is posted. It begins within 30 minutes."
                }
            }))
        }
    }
}

fn findings(of: &[ScrubberFinding], has_ended: bool) -> Markup {
    if of.is_empty() {
        let help = if has_ended {
            "The last round found every row as the bank wrote it."
        } else {
            "No round has ended yet: the rows that were checked so far are as the bank wrote them."
        };
        return card_with("Findings", badge(Tone::Good, "none"), html! { p { (help) } });
    }
    let defects = of.iter().filter(|finding| tone_of(&finding.kind) == Tone::Bad).count();
    let table = Table::new("Findings", of.iter().rev()).text("Found", |finding| time(&finding.at)).text("Kind", |finding| {
            html! { (badge(tone_of(&finding.kind), severity_in_words(&finding.kind))) br; code { (finding.kind) } }
        }).text("What was found", |finding| finding.text.clone()).text("What to do", what_to_do);
    html! {
        @if defects > 0 {
            (notice(Tone::Bad, "The ledger differs from what the bank wrote", html! {
                p {
                    "Do not repair rows by hand. Audit the whole ledger with " code { "postonce-web verify" } ": exit code 1 means \
                     findings. If they concern balances or order numbers, "
                    a href=(Section::Gate.path()) { "hold the gate" }
                    " until the reason is known, and keep the newest backup."
                }
            }))
        }
        (card("Findings", html! {
            (table)
            p.small {
                "The last findings, the newest first. They stay in this list until newer ones replace them: what was found before the \
                 last round began may be settled."
            }
        }))
    }
}

fn what_to_do(finding: &ScrubberFinding) -> Markup {
    html! {
        (advice(&finding.kind))
        @if let Some((user, account)) = account_of(&finding.text) {
            br; code { "postonce-web verify --account " (user) "/" (account) }
            br; a href=(ACCOUNT.of([user, account])) { "The account" }
        }
    }
}

/// Returns the severity of a kind of finding. An unknown kind, of a newer version, counts as a difference.
fn severity_of(kind: &str) -> Severity {
    let known = FindingKind::ALL.iter().find(|known| known.code() == kind);
    known.map_or(Severity::Finding, |known| known.severity())
}

fn tone_of(kind: &str) -> Tone {
    match severity_of(kind) {
        Severity::Finding => Tone::Bad,
        Severity::Notice => Tone::Notice,
    }
}

fn severity_in_words(kind: &str) -> &'static str {
    match severity_of(kind) {
        Severity::Finding => "difference",
        Severity::Notice => "to know",
    }
}

fn advice(kind: &str) -> &'static str {
    match kind {
        "overdue" => "Accepted work waits: look at the gate, the queues and the dead letters.",
        "never_opened" => {
            "Nothing: a process ended while it opened the account, and its client can repeat the request."
        }
        "fingerprint_unknown" | "register_unknown" => {
            "A newer version wrote it: use that version for all processes."
        }
        "anchor_given_up" => {
            "Nothing after a restore. Otherwise anchors were given up: look at the audit trail."
        }
        "dead_letter_unknown" | "dead_letter_missing" => {
            "Look for the transaction and among the dead letters: it is not decided as long as they disagree."
        }
        "register_unsound" | "order_number_unreserved" | "order_number_repeated" => {
            "Stop all processes, run postonce-web verify, and move the register ahead with postonce-web order-numbers advance."
        }
        "more" => "Run postonce-web verify for the complete list.",
        anchor if anchor.starts_with("anchor") => {
            "Signed decisions were changed, or went back. Compare the store with copies of the anchors: postonce-web verify \
             --anchors FILE."
        }
        audit if audit.starts_with("audit_") => {
            "The audit trail was changed, or went back. Compare its hashes with copies of the anchors."
        }
        batch if batch.starts_with("batch_") => "Compare the batch with its document and its results.",
        _ => "Find out since when, with the backups: each can be audited too.",
    }
}

/// Returns the user and account ids with which the text of a finding begins.
fn account_of(text: &str) -> Option<(&str, &str)> {
    let (account, _) = text.strip_prefix("account ")?.split_once(": ")?;
    let (user, account) = account.split_once('/')?;
    let are_ids = parse_hyphenated::<UserId>(user).is_ok() && parse_hyphenated::<AccountId>(account).is_ok();
    are_ids.then_some((user, account))
}

fn figures(scrubber: &Scrubber, now: Timestamp) -> Markup {
    let oldest = scrubber.oldest_accepted_at.as_deref().and_then(Timestamp::parse).map(|at| now.since(at));
    let oldest = match oldest {
        None => toned_tile(
            Tone::Good,
            "Oldest open transaction",
            "none",
            None,
            Some("Every accepted one was decided"),
        ),
        Some(age) => {
            let tone = if age > OVERDUE_AFTER { Tone::Warning } else { Tone::Neutral };
            let note = "Accepted so long ago, and not decided when a round passed it";
            toned_tile(tone, "Oldest open transaction", &format::duration_s(age.as_secs()), None, Some(note))
        }
    };
    let operations = format::count(scrubber.operations_per_day.into());
    let note = "The limit that is configured; each reads up to 1\u{202f}000 rows";
    html! {
        (tiles(&[oldest, tile("Storage operations", &operations, Some("a day"), Some(note))]))
        @if let Some(at) = &scrubber.oldest_accepted_at {
            p.small { "The oldest open transaction was accepted at " (time(at)) ". It may have been decided since." }
        }
    }
}

fn rounds(scrubber: &Scrubber) -> Markup {
    let Scrubber { round, last_round, process, .. } = scrubber;
    let shown = [("in progress", round.as_ref()), ("last", last_round.as_ref())];
    let rows: Vec<_> = shown.into_iter().filter_map(|(name, round)| Some((name, round?))).collect();
    let table = Table::new("Rounds", &rows)
        .text("Round", |(name, _)| *name)
        .text("Began", |(_, round)| time(&round.started_at))
        .text("Ended", |(_, round)| round.ended_at.as_deref().map_or_else(|| html! { "not yet" }, time))
        .number("Accounts", |(_, round)| count(round.accounts))
        .number("Rows", |(_, round)| count(round.rows))
        .number("Operations", |(_, round)| count(round.operations))
        .number("Findings", |(_, round)| found(round.findings))
        .number("Open transactions", |(_, round)| count(round.accepted))
        .number("Enqueued again", |(_, round)| count(round.enqueued));
    card(
        "Rounds",
        html! {
            @if let Some(round) = round { (in_progress(round)) }
            @if rows.is_empty() {
                (empty("No round yet", html! { p { "The first round begins when a worker runs." } }))
            } @else {
                (table)
                p.small {
                    "A round is the longest time for which accepted work without a message stays unnoticed."
                    @if let Some(process) = process { " Process " (id(process)) " scrubs." }
                }
            }
        },
    )
}

fn in_progress(round: &ScrubberRound) -> Markup {
    let permille = round.progress_permille;
    let (whole, tenth) =
        (permille.checked_div(10).unwrap_or_default(), permille.checked_rem(10).unwrap_or_default());
    let end = round.expected_end.as_deref().map(format::instant);
    let end = end.map_or_else(String::new, |end| format!(", probably until {end}"));
    progress("Round in progress", permille, &format!("{whole}.{tenth} %{end}"))
}

fn found(findings: u64) -> Markup {
    let number = count(findings);
    if findings > 0 {
        badge(Tone::Bad, &number)
    } else {
        html! { (number) }
    }
}

fn recovery(last: Option<&ScrubberRecovery>) -> Markup {
    let Some(ScrubberRecovery { requested_at, ended_at, examined, enqueued, damaged }) = last else {
        return html! {};
    };
    let number = |number: &u64| html! { (format::count(*number)) " transactions" };
    card(
        "Last examination after a process ended without notice",
        html! {
            @if *damaged > 0 {
                (notice(Tone::Bad, "Accepted transactions cannot be read", html! {
                    p { "They cannot be posted. Run " code { "postonce-web verify" } "." }
                }))
            }
            (definition(&[
                ("Requested", time(requested_at)),
                ("Ended", time(ended_at)),
                ("Examined", number(examined)),
                ("Enqueued again", number(enqueued)),
                ("Unreadable", number(damaged)),
            ]))
        },
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const USER: &str = "0b1c6f0a-54f2-4f0c-9c64-2f4b6a3f0d11";
    const ACCOUNT: &str = "77aa0b9e-7c2f-4c35-8f0d-0a4f6f1f2e22";

    fn shown(changes: Value) -> String {
        let mut scrubber = json!({ "operations_per_day": 10_000, "process": "p-1", "findings": [] });
        scrubber.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let now = Timestamp::parse("2026-11-21T08:00:00Z").unwrap();
        body(&serde_json::from_value(scrubber).unwrap(), now).into_string()
    }

    fn round(findings: u64, ended_at: Option<&str>) -> Value {
        let mut round = json!({
            "started_at": "2026-11-21T07:00:00.000Z", "progress_permille": 423, "accounts": 12_345, "rows": 67_890,
            "operations": 70, "findings": findings, "accepted": 3, "enqueued": 1
        });
        match ended_at {
            Some(at) => round["ended_at"] = at.into(),
            None => round["expected_end"] = "2026-11-21T09:00:00.000Z".into(),
        }
        round
    }

    #[test]
    fn a_sound_store_says_so() {
        let html = shown(json!({ "last_round": round(0, Some("2026-11-21T07:30:00.000Z")) }));
        assert!(html.contains("as the bank wrote it") && html.contains("12\u{202f}345"));
        assert!(html.contains("Every accepted one was decided") && html.contains("2026-11-21 07:30:00 UTC"));
        assert!(!html.contains("data-tone=\"bad\"") && !html.contains("<progress"));
        assert!(shown(json!({})).contains("No round yet"));
    }

    #[test]
    fn a_round_in_progress_has_an_end() {
        let html =
            shown(json!({ "round": round(0, None), "oldest_accepted_at": "2026-11-21T07:40:00.000Z" }));
        assert!(
            html.contains("42.3 %, probably until 2026-11-21 09:00:00 UTC") && html.contains("value=\"423\"")
        );
        assert!(html.contains("20 min") && html.contains("data-tone=\"warning\""));
    }

    #[test]
    fn findings_come_first_with_what_to_do() {
        let text = format!("account {USER}/{ACCOUNT}: entry 17: the balance <script>");
        let found =
            |kind: &str, text: &str| json!({ "at": "2026-11-21T07:10:00.000Z", "kind": kind, "text": text });
        let html = shown(json!({
            "findings": [found("overdue", "waits"), found("entry_balance", &text)], "round": round(2, None)
        }));
        assert!(html.find("The ledger differs").unwrap() < html.find("Storage operations").unwrap());
        assert!(html.contains(&format!("postonce-web verify --account {USER}/{ACCOUNT}")));
        assert!(html.contains(&format!(r#"href="/console/accounts/{USER}/{ACCOUNT}""#)));
        assert!(html.contains("&lt;script&gt;") && !html.contains("<script>"));
        assert!(
            html.find("entry_balance").unwrap() < html.find("<code>overdue</code>").unwrap(),
            "the newest first"
        );
        let only_notice = shown(json!({ "findings": [found("overdue", "waits")] }));
        assert!(!only_notice.contains("The ledger differs") && only_notice.contains("to know"));
        assert_eq!(tone_of("of a newer version"), Tone::Bad);
    }

    #[test]
    fn what_keeps_it_from_working_is_said() {
        assert!(shown(json!({ "operations_per_day": 0 })).contains("There are no rounds"));
        assert!(shown(json!({ "process": null })).contains("No process scrubs at present"));
        let html = shown(json!({
            "recovery_requested_at": "2026-11-21T07:50:00.000Z",
            "last_recovery": {
                "requested_at": "2026-11-20T07:50:00.000Z", "ended_at": "2026-11-20T07:55:00.000Z", "examined": 1_000,
                "enqueued": 2, "damaged": 1
            }
        }));
        assert!(
            html.contains("A process ended without notice")
                && html.contains("Accepted transactions cannot be read")
        );
    }

    #[test]
    fn only_accounts_are_linked() {
        let both = format!("account {USER}/{ACCOUNT}: the page cannot be read");
        assert_eq!(account_of(&both), Some((USER, ACCOUNT)));
        for other in ["audit row 1: x", "account 1/2: x", "account ../..: x", ""] {
            assert_eq!(account_of(other), None, "{other}");
        }
    }
}
