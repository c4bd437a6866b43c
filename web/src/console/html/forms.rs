//! Forms. They all work without scripts; forms that change state send a token against cross-site request forgery.

use maud::{Markup, html};

use super::components::{Tone, button_link};

/// Name of the hidden field that contains the token of the session.
pub const TOKEN: &str = "csrf";
/// Name of the field with which a form confirms an act.
pub const CONFIRM: &str = "confirm";
/// Value of a ticked box.
pub const TICKED: &str = "yes";

/// Field of a form.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    /// Name under which the value is sent.
    pub name: &'a str,
    /// Visible label.
    pub label: &'a str,
    /// Id of the element, which must be unique on the page; by default `field-` and the name.
    pub id: Option<&'a str>,
    /// Describes the allowed values and their purpose.
    pub hint: Option<&'a str>,
    /// Explains why the submitted value was refused.
    pub error: Option<&'a str>,
    /// Whether the browser requires a value.
    pub required: bool,
    /// Maximum number of characters.
    pub max_length: Option<u16>,
}

impl<'a> Field<'a> {
    /// Creates an optional field.
    pub const fn new(name: &'a str, label: &'a str) -> Self {
        Self { name, label, id: None, hint: None, error: None, required: false, max_length: None }
    }

    /// Makes the field required.
    #[must_use]
    pub const fn required(self) -> Self {
        Self { required: true, ..self }
    }

    /// Sets the hint.
    #[must_use]
    pub const fn hint(self, hint: &'a str) -> Self {
        Self { hint: Some(hint), ..self }
    }

    /// Sets the error, if there is one.
    #[must_use]
    pub const fn error(self, error: Option<&'a str>) -> Self {
        Self { error, ..self }
    }

    /// Sets the id of the element, for pages where several forms have a field of this name.
    #[must_use]
    pub const fn id(self, id: &'a str) -> Self {
        Self { id: Some(id), ..self }
    }

    /// Sets the maximum number of characters.
    #[must_use]
    pub const fn max_length(self, max_length: u16) -> Self {
        Self { max_length: Some(max_length), ..self }
    }

    /// Returns the id of the input element.
    pub fn element_id(&self) -> String {
        self.id.map_or_else(|| format!("field-{}", self.name), str::to_owned)
    }

    /// Returns the ids of the elements that describe the input, as the value of `aria-describedby`.
    pub fn described_by(&self) -> Option<String> {
        let id = self.element_id();
        let hint = self.hint.map(|_| format!("{id}-hint"));
        let error = self.error.map(|_| format!("{id}-error"));
        let ids: Vec<String> = hint.into_iter().chain(error).collect();
        (!ids.is_empty()).then(|| ids.join(" "))
    }

    /// Returns the value of `aria-invalid`, if the field has an error.
    fn invalid(&self) -> Option<&'static str> {
        self.error.map(|_| "true")
    }
}

/// Kind of value in a [`text_input`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextKind {
    /// Natural language.
    Text,
    /// Id, number, time or other machine-readable text, which the browser must not correct.
    Code,
    /// Secret, such as an API key.
    Secret,
    /// Whole number from 0.
    Number,
    /// Search text.
    Search,
}

impl TextKind {
    const fn input_type(self) -> &'static str {
        match self {
            Self::Text | Self::Code => "text",
            Self::Secret => "password",
            Self::Number => "number",
            Self::Search => "search",
        }
    }

    /// Returns the value of `autocomplete`: browsers may fill in secrets, but not machine-readable texts.
    const fn autocomplete(self) -> Option<&'static str> {
        match self {
            Self::Secret => Some("current-password"),
            Self::Code | Self::Number => Some("off"),
            Self::Text | Self::Search => None,
        }
    }
}

/// Adds label, hint and error to an input with the id [`Field::element_id`] and descriptions [`Field::described_by`].
pub fn field(field: &Field<'_>, input: Markup) -> Markup {
    let id = field.element_id();
    html! {
        .field data-invalid[field.error.is_some()] {
            label for=(id) { (field.label) @if !field.required { " " span.optional { "optional" } } }
            (input)
            @if let Some(hint) = field.hint { p.hint id={ (id) "-hint" } { (hint) } }
            @if let Some(error) = field.error { p.error id={ (id) "-error" } { (error) } }
        }
    }
}

/// Returns a field for one line of text.
pub fn text_input(of: &Field<'_>, kind: TextKind, value: &str) -> Markup {
    let is_code = matches!(kind, TextKind::Code | TextKind::Secret);
    let minimum = (kind == TextKind::Number).then_some("0");
    let input = html! {
        input class=[is_code.then_some("code")] id=(of.element_id()) name=(of.name) type=(kind.input_type()) value=(value)
            min=[minimum] maxlength=[of.max_length] required[of.required]
            autocomplete=[kind.autocomplete()] autocapitalize=[is_code.then_some("off")]
            spellcheck=[is_code.then_some("false")]
            aria-describedby=[of.described_by()] aria-invalid=[of.invalid()];
    };
    field(of, input)
}

/// Returns a field with a list of options. `options` are pairs of a value and its label.
pub fn select(of: &Field<'_>, options: &[(&str, &str)], selected: &str) -> Markup {
    let choice = html! {
        select id=(of.element_id()) name=(of.name) required[of.required]
            aria-describedby=[of.described_by()] aria-invalid=[of.invalid()] {
            @for (value, words) in options {
                option value=(value) selected[*value == selected] { (words) }
            }
        }
    };
    field(of, choice)
}

/// Returns a checkbox, which sends its name with the value [`TICKED`].
pub fn checkbox(of: &Field<'_>, is_checked: bool) -> Markup {
    let id = of.element_id();
    html! {
        .field.field-check data-invalid[of.error.is_some()] {
            label {
                input id=(id) type="checkbox" name=(of.name) value=(TICKED) checked[is_checked] required[of.required]
                    aria-describedby=[of.described_by()] aria-invalid=[of.invalid()];
                span { (of.label) }
            }
            @if let Some(hint) = of.hint { p.hint id={ (id) "-hint" } { (hint) } }
            @if let Some(error) = of.error { p.error id={ (id) "-error" } { (error) } }
        }
    }
}

/// Arranges fields side by side, as the width of the screen allows.
pub fn row(fields: &[Markup]) -> Markup {
    html! { .field-row { @for field in fields { (field) } } }
}

/// Returns the submit button of a form. The tone [`Tone::Notice`] marks the main act of a page, [`Tone::Bad`] a dangerous
/// one, and [`Tone::Neutral`] any other.
pub fn submit(text: &str, tone: Tone) -> Markup {
    html! { button.button type="submit" data-tone=(tone.code()) { (text) } }
}

/// Returns a field that the operator does not see.
pub fn hidden(name: &str, value: &str) -> Markup {
    html! { input type="hidden" name=(name) value=(value); }
}

/// Returns a form that changes state. The token proves to the server that a page of the console submitted it.
pub fn form(action: &str, csrf: &str, body: Markup) -> Markup {
    html! {
        form.form method="post" action=(action) {
            (hidden(TOKEN, csrf))
            (body)
        }
    }
}

/// Returns a form that only queries. It uses GET, so that its result has an address.
pub fn search_form(action: &str, body: Markup) -> Markup {
    html! { form.form.form-search method="get" action=(action) { (body) } }
}

/// What an operator does to confirm an act, besides sending the form. The server must check it too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmation<'a> {
    /// Nothing: the form has fields of its own.
    Sent,
    /// Tick a box with this label.
    Ticked(&'a str),
    /// Type this text.
    Typed(&'a str),
}

impl<'a> Confirmation<'a> {
    /// Returns the value of the field [`CONFIRM`]; empty if the form does not have it.
    pub const fn value(self) -> &'a str {
        match self {
            Self::Sent => "",
            Self::Ticked(_) => TICKED,
            Self::Typed(text) => text,
        }
    }

    /// Returns the required field. The script enables the form's buttons when it is filled in; without scripts, the
    /// browser refuses to submit the form.
    fn field(self) -> Markup {
        html! {
            @match self {
                Self::Sent => {}
                Self::Ticked(label) => .field.field-check {
                    label {
                        input #confirm type="checkbox" name=(CONFIRM) value=(TICKED) required data-confirm;
                        span { (label) }
                    }
                },
                Self::Typed(text) => .field {
                    label for="confirm" { "To confirm, type " code.id { (text) } }
                    input.code #confirm name=(CONFIRM) type="text" required data-confirm=(text)
                        autocomplete="off" autocapitalize="off" spellcheck="false";
                },
            }
        }
    }
}

/// Question whether to carry out an act. A page has at most one.
#[derive(Debug)]
pub struct Question<'a> {
    /// The question.
    pub title: &'a str,
    /// What the act does.
    pub consequence: Markup,
    /// Address to which the form is sent.
    pub action: &'a str,
    /// Fields of the form before the confirmation.
    pub fields: Markup,
    /// What the operator does to confirm the act.
    pub confirmation: Confirmation<'a>,
    /// Button that sends the form.
    pub button: Markup,
    /// Address of the page without the question.
    pub back: &'a str,
}

impl Question<'_> {
    /// Returns the question with its form. `csrf` is the token of the session.
    pub fn ask(self, csrf: &str) -> Markup {
        let Self { title, consequence, action, fields, confirmation, button, back } = self;
        let body = html! {
            (fields)
            (confirmation.field())
            .actions { (button) (button_link(back, "Back")) }
        };
        html! {
            section.card.confirm {
                .card-head { h2 { (title) } }
                .card-body { .consequence { (consequence) } (form(action, csrf, body)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_sends_the_token() {
        let form = form("/console/gate", "to\"ken", html! {}).into_string();
        let token = r#"<input type="hidden" name="csrf" value="to&quot;ken">"#;
        assert!(form.starts_with(r#"<form class="form" method="post" action="/console/gate">"#));
        assert!(form.contains(token));
        assert!(!search_form("/console/accounts", html! {}).into_string().contains("csrf"));
    }

    #[test]
    fn a_question_has_the_field_that_confirms_the_act() {
        let asked = |confirmation: Confirmation<'_>| {
            let question = Question {
                title: "Do it?",
                consequence: html! { "much" },
                action: "/console/act",
                fields: hidden("act", "it"),
                confirmation,
                button: submit("Do it", Tone::Bad),
                back: "/console/page",
            };
            question.ask("token").into_string()
        };
        let ticked = asked(Confirmation::Ticked("I want it"));
        assert!(ticked.contains(r#"name="confirm" value="yes" required data-confirm>"#), "{ticked}");
        let typed = asked(Confirmation::Typed("discard"));
        assert!(typed.contains(r#"type="text" required data-confirm="discard""#), "{typed}");
        assert!(!asked(Confirmation::Sent).contains("name=\"confirm\""), "a form of its own");
        for part in [r#"action="/console/act""#, r#"name="csrf" value="token""#, r#"name="act" value="it""#] {
            assert!(ticked.contains(part) && typed.contains(part), "{part}");
        }
        assert!(ticked.contains(r#"<a class="button" href="/console/page">Back</a>"#), "{ticked}");
    }

    #[test]
    fn a_field_is_described_by_its_hint_and_its_error() {
        let field =
            Field::new("reason", "Reason").required().hint("In a few words.").error(Some("Too long."));
        let input = text_input(&field, TextKind::Text, "x").into_string();
        assert!(input.contains(r#"<label for="field-reason">Reason</label>"#));
        assert!(
            input.contains(r#"aria-describedby="field-reason-hint field-reason-error" aria-invalid="true""#)
        );
        assert!(input.contains(r#"<p class="hint" id="field-reason-hint">In a few words.</p>"#));
        assert!(input.contains(r#"<p class="error" id="field-reason-error">Too long.</p>"#));
    }

    #[test]
    fn a_field_without_them_is_not_described() {
        let input = text_input(&Field::new("key", "API key").id("k"), TextKind::Secret, "").into_string();
        assert!(input.contains(r#"id="k" name="key" type="password""#));
        assert!(!input.contains("aria-describedby") && !input.contains("aria-invalid"));
        assert!(input.contains("optional"));
    }

    #[test]
    fn a_choice_selects_one_option() {
        let options = [("a", "First"), ("b", "Second")];
        let choice = select(&Field::new("kind", "Kind").required(), &options, "b").into_string();
        assert!(choice.contains(r#"<option value="b" selected>Second</option>"#));
        assert_eq!(choice.matches("selected").count(), 1);
    }
}
