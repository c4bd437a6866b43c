//! Panel of the gate: its state with the forms that change it, and the button that releases it.

use maud::{Markup, html};
use postonce_schemas::json::Gate;

use crate::console::html::components::{Tone, definition, symbol, time};
use crate::console::html::format;
use crate::console::html::shell::live;
use crate::console::pages::overview::is_held;

/// Name of the events that replace the panel.
pub const PANEL: &str = "panel";

/// Returns the state of the gate with both forms. The stylesheet shows the form that matches the state, also after an
/// event changed it. Events replace only the panel, so they never reset a form that is being filled in.
pub fn with_forms(gate: &Gate, release: Markup, hold: Markup) -> Markup {
    html! {
        section.gate aria-label="Gate" {
            (live(PANEL, panel(gate)))
            .gate-action.gate-release { (release) }
            .gate-action.gate-hold { (hold) }
        }
    }
}

/// Returns the panel with the state of the gate.
pub fn panel(gate: &Gate) -> Markup {
    let (code, title, meaning) = if is_held(gate) {
        ("held", "Held", "Requests are accepted and wait. Nothing new is posted.")
    } else {
        ("released", "Released", "All processes post what is accepted.")
    };
    let facts = [
        ("Epoch", Some(html! { (format::count(gate.epoch)) })),
        ("Since", gate.since.as_deref().map(time)),
        ("Releases by itself", gate.release_at.as_deref().map(time)),
        ("Changed by", gate.by.as_deref().map(author)),
        ("Reason", gate.reason.as_ref().map(|reason| html! { (reason) })),
    ];
    let facts: Vec<_> = facts.into_iter().filter_map(|(name, fact)| Some((name, fact?))).collect();
    html! {
        .gate-panel data-state=(code) {
            p.gate-word {
                (picture(gate))
                span { span.unseen { "The gate is " } (title) }
            }
            p.gate-meaning { (meaning) }
            @if let Some(problem) = &gate.clock_problem {
                p.gate-problem { (symbol(Tone::Warning)) span { (problem) } }
            }
            (definition(&facts))
        }
    }
}

/// Describes the author of a change, which has the form of the API member `by`.
fn author(by: &str) -> Markup {
    let of_request = by.strip_prefix("partner=").and_then(|rest| rest.split_once(" key="));
    match (of_request, by.split_once(' ')) {
        (Some((partner, key)), _) => html! { (partner) ", with the key " code { (key) } },
        (None, Some(("command", details))) => html! { "a command (" (details) ")" },
        (None, _) => match by {
            "schedule" => html! { "the schedule" },
            "start" => html! { "a worker that was started with " code { "--held" } },
            "restore" => html! { "a restore of the store" },
            other => html! { (other) },
        },
    }
}

/// Returns the button that releases the gate. It submits the surrounding form.
pub fn release_button(text: &str) -> Markup {
    html! {
        button.button-release type="submit" {
            svg viewBox="0 0 32 32" width="34" height="34" aria-hidden="true" {
                ellipse cx="6.5" cy="14.5" rx="3" ry="4" {}
                ellipse cx="12.5" cy="7.5" rx="3.1" ry="4.3" {}
                ellipse cx="19.5" cy="7.5" rx="3.1" ry="4.3" {}
                ellipse cx="25.5" cy="14.5" rx="3" ry="4" {}
                path d="M16 14.5c-4 0-8 5-8 9 0 3 2.2 4.3 4.5 4.3 1.5 0 2.2-.6 3.5-.6s2 .6 3.5.6c2.3 0 4.5-1.3 4.5-4.3 0-4-4-9-8-9z" {}
            }
            span { (text) }
        }
    }
}

fn picture(gate: &Gate) -> Markup {
    let bars = if is_held(gate) {
        "M8 44V8M56 44V8M8 20h48M8 34h48M20 44V14M32 44V12M44 44V14"
    } else {
        "M8 44V8M56 44V8M8 18l14-6v34l-14-6M56 18l-14-6v34l14-6M15 15v28M49 15v28"
    };
    html! {
        svg.gate-picture viewBox="6 6 52 42" width="52" height="42" aria-hidden="true" { path d=(bars) {} }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(state: &'static str) -> Gate {
        Gate {
            state: state.into(),
            epoch: 1_204,
            release_at: None,
            since: Some("2026-11-23T06:00:00Z".to_owned()),
            by: Some("partner=ops key=9f86d081884c7d65".to_owned()),
            reason: Some("nightly <close>".to_owned()),
            clock_problem: None,
        }
    }

    #[test]
    fn the_panel_says_the_state_in_words() {
        let held = panel(&gate("held")).into_string();
        assert!(held.contains(r#"<div class="gate-panel" data-state="held">"#));
        assert!(held.contains("<span class=\"unseen\">The gate is </span>Held"));
        assert!(held.contains("nightly &lt;close&gt;") && !held.contains("Releases by itself"));
        assert!(held.contains("<dd>ops, with the key <code>9f86d081884c7d65</code></dd>"), "{held}");
        assert!(panel(&gate("released")).into_string().contains(r#"data-state="released""#));
    }

    #[test]
    fn the_author_of_a_change_is_shown_in_words() {
        for (by, words) in [
            ("command os_user=ada host=till", "a command (os_user=ada host=till)"),
            ("schedule", "the schedule"),
            ("start", "a worker that was started with <code>--held</code>"),
            ("restore", "a restore of the store"),
            ("partner=<a> key=1", "&lt;a&gt;, with the key <code>1</code>"),
            ("a later form", "a later form"),
        ] {
            assert_eq!(author(by).into_string(), words);
        }
    }

    #[test]
    fn events_replace_the_panel_and_no_form() {
        let button = release_button("Release the gate");
        let gate = with_forms(&gate("held"), button, html! { "hold" }).into_string();
        let (region, forms) = gate.split_once(r#"<div class="gate-action gate-release">"#).unwrap();
        assert!(region.contains(r#"sse-swap="panel""#) && region.ends_with("</dl></div></div>"));
        assert!(forms.starts_with(r#"<button class="button-release" type="submit">"#));
    }
}
