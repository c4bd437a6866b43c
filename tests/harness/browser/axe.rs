//! axe-core, which finds accessibility problems in the current page, such as low contrast and fields without a name.

use std::fs;

use serde_json::json;

use super::{Browser, done};
use crate::npm::Locked;

const AXE: Locked =
    Locked { directory: "tests/browser", why: "the tests check with axe-core whether pages are accessible" };

/// Script that runs axe-core. `preload` is disabled because it would request the style sheets again.
const RUN: &str = "
    const examples = nodes => nodes.slice(0, 3).map(node => `${node.target.flat(9).join(' ')} ${node.html}`);
    const more = nodes => nodes.length > 3 ? ` | and ${nodes.length - 3} more` : '';
    return axe.run(document, {preload: false, resultTypes: ['violations']}).then(result => result.violations.map(
        ({id, impact, help, nodes}) => `${id} (${impact}): ${help}: ${examples(nodes).join(' | ')}${more(nodes)}`
    ));
";

impl Browser {
    /// Checks the current page with all rules that axe-core enables by default. Returns a line for each violated rule: its name,
    /// its impact, how to fix it, and the selector and the HTML of the first elements. Results that axe-core reports as
    /// undecided are omitted.
    ///
    /// # Panics
    /// When axe-core is missing and cannot be installed.
    pub async fn axe(&self) -> Vec<String> {
        let path = AXE.installed().join("node_modules/axe-core/axe.min.js");
        let source = fs::read_to_string(path).expect("an installed axe-core has a source");
        let lines = self.session.execute(&format!("{source};\n{RUN}"), json!([])).await;
        serde_json::from_value(done("axe-core", lines)).expect("a list of lines")
    }
}
