//! The gate: its state, the button that releases it, and the processes that acknowledge a change.

use maud::{Markup, html};

use super::components::{Tone, definition, symbol, time};
use super::format;
use super::shell::live;

/// State of the gate on the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PanelState {
    /// Nothing new is posted.
    Held,
    /// All processes post.
    Released,
    /// The gate cannot be read, which counts as held.
    Unknown,
}

impl PanelState {
    const fn code(self) -> &'static str {
        match self {
            Self::Held | Self::Unknown => "held",
            Self::Released => "released",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Held => "Held",
            Self::Released => "Released",
            Self::Unknown => "Unknown",
        }
    }

    const fn meaning(self) -> &'static str {
        match self {
            Self::Held => "Requests are accepted and wait. Nothing new is posted.",
            Self::Released => "All processes post what is accepted.",
            Self::Unknown => "The gate cannot be read, which counts as held: nothing new is posted.",
        }
    }
}

/// Content of [`gate_panel`].
#[derive(Debug, Clone, Copy)]
pub struct GatePanel<'a> {
    /// State of the gate.
    pub state: PanelState,
    /// Number of the last change.
    pub epoch: u64,
    /// Time of the change to this state, in RFC 3339 and UTC.
    pub since: Option<&'a str>,
    /// Author of the change, in the form of the API member `by`.
    pub by: Option<&'a str>,
    /// Reason of the change.
    pub reason: Option<&'a str>,
    /// Time of the scheduled release, in RFC 3339 and UTC.
    pub release_at: Option<&'a str>,
    /// Reason why this process does not perform the scheduled release.
    pub clock_problem: Option<&'a str>,
}

/// A process that posts, and whether it applies the last change of the gate.
#[derive(Debug, Clone, Copy)]
pub struct Acknowledgment<'a> {
    /// Name of the process.
    pub name: &'a str,
    /// Address at which other processes reach it.
    pub address: &'a str,
    /// Whether it applies the last change.
    pub acknowledged: bool,
    /// Describes why the change is not acknowledged, if this is known.
    pub problem: Option<&'a str>,
}

/// Returns the state of the gate with both forms. The stylesheet shows the form that matches the state, also after an
/// event changed it. Events named `region` replace only the panel, so they never reset a form that is being filled in.
pub fn gate(region: Option<&str>, panel: &GatePanel<'_>, release: Markup, hold: Markup) -> Markup {
    html! {
        section.gate aria-label="Gate" {
            @match region {
                Some(name) => (live(name, gate_panel(panel))),
                None => (gate_panel(panel)),
            }
            .gate-action.gate-release { (release) }
            .gate-action.gate-hold { (hold) }
        }
    }
}

/// Returns the panel with the state of the gate, which events replace.
pub fn gate_panel(panel: &GatePanel<'_>) -> Markup {
    let mut facts = vec![("Epoch", html! { (format::count(panel.epoch)) })];
    if let Some(since) = panel.since {
        facts.push(("Since", time(since)));
    }
    if let Some(release_at) = panel.release_at {
        facts.push(("Releases by itself", time(release_at)));
    }
    if let Some(by) = panel.by {
        facts.push(("Changed by", author(by)));
    }
    if let Some(reason) = panel.reason {
        facts.push(("Reason", html! { (reason) }));
    }
    html! {
        .gate-panel data-state=(panel.state.code()) {
            p.gate-word {
                (gate_picture(panel.state))
                span { span.unseen { "The gate is " } (panel.state.title()) }
            }
            p.gate-meaning { (panel.state.meaning()) }
            @if let Some(problem) = panel.clock_problem {
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

/// Returns the processes with their acknowledgments.
pub fn acknowledgments(processes: &[Acknowledgment<'_>]) -> Markup {
    html! { ul.acks { @for process in processes { (chip(process)) } } }
}

fn chip(process: &Acknowledgment<'_>) -> Markup {
    let (tone, word) = match (process.acknowledged, process.problem) {
        (true, _) => (Tone::Good, "acknowledged"),
        (false, Some(problem)) => (Tone::Bad, problem),
        (false, None) => (Tone::Warning, "no answer yet"),
    };
    html! {
        li.ack data-acknowledged=(process.acknowledged) data-tone=(tone.code()) {
            (symbol(tone))
            .ack-text {
                code.ack-name { (process.name) }
                span.ack-address { (process.address) }
                span.ack-word { (word) }
            }
        }
    }
}

fn gate_picture(state: PanelState) -> Markup {
    let bars = match state {
        PanelState::Held | PanelState::Unknown => {
            "M8 44V8M56 44V8M8 20h48M8 34h48M20 44V14M32 44V12M44 44V14"
        }
        PanelState::Released => "M8 44V8M56 44V8M8 18l14-6v34l-14-6M56 18l-14-6v34l14-6M15 15v28M49 15v28",
    };
    html! {
        svg.gate-picture viewBox="6 6 52 42" width="52" height="42" aria-hidden="true" { path d=(bars) {} }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD: GatePanel<'_> = GatePanel {
        state: PanelState::Held,
        epoch: 1_204,
        since: Some("2026-11-23T06:00:00Z"),
        by: Some("partner=ops key=9f86d081884c7d65"),
        reason: Some("nightly <close>"),
        release_at: None,
        clock_problem: None,
    };

    #[test]
    fn the_panel_says_the_state_in_words() {
        let panel = gate_panel(&HELD).into_string();
        assert!(panel.contains(r#"<div class="gate-panel" data-state="held">"#));
        assert!(panel.contains("<span class=\"unseen\">The gate is </span>Held"));
        assert!(panel.contains("nightly &lt;close&gt;"));
        assert!(panel.contains("<dd>ops, with the key <code>9f86d081884c7d65</code></dd>"), "{panel}");
        let unknown = gate_panel(&GatePanel { state: PanelState::Unknown, ..HELD }).into_string();
        assert!(unknown.contains(r#"data-state="held""#) && unknown.contains("counts as held"));
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
        let button = release_button("Release the hounds");
        let gate = gate(Some("gate"), &HELD, button, html! { "hold" }).into_string();
        let (region, forms) = gate.split_once(r#"<div class="gate-action gate-release">"#).unwrap();
        assert!(region.contains(r#"sse-swap="gate""#) && region.ends_with("</dl></div></div>"));
        assert!(forms.starts_with(r#"<button class="button-release" type="submit">"#));
    }

    #[test]
    fn chips_say_who_acknowledged() {
        let process = |name, acknowledged, problem| Acknowledgment {
            name,
            address: "http://10.0.0.7:8081",
            acknowledged,
            problem,
        };
        let processes = [
            process("a", true, None),
            process("b", false, None),
            process("c", false, Some("another process listens at the address now")),
        ];
        let chips = acknowledgments(&processes).into_string();
        assert!(chips.contains("no answer yet"));
        assert!(chips.contains("another process listens"));
        assert_eq!(chips.matches(r#"data-acknowledged="false""#).count(), 2);
    }
}
