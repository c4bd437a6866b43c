//! Dead letters: the list with its reasons, a dead letter with its work, and decisions about one or about all with a reason.

mod all;
mod decision;
mod detail;
mod list;

use actix_web::HttpResponse;
use postonce_schemas::json::{DeadLetter, DeadLetterPage};

use self::decision::Decision;
use self::list::Listing;
use crate::console::act::Act;
use crate::console::addresses::{DEAD_LETTER, encoded, with_query};
use crate::console::html::forms::TICKED;
use crate::console::page_error::PageError;
use crate::console::visitor::Visitor;

/// Number of dead letters on a page. Each contains its body.
const PAGE_LEN: usize = 50;
const API: &str = "/v1/admin/dead-letters";

/// Maximum number of empty API pages that are skipped for one page of the console.
const EMPTY_PAGES_MAX: usize = 50;

/// Lists the dead letters. The query can request the confirmation of a decision about all with the reason of one of them.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn list(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let query = visitor.query();
    let with_resolved = query.text("resolved") == "include";
    let cursor = query.given("cursor");
    let read = async |cursor: Option<&str>| {
        let parameters = [("resolved", with_resolved.then_some("include")), ("cursor", cursor)];
        let path = with_query(&format!("{API}?limit={PAGE_LEN}"), &parameters);
        visitor.get::<DeadLetterPage>(&path).await
    };
    let mut page = read(cursor).await?;
    // A page of the API can be empty before the end.
    for _ in 0..EMPTY_PAGES_MAX {
        let Some(next) = page.next_cursor.take_if(|_| page.dead_letters.is_empty()) else { break };
        page = read(Some(&next)).await?;
    }
    let asked = match Decision::of_code(query.text("confirm")).zip(query.given("like")) {
        None => None,
        Some((decision, like)) => {
            let letter: DeadLetter = visitor.get(&format!("{API}/{}", encoded(like))).await?;
            Some(all::affected(&visitor, decision, &letter.reason).await?)
        }
    };
    let listing = Listing { page: &page, with_resolved, is_first: cursor.is_none() };
    let body = list::body(&listing, asked.as_ref(), visitor.viewer());
    Ok(visitor.page("Dead letters", body))
}

/// Shows a dead letter. The query can request the confirmation of a decision about it.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn show(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let query = visitor.query();
    let letter: DeadLetter = visitor.get(&format!("{API}/{}", encoded(visitor.path("id")))).await?;
    let question = Decision::of_code(query.text("confirm"));
    let body = detail::body(&letter, visitor.viewer(), question, query.text("done"));
    Ok(visitor.page("Dead letter", body))
}

/// Replays or discards a dead letter.
///
/// # Errors
/// [`PageError`] when the confirmation is missing, or the API refuses.
pub async fn decide(act: Act) -> Result<HttpResponse, PageError> {
    let visitor = &act.visitor;
    let decision = decision_of(&act)?;
    act.check_confirmed(TICKED)?;
    let id = visitor.path("id");
    let page = DEAD_LETTER.of([id]);
    match visitor.attempt::<DeadLetter>((decision.method(), &decision.path(id)), None).await? {
        Ok(_) => Ok(act.done(&page, decision.code())),
        // Another operator decided in the meantime; the page shows the decision.
        Err(problem) if problem.code == decision::RESOLVED => Ok(act.done(&page, "before")),
        Err(problem) => Err(visitor.refused(&problem)),
    }
}

/// Replays or discards all open dead letters with one reason.
///
/// # Errors
/// [`PageError`] when the confirmation is missing, or the session ends.
pub async fn decide_all(act: Act) -> Result<HttpResponse, PageError> {
    let visitor = &act.visitor;
    let decision = decision_of(&act)?;
    act.check_confirmed(decision.confirmation_of_all().value())?;
    let Some(reason) = act.form.given("reason") else {
        return Err(act.incomplete("The form does not say which dead letters are meant."));
    };
    let outcome = all::decide(visitor, decision, reason).await?;
    let body = all::body(&outcome, decision, reason);
    Ok(visitor.page(decision.title_of_all(), body))
}

/// # Errors
/// [`PageError`] when the form names no decision.
fn decision_of(act: &Act) -> Result<Decision, PageError> {
    let decision = Decision::of_code(act.form.text("act"));
    decision.ok_or_else(|| act.incomplete("The form does not say whether to replay or to discard."))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns an open dead letter with changed members.
    pub fn letter(changes: &Value) -> DeadLetter {
        let mut letter = json!({
            "id": "letter-1", "queue": "work-0", "reason": "the message was delivered 5 times without success",
            "dequeue_count": 5, "inserted_at": "2026-11-21T07:00:00.000Z", "dead_at": "2026-11-21T07:30:00.000Z",
            "body": "not a message of the bank", "resolution": null
        });
        letter.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(letter).unwrap()
    }
}
