//! Frame of all pages: document, header, navigation and footer; and the regions that events update.

use maud::{DOCTYPE, Markup, html};

use super::components::link_if;

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

/// Section of the console.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Section {
    /// Overview of the service.
    Overview,
    /// The gate: held or released.
    Gate,
    /// Work queues.
    Queues,
    /// Batches of partners.
    Batches,
    /// Work that failed permanently.
    DeadLetters,
    /// Accounts and their transactions.
    Accounts,
    /// Partners, their keys and terms.
    Partners,
    /// Register of order numbers.
    OrderNumbers,
    /// The scrubber, which checks all rows of the store.
    Scrubber,
    /// Anchors of the ledger.
    Anchors,
    /// Administrative acts.
    AuditTrail,
    /// Storage operations and their prices.
    Costs,
}

impl Section {
    /// All sections, in navigation order.
    pub const ALL: [Self; 12] = [
        Self::Overview,
        Self::Gate,
        Self::Queues,
        Self::Batches,
        Self::DeadLetters,
        Self::Accounts,
        Self::Partners,
        Self::OrderNumbers,
        Self::Scrubber,
        Self::Anchors,
        Self::AuditTrail,
        Self::Costs,
    ];

    /// Returns the visible name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Gate => "Gate",
            Self::Queues => "Queues",
            Self::Batches => "Batches",
            Self::DeadLetters => "Dead letters",
            Self::Accounts => "Accounts",
            Self::Partners => "Partners",
            Self::OrderNumbers => "Order numbers",
            Self::Scrubber => "Scrubber",
            Self::Anchors => "Anchors",
            Self::AuditTrail => "Audit trail",
            Self::Costs => "Costs",
        }
    }

    /// Returns the path of the section's first page.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Overview => "/console",
            Self::Gate => "/console/gate",
            Self::Queues => "/console/queues",
            Self::Batches => "/console/batches",
            Self::DeadLetters => "/console/dead-letters",
            Self::Accounts => "/console/accounts",
            Self::Partners => "/console/partners",
            Self::OrderNumbers => "/console/order-numbers",
            Self::Scrubber => "/console/scrubber",
            Self::Anchors => "/console/anchors",
            Self::AuditTrail => "/console/audit",
            Self::Costs => "/console/costs",
        }
    }

    /// Returns the heading above the section in the navigation.
    pub const fn group(self) -> &'static str {
        match self {
            Self::Overview | Self::Gate | Self::Queues | Self::Batches | Self::DeadLetters => "Operations",
            Self::Accounts | Self::Partners => "Customers",
            Self::OrderNumbers | Self::Scrubber | Self::Anchors | Self::AuditTrail | Self::Costs => {
                "Oversight"
            }
        }
    }
}

/// Content of the frame of a page.
#[derive(Debug, Clone, Copy)]
pub struct Shell<'a> {
    /// Title of the page, which is also its first heading.
    pub title: &'a str,
    /// Section of the page.
    pub current: Section,
    /// Sections in the navigation, in their order. If empty, the page has no navigation, as the sign-in page.
    pub sections: &'a [Section],
    /// Partner of the signed-in operator.
    pub partner: Option<&'a str>,
    /// Token that forms send back. Without it, the page has no sign-out button.
    pub csrf: Option<&'a str>,
    /// Version of the program.
    pub build: &'a str,
    /// Address of the event stream that updates the regions made by [`live`].
    pub live: Option<&'a str>,
    /// Whether the page has plots.
    pub plots: bool,
}

/// Returns a complete page. The title is the first heading, and the body follows it.
pub fn page(shell: &Shell<'_>, body: Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(shell))
            body {
                a.skip href="#main" { "Skip to the content" }
                (header(shell))
                .frame.frame-plain[shell.sections.is_empty()] {
                    @if !shell.sections.is_empty() { (navigation(shell)) }
                    .content hx-ext=[shell.live.map(|_| "sse")] sse-connect=[shell.live] {
                        main #main tabindex="-1" {
                            .page-head {
                                h1 { (shell.title) }
                                @if shell.live.is_some() { (live_status()) }
                            }
                            (body)
                        }
                        footer.foot {
                            span { "Postonce " (shell.build) }
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
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="robots" content="noindex";
            meta name="htmx-config" content=(HTMX_CONFIG);
            title { (shell.title) " · Postonce" }
            link rel="icon" href=(ICON);
            @if shell.plots { link rel="stylesheet" href="/console/assets/uplot.css"; }
            link rel="stylesheet" href="/console/assets/console.css";
            script defer src="/console/assets/htmx.js" {}
            script defer src="/console/assets/htmx-sse.js" {}
            @if shell.plots { script defer src="/console/assets/uplot.js" {} }
            script type="module" src="/console/assets/console.js" {}
        }
    }
}

fn header(shell: &Shell<'_>) -> Markup {
    html! {
        header.top {
            a.brand href=(Section::Overview.path()) { (mark()) "Postonce" span.brand-part { "Console" } }
            @if shell.partner.is_some() || shell.csrf.is_some() {
                .session {
                    @if let Some(partner) = shell.partner {
                        span.session-partner { span.session-word { "Signed in as " } strong { (partner) } }
                    }
                    @if let Some(csrf) = shell.csrf {
                        form method="post" action="/console/sign-out" {
                            input type="hidden" name="csrf" value=(csrf);
                            button.button.button-small type="submit" { "Sign out" }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the navigation. On narrow screens a `details` element, which needs no scripts, shows and hides the list.
fn navigation(shell: &Shell<'_>) -> Markup {
    let current = |section: Section| (section == shell.current).then_some("page");
    html! {
        nav.nav aria-label="Sections" {
            details.nav-toggle { summary { "Menu" span.nav-here { (shell.current.label()) } } }
            .nav-list {
                @for group in shell.sections.chunk_by(|one, next| one.group() == next.group()) {
                    @if let Some(heading) = group.first().map(|section| section.group()) {
                        p.nav-heading { (heading) }
                    }
                    ul {
                        @for section in group {
                            li { a href=(section.path()) aria-current=[current(*section)] { (section.label()) } }
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

/// Returns a link to a section, or plain text if the operator may not read it.
pub fn link(sections: &[Section], section: Section, text: &str) -> Markup {
    link_if(sections.contains(&section), section.path(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Shell<'_> = Shell {
        title: "Queues",
        current: Section::Queues,
        sections: &Section::ALL,
        partner: Some("a <b>"),
        csrf: Some("token"),
        build: "1.2.3",
        live: None,
        plots: false,
    };

    #[test]
    fn a_page_marks_its_section_and_escapes_text() {
        let page = page(&PLAIN, html! { p { "body" } }).into_string();
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
        let shell = Shell { live: Some("/console/events?page=queues&n=1"), plots: true, ..PLAIN };
        let page = page(&shell, live("figures", html! { p { "1" } })).into_string();
        assert!(page.contains(r#"hx-ext="sse" sse-connect="/console/events?page=queues&amp;n=1""#));
        assert!(page.contains(r#"sse-swap="figures" hx-swap="innerHTML" aria-live="off"><p>1</p></div>"#));
        assert!(page.contains("Reload the page for current values."));
        assert!(page.contains("/console/assets/uplot.css") && page.contains("/console/assets/uplot.js"));
    }

    #[test]
    fn a_page_for_signing_in_has_no_navigation() {
        let shell = Shell { sections: &[], partner: None, csrf: None, ..PLAIN };
        let page = page(&shell, html! {}).into_string();
        for absent in ["<nav", "Sign out", "Signed in as"] {
            assert!(!page.contains(absent), "{absent}");
        }
    }

    #[test]
    fn the_settings_of_htmx_are_json() {
        let settings: serde_json::Value = serde_json::from_str(HTMX_CONFIG).unwrap();
        assert_eq!(settings["allowEval"], false);
    }

    #[test]
    fn paths_differ_and_groups_are_together() {
        let mut paths = Section::ALL.map(Section::path);
        paths.sort_unstable();
        assert!(paths.windows(2).all(|pair| pair[0] != pair[1]));
        let groups = Section::ALL.chunk_by(|one, next| one.group() == next.group());
        assert_eq!(groups.count(), 3);
    }

    #[test]
    fn only_what_may_be_read_is_a_link() {
        let text = |sections: &[Section]| link(sections, Section::Gate, "The gate").into_string();
        assert_eq!(text(&[Section::Gate]), r#"<a href="/console/gate">The gate</a>"#);
        assert_eq!(text(&[Section::Queues]), "The gate");
    }
}
