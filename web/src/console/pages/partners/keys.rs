//! API keys of a partner: the list, the form for a new key, the page that shows it once, and the revocation.

use maud::{Markup, html};
use postonce_schemas::json::{NewPartnerKey, Partner, PartnerKey};
use postonce_shared::domain::partner::ACTIVE_KEYS_MAX;
use postonce_shared::domain::time::Timestamp;

use crate::access::scopes::Scope;
use crate::console::addresses::{PARTNER, PARTNER_KEY, PARTNER_KEYS, with_query};
use crate::console::html::components::{
    Table, Tone, age, badge, button_link, card, copyable, definition, empty, id, notice, time,
};
use crate::console::html::format::counted;
use crate::console::html::forms::{
    Confirmation, Field, Question, TICKED, TextKind, checkbox, form, row, submit, text_input,
};
use crate::console::values::Values;
use crate::console::viewer::Viewer;

/// Maximum validity that the form accepts, in days.
const DAYS_MAX: u64 = 3_650;
/// Remaining validity below which a key needs attention, in seconds.
const EXPIRES_SOON_S: u64 = 14 * 86_400;

/// Remaining validity of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// The key does not expire.
    Unlimited,
    /// The key expires, but not soon.
    Limited,
    /// The key expires soon: remaining seconds.
    EndsSoon(u64),
    /// The key has expired.
    Ended,
}

impl Validity {
    /// Returns the validity of a key. An expiry that cannot be parsed counts as past.
    pub fn of(key: &PartnerKey, now: Timestamp) -> Self {
        let Some(expires_at) = &key.expires_at else { return Self::Unlimited };
        let left = Timestamp::parse(expires_at).map_or(0, |at| at.since(now).as_secs());
        match left {
            0 => Self::Ended,
            left if left < EXPIRES_SOON_S => Self::EndsSoon(left),
            _ => Self::Limited,
        }
    }
}

/// Values of the form for a new key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entered {
    /// Scopes that were ticked.
    pub scopes: Vec<Scope>,
    days: String,
}

/// Errors in the form for a new key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wrong {
    scopes: Option<&'static str>,
    days: Option<String>,
}

impl Entered {
    /// Takes the values of a submitted form.
    pub fn of_form(values: &Values) -> Self {
        let is_ticked = |scope: &Scope| values.text(&scope_name(*scope)) == TICKED;
        Self {
            scopes: Scope::ALL.iter().copied().filter(is_ticked).collect(),
            days: values.text("days").to_owned(),
        }
    }

    /// Returns the number of days after which the key expires; `None` if it does not.
    ///
    /// # Errors
    /// [`Wrong`] when a value is missing or not valid.
    pub fn checked(&self) -> Result<Option<u64>, Wrong> {
        let days = match self.days.as_str() {
            "" => Ok(None),
            text => {
                let days = text.parse::<u64>().ok().filter(|days| (1..=DAYS_MAX).contains(days));
                days.map(Some)
                    .ok_or_else(|| format!("Enter a whole number of days from 1 to {DAYS_MAX}, or nothing."))
            }
        };
        let scopes = self
            .scopes
            .is_empty()
            .then_some("Tick at least one permission: a key without any can do nothing.");
        match (days, scopes) {
            (Ok(days), None) => Ok(days),
            (Ok(_), scopes) => Err(Wrong { scopes, days: None }),
            (Err(error), scopes) => Err(Wrong { scopes, days: Some(error) }),
        }
    }
}

fn scope_name(scope: Scope) -> String {
    format!("scope-{}", scope.code())
}

/// Lists the keys of the partner.
pub fn list_card(partner: &Partner, viewer: &Viewer) -> Markup {
    let table = Table::new("API keys", &partner.keys)
        .text("Key id", |key| id(&key.key_id))
        .text("Permissions", |key| key.scopes.join(", "))
        .text("Created", |key| time(&key.created_at))
        .text("Expires", |key| expiry(key, Validity::of(key, viewer.now)))
        .text("Last used", last_use)
        .text("Revoke", |key| revoke_link(partner, key, viewer));
    card(
        "API keys",
        html! {
            @if partner.keys.is_empty() {
                (empty("No API keys", html! { p { "The partner cannot send requests until a key is added below." } }))
            } @else {
                (table)
                p.small { "The last use is recorded about once a day. An expired key counts as active until it is revoked." }
            }
        },
    )
}

fn last_use(key: &PartnerKey) -> Markup {
    key.last_used_at.as_deref().map_or_else(|| html! { "not recorded" }, time)
}

fn revoke_link(partner: &Partner, key: &PartnerKey, viewer: &Viewer) -> Markup {
    if key.key_id == viewer.key_id {
        return html! { "the key of your session" };
    }
    let parameters = [("confirm", Some("revoke")), ("key", Some(key.key_id.as_str()))];
    let revoke = with_query(&PARTNER.of([&partner.partner_id]), &parameters);
    html! { a.button.button-small href=(revoke) { "Revoke" } }
}

fn expiry(key: &PartnerKey, validity: Validity) -> Markup {
    let at = key.expires_at.as_deref().map(time).unwrap_or_default();
    match validity {
        Validity::Unlimited => html! { "never" },
        Validity::Limited => at,
        Validity::EndsSoon(left) => html! { (at) " " (badge(Tone::Warning, "soon")) " in " (age(left)) },
        Validity::Ended => html! { (at) " " (badge(Tone::Bad, "expired")) },
    }
}

/// Returns the form for a new key. `before` has the refused values and their errors.
pub fn add_card(partner: &Partner, viewer: &Viewer, before: Option<(&Entered, &Wrong)>) -> Markup {
    if partner.keys.len() >= ACTIVE_KEYS_MAX {
        let most = counted(ACTIVE_KEYS_MAX, "active key", "active keys");
        let body = html! { p { "A partner has at most " (most) ", an old and a new one. Revoke one to add another." } };
        return card("Add an API key", body);
    }
    let (nothing, fine) = (Entered::default(), Wrong::default());
    let (entered, wrong) = before.unwrap_or((&nothing, &fine));
    let days = Field::new("days", "Expires after so many days").error(wrong.days.as_deref());
    let days = days.hint("Nothing: the key does not expire.");
    let is_admin = viewer.may(Scope::Admin);
    let granted = Scope::ALL.iter().filter(|scope| is_admin || viewer.may(**scope));
    let boxes: Vec<_> = granted.map(|scope| checkbox_of(*scope, entered.scopes.contains(scope))).collect();
    let fields = html! {
        fieldset {
            legend { "Permissions" }
            @if let Some(error) = wrong.scopes { p.error role="alert" { (error) } }
            (row(&boxes))
        }
        @if !is_admin {
            p { "Your key grants only its own permissions. Others need a key with the scope " code { "admin" } "." }
        }
        (text_input(&days, TextKind::Number, &entered.days))
        (submit("Add the key", Tone::Notice))
        p.hint { "The next page shows the key once. The store has only its hash." }
    };
    card("Add an API key", form(&PARTNER_KEYS.of([&partner.partner_id]), &viewer.csrf, fields))
}

fn checkbox_of(scope: Scope, is_ticked: bool) -> Markup {
    let (name, meaning) = (scope_name(scope), scope.meaning().replace('`', ""));
    checkbox(&Field::new(&name, scope.code()).hint(&meaning), is_ticked)
}

/// Returns the page of a new key, the only one that contains it.
pub fn new_key(new: &NewPartnerKey) -> Markup {
    let path = PARTNER.of([&new.partner_id]);
    html! {
        (notice(Tone::Warning, "This key is shown only once", html! {
            p { "Copy it now, and give it to the partner on a confidential way. The store has only its hash: who \
                 loses the key gets a new one." }
        }))
        (card("The key", html! {
            p { (copyable(&new.key)) }
            (definition(&[
                ("Partner", html! { a href=(path) { (new.partner_id) } }),
                ("Key id", id(&new.key_id)),
                ("Permissions", html! { (new.scopes.join(", ")) }),
                ("Expires", new.expires_at.as_deref().map_or_else(|| html! { "never" }, time)),
            ]))
            p { "Every process accepts it from now on. Do not reload this page: that would add another key." }
            (button_link(&path, "I have stored the key"))
        }))
    }
}

/// Returns the question whether to revoke a key.
pub fn revoke_question(partner: &Partner, key: &PartnerKey, viewer: &Viewer) -> Markup {
    let (name, key_id) = (&partner.partner_id, &key.key_id);
    let is_valid = |other: &&PartnerKey| Validity::of(other, viewer.now) != Validity::Ended;
    let others = partner.keys.iter().filter(|other| other.key_id != *key_id).filter(is_valid).count();
    let consequence = html! {
        p { "All requests with key " (id(key_id)) " of " strong { (name) } " are refused from now on, in every process. This is for ever." }
        ul {
            li { "Its permissions: " (key.scopes.join(", ")) "." }
            li { "Its last use: " (last_use(key)) ", to about a day." }
            @if others == 0 {
                li { strong { "The partner has no other valid key: it cannot send requests until it gets one." } }
            } @else {
                li { "The partner keeps " (counted(others, "valid key", "valid keys")) "." }
            }
        }
    };
    let question = Question {
        title: "Revoke the key?",
        consequence,
        action: &PARTNER_KEY.of([name, key_id]),
        fields: html! {},
        confirmation: Confirmation::Ticked("The key shall be refused for ever"),
        button: submit("Revoke the key", Tone::Bad),
        back: &PARTNER.of([name]),
    };
    question.ask(&viewer.csrf)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::{key, shop};
    use super::*;
    use crate::console::viewer::tests::viewer;

    fn entered(form: &str) -> Entered {
        Entered::of_form(&Values::of_query(form))
    }

    #[test]
    fn keys_that_expire_need_attention_in_time() {
        let now = viewer(&[]).now;
        let check = |expires_at: Option<&str>, expected| {
            let key: PartnerKey = serde_json::from_value(key("k", expires_at)).unwrap();
            assert_eq!(Validity::of(&key, now), expected, "{expires_at:?}");
        };
        check(None, Validity::Unlimited);
        check(Some("2027-11-21T08:00:00.000Z"), Validity::Limited);
        check(Some("2026-11-21T09:00:00.000Z"), Validity::EndsSoon(3_600));
        check(Some("2026-11-21T08:00:00.000Z"), Validity::Ended);
        check(Some("2020-11-21T08:00:00.000Z"), Validity::Ended);
    }

    #[test]
    fn a_new_key_needs_a_permission_and_a_sensible_end() {
        let valid = entered("scope-deposit=yes&scope-read=yes&scope-admin=no&days=30");
        assert_eq!(valid.scopes, [Scope::Deposit, Scope::Read]);
        assert_eq!(valid.checked(), Ok(Some(30)));
        assert_eq!(entered("scope-read=yes&days=").checked(), Ok(None));
        for days in ["0", "-1", "3651", "1.5", "soon"] {
            let wrong = entered(&format!("scope-read=yes&days={days}")).checked().unwrap_err();
            assert!(wrong.days.is_some() && wrong.scopes.is_none(), "{days}");
        }
        let wrong = entered("days=x").checked().unwrap_err();
        assert!(wrong.days.is_some() && wrong.scopes.is_some());
    }

    #[test]
    fn only_scopes_that_the_key_can_grant_are_offered() {
        let partner = shop(&json!({}));
        let html = add_card(&partner, &viewer(&[Scope::Deposit, Scope::Partners]), None).into_string();
        assert!(html.contains("scope-deposit") && !html.contains("scope-withdraw"));
        assert!(html.contains("Submit deposits.") && html.contains("need a key with the scope"));
        let html = add_card(&partner, &viewer(Scope::ALL), None).into_string();
        assert!(html.contains("scope-admin") && !html.contains("need a key with the scope"));
        let full = shop(&json!({ "keys": [key("a", None), key("b", None)] }));
        let html = add_card(&full, &viewer(Scope::ALL), None).into_string();
        assert!(html.contains("at most 2 active keys") && !html.contains("<form"));
    }

    #[test]
    fn what_was_entered_stays_when_something_is_wrong() {
        let entered = entered("scope-deposit=yes&days=%3Cscript%3E");
        let wrong = entered.checked().unwrap_err();
        let html = super::super::detail::form_again(&shop(&json!({})), &viewer(Scope::ALL), &entered, &wrong)
            .into_string();
        assert!(html.contains("No key was added") && html.contains("Enter a whole number of days"));
        assert_eq!(html.matches(r#"value="yes" checked"#).count(), 1);
        assert!(html.contains("&lt;script&gt;") && !html.contains("<script>"));
    }

    #[test]
    fn a_new_key_is_shown_with_the_words_that_it_is_shown_once() {
        let new =
            json!({ "partner_id": "shop", "key_id": "9f86", "key": "po_secret", "scopes": ["deposit"] });
        let html = new_key(&serde_json::from_value(new).unwrap()).into_string();
        assert!(html.contains("This key is shown only once") && html.contains("data-copy"));
        assert!(html.contains(r#"<code class="id">po_secret</code>"#) && html.contains("never"));
    }

    #[test]
    fn revoking_says_what_stops() {
        let one = shop(&json!({}));
        let html = revoke_question(&one, &one.keys[0], &viewer(Scope::ALL)).into_string();
        assert!(html.contains("no other valid key") && html.contains("deposit, read"));
        assert!(
            html.contains(r#"action="/console/partners/shop/keys/aaaa000011112222""#)
                && html.contains("data-confirm")
        );
        let two = shop(&json!({ "keys": [key("a", None), key("b", None)] }));
        let html = revoke_question(&two, &two.keys[0], &viewer(Scope::ALL)).into_string();
        assert!(html.contains("keeps 1 valid key"));
    }

    #[test]
    fn the_key_of_the_session_cannot_be_revoked_by_it() {
        let ops = shop(&json!({ "keys": [key("0000111122223333", None), key("b", None)] }));
        let html = list_card(&ops, &viewer(Scope::ALL)).into_string();
        assert!(html.contains("the key of your session") && html.contains("confirm=revoke&amp;key=b"));
        assert!(!html.contains("key=0000111122223333"));
    }
}
