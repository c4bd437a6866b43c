//! The scripts and styles of other projects that the console serves: byte for byte those of the packages that the lock file names,
//! whose hashes npm checks.

use std::fs;
use std::path::Path;

use postonce_tests::npm::Locked;
use postonce_tests::workspace;

const PACKAGES: Locked = Locked {
    directory: "web/console",
    why: "the tests compare the files in web/src/console/assets/vendor with those of their packages",
};

/// The files, and those in the packages of which they are copies.
const COPIES: [(&str, &str); 4] = [
    ("htmx-sse.js", "htmx-ext-sse/dist/sse.js"),
    ("htmx.min.js", "htmx.org/dist/htmx.min.js"),
    ("uplot.iife.min.js", "uplot/dist/uPlot.iife.min.js"),
    ("uplot.min.css", "uplot/dist/uPlot.min.css"),
];
const LICENSES: &str = "LICENSES.txt";

#[test]
fn files_of_packages_are_unchanged_and_come_with_their_licenses() {
    let vendor = workspace::root().join("web/src/console/assets/vendor");
    let modules = PACKAGES.installed().join("node_modules");
    let mut names: Vec<String> = fs::read_dir(&vendor)
        .expect("a directory can be read")
        .map(|entry| entry.expect("an entry can be read").file_name().to_string_lossy().into_owned())
        .filter(|name| name != LICENSES)
        .collect();
    names.sort();
    assert_eq!(names, COPIES.map(|(name, _)| name), "each file is a copy of one in a package");
    let licenses = words(&vendor.join(LICENSES));
    for (name, original) in COPIES {
        let [copy, source] =
            [vendor.join(name), modules.join(original)].map(|path| fs::read(path).expect(name));
        assert!(copy == source, "{name} differs from {original} of the version in the lock file");
        let (package, _) = original.split_once('/').expect("a file is in a package");
        assert!(
            licenses.contains(&words(&modules.join(package).join("LICENSE"))),
            "{LICENSES} lacks the license of {package}"
        );
    }
}

/// The words of a text, however its lines are broken.
fn words(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
