//! Dead letters: the list with its reasons, a dead letter with its work, and decisions about one or about all with a reason.

mod all;
mod decision;
mod detail;
mod list;
mod work;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use postonce_schemas::json::{DeadLetter, DeadLetterPage};

use self::decision::Decision;
use self::detail::Viewer;
use self::list::Listing;
use crate::console::act::{Act, CONFIRMED, Values};
use crate::console::addresses::{cursor_parameter, encoded};
use crate::console::html::shell::Section;
use crate::console::page_error::PageError;
use crate::console::visitor::Visitor;

/// Number of dead letters on a page. Each contains its body.
const PAGE_LEN: usize = 50;
const API: &str = "/v1/admin/dead-letters";

/// Returns the address of the page of a dead letter.
pub fn letter_path(id: &str) -> String {
    format!("{}/{}", Section::DeadLetters.path(), encoded(id))
}

/// Maximum number of empty API pages that are skipped for one page of the console.
const EMPTY_PAGES_MAX: usize = 50;

/// Lists the dead letters. The query can request the confirmation of a decision about all with the reason of one of them.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn list(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let query = Values::of_query(visitor.request());
    let with_resolved = query.text("resolved") == "include";
    let resolved = if with_resolved { "&resolved=include" } else { "" };
    let cursor = query.given("cursor");
    let read = async |cursor: Option<&str>| {
        let cursor = cursor_parameter(cursor);
        visitor.get::<DeadLetterPage>(&format!("{API}?limit={PAGE_LEN}{resolved}{cursor}")).await
    };
    let mut page = read(cursor).await?;
    // A page of the API can be empty before the end.
    for _ in 0..EMPTY_PAGES_MAX {
        let Some(next) = page.next_cursor.take_if(|_| page.dead_letters.is_empty()) else { break };
        page = read(Some(&next)).await?;
    }
    let question = match Decision::of_code(query.text("confirm")).zip(query.given("like")) {
        None => None,
        Some((decision, like)) => {
            let letter: DeadLetter = visitor.get(&format!("{API}/{}", encoded(like))).await?;
            Some(all::question(&visitor, decision, &letter.reason).await?)
        }
    };
    let listing = Listing { page: &page, with_resolved, is_first: cursor.is_none() };
    let body = list::body(&listing, question.as_ref(), Viewer::of(&visitor));
    Ok(visitor.page(Section::DeadLetters, "Dead letters", body))
}

/// Shows a dead letter. The query can request the confirmation of a decision about it.
///
/// # Errors
/// [`PageError`] with the problem that the API answers.
pub async fn show(visitor: Visitor) -> Result<HttpResponse, PageError> {
    let query = Values::of_query(visitor.request());
    let letter: DeadLetter = visitor.get(&format!("{API}/{}", encoded(id_of(&visitor)))).await?;
    let question = Decision::of_code(query.text("confirm"));
    let body = detail::body(&letter, Viewer::of(&visitor), question, query.text("done"));
    Ok(visitor.page(Section::DeadLetters, "Dead letter", body))
}

/// Replays or discards a dead letter.
///
/// # Errors
/// [`PageError`] when the confirmation is missing, or the API refuses.
pub async fn decide(act: Act) -> Result<HttpResponse, PageError> {
    let visitor = &act.visitor;
    let decision = decision_of(&act)?;
    act.check_confirmed(CONFIRMED)?;
    let id = id_of(visitor);
    let page = letter_path(id);
    match visitor.attempt::<DeadLetter>((decision.method(), &decision.path(id)), None).await? {
        Ok(_) => Ok(visitor.see_other(&format!("{page}?done={}", decision.code()))),
        // Another operator decided in the meantime; the page shows the decision.
        Err(problem) if problem.code == decision::RESOLVED => {
            Ok(visitor.see_other(&format!("{page}?done=before")))
        }
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
    act.check_confirmed(decision.confirmation())?;
    let Some(reason) = act.form.given("reason") else {
        let detail = "The form does not say which dead letters are meant.";
        return Err(visitor.refuse(StatusCode::UNPROCESSABLE_ENTITY, "Nothing was done", detail));
    };
    let outcome = all::decide(visitor, decision, reason).await?;
    let body = all::body(&outcome, decision, reason);
    Ok(visitor.page(Section::DeadLetters, decision.title_of_all(), body))
}

/// # Errors
/// [`PageError`] when the form names no decision.
fn decision_of(act: &Act) -> Result<Decision, PageError> {
    Decision::of_code(act.form.text("act")).ok_or_else(|| {
        let detail = "The form does not say whether to replay or to discard.";
        act.visitor.refuse(StatusCode::UNPROCESSABLE_ENTITY, "Nothing was done", detail)
    })
}

fn id_of(visitor: &Visitor) -> &str {
    visitor.request().match_info().query("id")
}

#[cfg(test)]
mod tests {
    use postonce_shared::domain::time::Timestamp;
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

    /// Returns a viewer with all rights.
    pub fn viewer() -> Viewer<'static> {
        let now = Timestamp::parse("2026-11-21T08:00:00Z").unwrap();
        Viewer { csrf: "token", administers: true, reads_accounts: true, reads_partners: true, now }
    }

    #[test]
    fn ids_in_addresses_are_one_segment() {
        assert_eq!(letter_path("a/b c"), "/console/dead-letters/a%2Fb%20c");
    }
}
