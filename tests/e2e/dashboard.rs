//! The Grafana dashboard: its queries are valid, use metrics that exist, and say their units.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use postonce_tests::promtool;
use serde_json::Value;

const DASHBOARD: &str = include_str!("../../deploy/grafana/postonce.json");
const METRICS: &str = include_str!("../../schemas/metrics.md");
/// Kinds of panels that show data.
const KINDS: [&str; 2] = ["timeseries", "stat"];

fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(DASHBOARD).expect("the dashboard is JSON");
    let panels = dashboard["panels"].as_array().expect("it has panels").clone();
    panels.into_iter().filter(|panel| panel["type"] != "row").collect()
}

fn queries() -> Vec<String> {
    let panels = panels();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("queries"));
    targets.map(|target| target["expr"].as_str().expect("a query").to_owned()).collect()
}

#[test]
fn each_query_is_valid() {
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    for (index, query) in queries().iter().enumerate() {
        let query = query.replace("$__rate_interval", "5m").replace("$job", ".*").replace('\'', "''");
        write!(rules, "  - record: panel:query:{index}\n    expr: '{query}'\n").expect("text can be written");
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("dashboard.yaml"), rules).expect("a file");
    let (is_fine, output) = promtool::run(&["check", "rules", "dashboard.yaml"], folder.path(), "");
    assert!(is_fine && output.contains("SUCCESS"), "{output}");
}

#[test]
fn the_queries_use_metrics_that_exist() {
    let names = |text: &str| -> BTreeSet<String> {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let names = words.filter(|word| word.starts_with("postonce_") || word.starts_with("process_"));
        names.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
    };
    let listed = names(METRICS);
    let used: BTreeSet<String> = queries().iter().flat_map(|query| names(query)).collect();
    assert!(used.len() > 25, "{used:?}");
    assert_eq!(used.difference(&listed).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[test]
fn each_panel_has_a_unit_and_an_explanation() {
    let panels = panels();
    let mut titles = BTreeSet::new();
    for panel in &panels {
        let title = panel["title"].as_str().expect("a title");
        assert!(titles.insert(title), "two panels have the title {title}");
        assert!(KINDS.contains(&panel["type"].as_str().expect("a kind")), "{title}");
        assert!(panel["fieldConfig"]["defaults"]["unit"].is_string(), "{title} has no unit");
        assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{title}");
    }
    // No two panels overlap.
    let mut cells = BTreeSet::new();
    for panel in &panels {
        let at = |name: &str| panel["gridPos"][name].as_u64().expect("a position");
        assert!(at("x") + at("w") <= 24, "{panel}");
        for (column, line) in (0..at("w")).flat_map(|column| (0..at("h")).map(move |line| (column, line))) {
            assert!(cells.insert((at("x") + column, at("y") + line)), "{} overlaps", panel["title"]);
        }
    }
}
