//! The alert rules for Prometheus, and the runbook that they refer to.

use std::collections::BTreeSet;

use postonce_tests::{promtool, workspace};

const RULES: &str = include_str!("../../deploy/prometheus/rules.yaml");
const RUNBOOK: &str = include_str!("../../deploy/runbook.md");
const METRICS: &str = include_str!("../../schemas/metrics.md");

#[test]
fn each_alert_fires_for_its_cause_and_only_then() {
    let directory = workspace::root().join("deploy/prometheus");
    for arguments in [["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]] {
        let (is_fine, output) = promtool::run(&arguments, &directory, "");
        assert!(is_fine && output.contains("SUCCESS"), "{arguments:?} printed\n{output}");
    }
}

#[test]
fn each_alert_has_a_section_of_the_runbook() {
    let alerts: BTreeSet<&str> =
        RULES.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let sections: BTreeSet<&str> = RUNBOOK.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(alerts, sections);
    let links: BTreeSet<String> = RULES
        .lines()
        .filter_map(|line| line.trim().strip_prefix("runbook_url: runbook.md#").map(str::to_owned))
        .collect();
    assert_eq!(links, alerts.iter().map(|alert| alert.to_lowercase()).collect());
}

#[test]
fn the_rules_use_metrics_that_exist() {
    let of_bank = |text: &str| -> BTreeSet<String> {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let names = words.filter(|word| word.starts_with("postonce_") || word.starts_with("process_"));
        names.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
    };
    let (used, listed) = (of_bank(RULES), of_bank(METRICS));
    assert!(used.len() > 15, "{used:?}");
    assert_eq!(used.difference(&listed).collect::<Vec<_>>(), Vec::<&String>::new());
}
