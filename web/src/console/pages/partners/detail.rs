//! Page of a partner: its terms, its keys, and the confirmation of acts on it.

use maud::{Markup, html};
use postonce_schemas::json::{Partner, PartnerAccount, PartnerKey};

use super::keys::{self, Validity};
use super::list::{rate_in_words, reach_in_words, status_badge};
use crate::access::scopes::Scope;
use crate::console::addresses::{ACCOUNT, PARTNER, Section, accounts_of};
use crate::console::html::components::{
    Table, Tone, button_link, card, card_with, definition, empty, id, notice, time,
};
use crate::console::html::format::counted;
use crate::console::html::forms::{Confirmation, Question, hidden, submit};
use crate::console::values::Values;
use crate::console::viewer::Viewer;

/// Act that awaits confirmation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked<'a> {
    /// Suspend the partner.
    Suspend,
    /// Resume the partner.
    Resume,
    /// Revoke this key.
    Revoke(&'a PartnerKey),
}

impl<'a> Asked<'a> {
    /// Returns the act that a query requests, if it is possible in the current state of the partner.
    pub fn of_query(query: &Values, partner: &'a Partner) -> Option<Self> {
        let is_suspended = partner.status == "suspended";
        match query.text("confirm") {
            "suspend" if !is_suspended => Some(Self::Suspend),
            "resume" if is_suspended => Some(Self::Resume),
            "revoke" => {
                let key = query.text("key");
                partner.keys.iter().find(|known| known.key_id == key).map(Self::Revoke)
            }
            _ => None,
        }
    }
}

/// Returns the page. `done` is the code of the act that led to it.
pub fn body(partner: &Partner, viewer: &Viewer, asked: Option<&Asked<'_>>, done: &str) -> Markup {
    html! {
        @if let Some(done) = done_notice(partner, done) { (done) }
        @match asked {
            Some(Asked::Suspend) => (status_question(partner, viewer, true)),
            Some(Asked::Resume) => (status_question(partner, viewer, false)),
            Some(Asked::Revoke(key)) => (keys::revoke_question(partner, key, viewer)),
            None => {},
        }
        (state_notices(partner, viewer))
        (rest(partner, viewer, asked.is_some()))
        (keys::add_card(partner, viewer, None))
    }
}

/// Returns the page of the partner with the form first, because its values were refused.
pub fn form_again(
    partner: &Partner,
    viewer: &Viewer,
    entered: &keys::Entered,
    wrong: &keys::Wrong,
) -> Markup {
    html! {
        (notice(Tone::Bad, "No key was added", html! { p { "Correct the form, and send it again." } }))
        (keys::add_card(partner, viewer, Some((entered, wrong))))
        (rest(partner, viewer, false))
    }
}

/// Returns the lower part of the page: terms, keys, signature keys and reach.
fn rest(partner: &Partner, viewer: &Viewer, has_question: bool) -> Markup {
    html! {
        (card_with("Terms", status_badge(&partner.status), terms(partner, viewer, has_question)))
        (keys::list_card(partner, viewer))
        (signature_card(partner))
        (reach_card(partner))
    }
}

fn done_notice(partner: &Partner, done: &str) -> Option<Markup> {
    let (name, is_suspended) = (&partner.partner_id, partner.status == "suspended");
    let everywhere = "A process that cannot be reached does so within 5 minutes.";
    let (title, text) = match done {
        "suspended" if is_suspended => {
            (format!("{name} is suspended"), "Every process refuses its requests now.")
        }
        "resumed" if !is_suspended => {
            (format!("{name} is active again"), "Every process accepts its requests now.")
        }
        "revoked" => ("The key is revoked".to_owned(), "Every process refuses it now."),
        _ => return None,
    };
    Some(notice(Tone::Good, &title, html! { p { (text) " " (everywhere) } }))
}

/// Returns notices about current and imminent problems of the partner.
fn state_notices(partner: &Partner, viewer: &Viewer) -> Markup {
    let validities: Vec<Validity> = partner.keys.iter().map(|key| Validity::of(key, viewer.now)).collect();
    let works = |validity: &Validity| *validity != Validity::Ended;
    let ends_soon = validities.iter().any(|validity| matches!(validity, Validity::EndsSoon(_)));
    html! {
        @if partner.status == "suspended" {
            (notice(Tone::Warning, "The partner is suspended", html! {
                p { "All its requests are refused. What was accepted before is posted nevertheless." }
                @if !may_resume(partner, viewer) {
                    p { "It was suspended with the scope " code { "admin" } ", so it is resumed with a key of that scope, or on the command line." }
                }
            }))
        }
        @if !validities.iter().any(works) {
            (notice(Tone::Warning, "The partner has no valid API key", html! {
                p { "It cannot send requests. Add a key below." }
            }))
        } @else if ends_soon {
            (notice(Tone::Warning, "An API key expires soon", html! {
                p { "Add a new key, give it to the partner, and revoke the old one when it is not used any more." }
            }))
        }
    }
}

fn terms(partner: &Partner, viewer: &Viewer, has_question: bool) -> Markup {
    let path = PARTNER.of([&partner.partner_id]);
    let is_own = partner.partner_id == viewer.partner;
    let (act, words) =
        if partner.status == "suspended" { ("resume", "Resume") } else { ("suspend", "Suspend") };
    let signatures = if partner.signature_required {
        "required: a request without one is refused"
    } else {
        "not required; those that are sent are checked"
    };
    html! {
        (definition(&[
            ("Reach", html! { (reach_in_words(&partner.reach)) }),
            ("Rate", html! { (rate_in_words(partner.rate)) }),
            ("Format", html! { (partner.format.as_deref().unwrap_or("the default of the API")) }),
            ("Credit", credit(partner)),
            ("Signatures", html! { (signatures) }),
            ("Created", time(&partner.created_at)),
            ("Changed", time(&partner.changed_at)),
        ]))
        @if is_own {
            p { "This is the partner of your session: it is suspended with a key of another partner, or on the command line." }
        } @else if !has_question && may_resume(partner, viewer) {
            (button_link(&format!("{path}?confirm={act}"), &format!("{words} {}", partner.partner_id)))
        }
        p.small {
            "Other terms are changed with " code { "postonce-web partners change " (partner.partner_id) } ", or over the API. "
            a href=(Section::Partners.path()) { "All partners" }
        }
    }
}

fn credit(partner: &Partner) -> Markup {
    match &partner.credit_ceilings {
        None => html! { "no ceiling for the overdraft limits that it sets" },
        Some(ceilings) if ceilings.is_empty() => html! { "may set no overdraft limit" },
        Some(ceilings) => html! {
            "may set an overdraft limit of an account up to "
            @for (index, (currency, ceiling)) in ceilings.iter().enumerate() {
                @if index > 0 { ", " }
                (ceiling) " " (currency)
            }
            "; none in other currencies"
        },
    }
}

fn signature_card(partner: &Partner) -> Markup {
    let table = Table::new("Signature keys", &partner.signature_keys)
        .text("Key id", |key| id(&key.key_id))
        .text("Algorithm", |key| id(&key.algorithm));
    card(
        "Signature keys",
        html! {
            @if partner.signature_keys.is_empty() {
                (empty("No signature keys", html! {
                    p { "The partner does not sign its requests. Keys are added with " code { "postonce-web partners signature-keys add" } "." }
                }))
            } @else {
                (table)
            }
        },
    )
}

/// Lists the users and accounts of a reach that names them.
fn reach_card(partner: &Partner) -> Markup {
    let users = partner.reach.users.as_deref().unwrap_or_default();
    let accounts = partner.reach.accounts.as_deref().unwrap_or_default();
    if users.is_empty() && accounts.is_empty() {
        return html! {};
    }
    card(
        "Reach",
        html! {
            details {
                summary { (reach_in_words(&partner.reach)) }
                ul {
                    @for user in users { li { "All accounts of user " a href=(accounts_of(user)) { (id(user)) } } }
                    @for PartnerAccount { user_id, account_id } in accounts {
                        li { "Account " a href=(ACCOUNT.of([user_id, account_id])) { (id(account_id)) } " of user " (id(user_id)) }
                    }
                }
            }
        },
    )
}

/// Returns the question of suspending or resuming a partner.
fn status_question(partner: &Partner, viewer: &Viewer, suspends: bool) -> Markup {
    let (name, path) = (&partner.partner_id, PARTNER.of([&partner.partner_id]));
    let (keys, reach) = (counted(partner.keys.len(), "API key", "API keys"), reach_in_words(&partner.reach));
    let (title, status, tone) = if suspends {
        (format!("Suspend {name}?"), "suspended", Tone::Bad)
    } else {
        (format!("Resume {name}?"), "active", Tone::Notice)
    };
    let label = if suspends {
        format!("All requests of {name} shall be refused")
    } else {
        format!("Requests of {name} shall be accepted again")
    };
    let consequence = html! {
        @if suspends {
            p { "All requests of " strong { (name) } " are refused from now on, in every process." }
            ul {
                li { "It has " (keys) ", which stay and work again when it is resumed, and reaches " (reach) "." }
                li { "What it has sent and the bank has accepted is posted nevertheless, also the rest of its batches." }
                li { "Orders that it puts on a queue itself become dead letters." }
                @if partner_has(partner, Scope::Operate) {
                    li { "Its keys operate the service: make sure that another operator can." }
                }
            }
        } @else {
            p { "Requests of " strong { (name) } " are accepted from now on, in every process, with its " (keys) ". It reaches " (reach) "." }
        }
    };
    let question = Question {
        title: &title,
        consequence,
        action: &path,
        fields: hidden("status", status),
        confirmation: Confirmation::Ticked(&label),
        button: submit(if suspends { "Suspend" } else { "Resume" }, tone),
        back: &path,
    };
    question.ask(&viewer.csrf)
}

/// Returns whether the scopes of the viewer suffice to resume a partner, or it is not suspended.
fn may_resume(partner: &Partner, viewer: &Viewer) -> bool {
    viewer.may(Scope::Admin)
        || partner.resume_needs.as_deref().is_none_or(|needs| needs == Scope::Partners.code())
}

/// Returns whether any key of a partner has a scope.
fn partner_has(partner: &Partner, scope: Scope) -> bool {
    let mut codes = partner.keys.iter().flat_map(|key| &key.scopes);
    codes.any(|code| Scope::from_code(code).is_some_and(|own| own.includes(scope)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{key, shop};
    use super::*;
    use crate::console::viewer::tests::viewer;

    fn shown(partner: &Partner, query: &str) -> String {
        let query = Values::of_query(query);
        let asked = Asked::of_query(&query, partner);
        body(partner, &viewer(Scope::ALL), asked.as_ref(), query.text("done")).into_string()
    }

    #[test]
    fn a_partner_is_shown_with_its_terms() {
        let partner = shop(&json!({
            "credit_ceilings": { "EUR": "1000.00" }, "format": "xml", "signature_required": true,
            "signature_keys": [{ "key_id": "<script>", "algorithm": "ed25519" }],
            "reach": { "users": ["u-1"], "accounts": [{ "user_id": "u-2", "account_id": "a-2" }] }
        }));
        let html = shown(&partner, "");
        assert!(html.contains("1000.00 EUR") && html.contains("xml") && html.contains("ed25519"));
        assert!(html.contains("<summary>all accounts of 1 user, and 1 account</summary>"));
        assert!(html.contains("/console/accounts?user_id=u-1") && html.contains("/console/accounts/u-2/a-2"));
        assert!(html.contains("&lt;script&gt;") && !html.contains("<script>"));
        assert!(
            html.contains(r#"href="/console/partners/shop?confirm=suspend""#)
                && !html.contains("?confirm=resume")
        );
    }

    #[test]
    fn suspending_names_the_consequence_and_must_be_confirmed() {
        let html = shown(&shop(&json!({})), "confirm=suspend");
        assert!(
            html.contains("are refused from now on, in every process") && html.contains("It has 1 API key")
        );
        assert!(
            html.contains(r#"name="status" value="suspended""#)
                && html.contains(r#"name="csrf" value="token""#)
        );
        assert!(html.contains("data-confirm") && !html.contains("?confirm=suspend"));
        assert!(!html.contains("operate the service"));
        let operator =
            json!([{ "key_id": "k", "scopes": ["admin"], "created_at": "2026-11-01T08:00:00.000Z" }]);
        assert!(
            shown(&shop(&json!({ "keys": operator })), "confirm=suspend").contains("operate the service")
        );
        let by_admin = shop(&json!({ "status": "suspended", "resume_needs": "admin" }));
        assert!(shown(&by_admin, "").contains("?confirm=resume"));
        let of_manager = body(&by_admin, &viewer(&[Scope::Partners]), None, "").into_string();
        assert!(
            of_manager.contains("It was suspended with the scope") && !of_manager.contains("?confirm=resume")
        );
        let by_manager = shop(&json!({ "status": "suspended", "resume_needs": "partners" }));
        assert!(
            body(&by_manager, &viewer(&[Scope::Partners]), None, "")
                .into_string()
                .contains("?confirm=resume")
        );
        let suspended = shop(&json!({ "status": "suspended" }));
        assert!(!shown(&suspended, "confirm=suspend").contains(r#"value="suspended""#));
        assert!(shown(&suspended, "confirm=resume").contains(r#"value="active""#));
    }

    #[test]
    fn the_own_partner_is_not_suspended_here() {
        let html = shown(&shop(&json!({ "partner_id": "ops" })), "");
        assert!(html.contains("This is the partner of your session") && !html.contains("?confirm=suspend"));
    }

    #[test]
    fn what_is_wrong_comes_first() {
        let html = shown(&shop(&json!({ "status": "suspended", "keys": [] })), "done=suspended");
        assert!(html.contains("shop is suspended") && html.contains("The partner has no valid API key"));
        let ended = shop(&json!({ "keys": [key("k", Some("2026-11-20T08:00:00.000Z"))] }));
        assert!(shown(&ended, "").contains("The partner has no valid API key"));
        let ending = shop(&json!({ "keys": [key("k", Some("2026-11-22T08:00:00.000Z"))] }));
        assert!(shown(&ending, "done=%3Cscript%3E").contains("An API key expires soon"));
    }
}
