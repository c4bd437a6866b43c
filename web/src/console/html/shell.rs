//! Frame of all pages: document, header, navigation and footer; and the regions that events update.

use maud::{DOCTYPE, Markup, html};
use postonce_process::build;

use super::forms::{TOKEN, hidden};
use crate::console::addresses::{ASSET, SIGN_OUT, Section};
use crate::console::viewer::Viewer;

/// Content security policy with which pages must be sent.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; font-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Settings of htmx: nothing that the policy forbids, no copies of pages in the browser's storage, and no scripts in
/// inserted content. `attributesToSettle` omits `style`, because the policy forbids that attribute.
const HTMX_CONFIG: &str = concat!(
    r#"{"includeIndicatorStyles":false,"allowEval":false,"allowScriptTags":false,"historyCacheSize":0,"#,
    r#""selfRequestsOnly":true,"attributesToSettle":["class"],"defaultSettleDelay":0}"#
);

/// Icon of the console, with the shape of [`mark`].
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Crect width='32' \
    height='32' rx='7' fill='%231d4f91'/%3E%3Cpath d='M8 14l6 6L24 8M8 25h16' fill='none' stroke='%23fff' \
    stroke-width='3'/%3E%3C/svg%3E";

/// Content of the frame of a page.
#[derive(Debug, Clone, Copy)]
pub struct Shell<'a> {
    /// Title of the page, which is also its first heading.
    pub title: &'a str,
    /// Section of the page.
    pub current: Section,
    /// Signed-in operator. Without one, as on the sign-in page, there is no navigation and no button for signing out.
    pub viewer: Option<&'a Viewer>,
    /// Address of the event stream that updates the regions made by [`live`].
    pub live: Option<&'a str>,
    /// Whether the page has plots.
    pub plots: bool,
}

/// Returns a complete page. The title is the first heading, and the body follows it.
pub fn page(shell: &Shell<'_>, body: Markup) -> Markup {
    let sections = shell.viewer.map(Viewer::sections).unwrap_or_default();
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(shell))
            body {
                a.skip href="#main" { "Skip to the content" }
                (header(shell))
                .frame.frame-plain[sections.is_empty()] {
                    @if !sections.is_empty() { (navigation(&sections, shell.current)) }
                    .content hx-ext=[shell.live.map(|_| "sse")] sse-connect=[shell.live] {
                        main #main tabindex="-1" {
                            .page-head {
                                h1 { (shell.title) }
                                @if shell.live.is_some() { (live_status()) }
                            }
                            (body)
                        }
                        footer.foot {
                            span { "Postonce " (build::DESCRIPTION) }
                            span { "All times are in UTC." }
                        }
                    }
                }
            }
        }
    }
}

/// Returns a region whose content is replaced by the events named `name`, which must be unique on the page, without
/// spaces and commas. Plots must be outside of regions, because scripts in replaced content are removed.
pub fn live(name: &str, content: Markup) -> Markup {
    html! {
        .live #(name) sse-swap=(name) hx-swap="innerHTML" aria-live="off" { (content) }
    }
}

fn head(shell: &Shell<'_>) -> Markup {
    let asset = |name| ASSET.of([name]);
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="robots" content="noindex";
            meta name="htmx-config" content=(HTMX_CONFIG);
            title { (shell.title) " · Postonce" }
            link rel="icon" href=(ICON);
            @if shell.plots { link rel="stylesheet" href=(asset("uplot.css")); }
            link rel="stylesheet" href=(asset("console.css"));
            script defer src=(asset("htmx.js")) {}
            script defer src=(asset("htmx-sse.js")) {}
            @if shell.plots { script defer src=(asset("uplot.js")) {} }
            script type="module" src=(asset("console.js")) {}
        }
    }
}

fn header(shell: &Shell<'_>) -> Markup {
    html! {
        header.top {
            a.brand href=(Section::Overview.path()) { (mark()) "Postonce" span.brand-part { "Console" } }
            @if let Some(viewer) = shell.viewer {
                .session {
                    span.session-partner { span.session-word { "Signed in as " } strong { (viewer.partner) } }
                    form method="post" action=(SIGN_OUT) {
                        (hidden(TOKEN, &viewer.csrf))
                        button.button.button-small type="submit" { "Sign out" }
                    }
                }
            }
        }
    }
}

/// Returns the navigation. On narrow screens a `details` element, which needs no scripts, shows and hides the list.
fn navigation(sections: &[Section], current: Section) -> Markup {
    let mark = |section: Section| (section == current).then_some("page");
    html! {
        nav.nav aria-label="Sections" {
            details.nav-toggle { summary { "Menu" span.nav-here { (current.label()) } } }
            .nav-list {
                @for group in sections.chunk_by(|one, next| one.group() == next.group()) {
                    @if let Some(heading) = group.first().map(|section| section.group()) {
                        p.nav-heading { (heading) }
                    }
                    ul {
                        @for section in group {
                            li { a href=(section.path()) aria-current=[mark(*section)] { (section.label()) } }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the line that tells whether the page updates itself. `console.js` shows it and changes its text.
fn live_status() -> Markup {
    html! {
        p.live-status data-live-status data-state="connecting" role="status" { "Connecting" }
        noscript { p.live-note { "Reload the page for current values." } }
    }
}

fn mark() -> Markup {
    html! {
        svg.mark viewBox="0 0 32 32" width="28" height="28" aria-hidden="true" {
            rect width="32" height="32" rx="7" {}
            path d="M8 14l6 6L24 8M8 25h16" {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::scopes::Scope;
    use crate::console::viewer::tests::viewer;

    fn plain(viewer: &Viewer) -> Shell<'_> {
        Shell { title: "Queues", current: Section::Queues, viewer: Some(viewer), live: None, plots: false }
    }

    #[test]
    fn a_page_marks_its_section_and_escapes_text() {
        let mut viewer = viewer(Scope::ALL);
        viewer.partner = "a <b>".to_owned();
        let page = page(&plain(&viewer), html! { p { "body" } }).into_string();
        assert!(page.starts_with("<!DOCTYPE html><html lang=\"en\">"));
        assert!(page.contains("<title>Queues · Postonce</title>"));
        assert!(page.contains(r#"<a href="/console/queues" aria-current="page">Queues</a>"#));
        assert_eq!(page.matches("aria-current").count(), 1);
        assert!(page.contains("a &lt;b&gt;"));
        assert!(
            page.contains(r#"action="/console/sign-out"><input type="hidden" name="csrf" value="token">"#)
        );
        for absent in ["sse-connect", "data-live-status", "uplot"] {
            assert!(!page.contains(absent), "{absent}");
        }
    }

    #[test]
    fn a_live_page_connects_and_says_so() {
        let viewer = viewer(Scope::ALL);
        let shell = Shell { live: Some("/console/events?page=queues&n=1"), plots: true, ..plain(&viewer) };
        let page = page(&shell, live("figures", html! { p { "1" } })).into_string();
        assert!(page.contains(r#"hx-ext="sse" sse-connect="/console/events?page=queues&amp;n=1""#));
        assert!(page.contains(r#"sse-swap="figures" hx-swap="innerHTML" aria-live="off"><p>1</p></div>"#));
        assert!(page.contains("Reload the page for current values."));
        assert!(page.contains("/console/assets/uplot.css") && page.contains("/console/assets/uplot.js"));
    }

    #[test]
    fn a_page_for_signing_in_has_no_navigation() {
        let page = page(&Shell { viewer: None, ..plain(&viewer(&[])) }, html! {}).into_string();
        for absent in ["<nav", "Sign out", "Signed in as"] {
            assert!(!page.contains(absent), "{absent}");
        }
    }

    #[test]
    fn the_settings_of_htmx_are_json() {
        let settings: serde_json::Value = serde_json::from_str(HTMX_CONFIG).unwrap();
        assert_eq!(settings["allowEval"], false);
    }
}
