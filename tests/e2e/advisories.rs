//! Known vulnerabilities of the dependencies, from a copy of the RustSec advisory database, which not every machine can fetch.
//!
//! `.ci/run` asks cargo-deny as well, where it is installed and can fetch the database. Both take exceptions and scopes from
//! `deny.toml`, and fail for each kind of advisory. The test is stricter in two ways: if `deny.toml` sets no scope for unsound
//! crates, it counts all of them and not only direct dependencies; and it counts every package of the lock file, even if no
//! feature that is used needs it.

use std::fmt::Display;
use std::fs;
use std::str::FromStr;

use postonce_tests::workspace;
use semver::{Version, VersionReq};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use time::Date;
use time::macros::format_description;

/// The copy of the database.
const COPY: &str = "tests/advisories/advisories.toml";

/// The copy of the database, without what only people read.
#[derive(Deserialize)]
struct Advisories {
    /// The day of the state that was copied.
    taken: String,
    advisories: Vec<Advisory>,
}

#[derive(Deserialize)]
struct Advisory {
    id: String,
    package: String,
    kind: Kind,
    #[serde(default, deserialize_with = "all_parsed")]
    patched: Vec<VersionReq>,
    #[serde(default, deserialize_with = "all_parsed")]
    unaffected: Vec<VersionReq>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Vulnerability,
    Unmaintained,
    Unsound,
    Notice,
}

#[derive(Deserialize)]
struct Lock {
    #[serde(rename = "package")]
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    #[serde(deserialize_with = "parsed")]
    version: Version,
    /// Our own crates have none.
    source: Option<String>,
    /// Names, with the version where there are several.
    #[serde(default)]
    dependencies: Vec<String>,
}

#[derive(Deserialize)]
struct Deny {
    advisories: Settings,
}

#[derive(Deserialize)]
struct Settings {
    #[serde(default)]
    ignore: Vec<Ignored>,
    #[serde(default)]
    unmaintained: Scope,
    #[serde(default)]
    unsound: Scope,
}

/// An exception. Unlike cargo-deny, the test wants a reason.
#[derive(Deserialize)]
struct Ignored {
    id: String,
    reason: String,
}

/// The packages for which advisories of one kind count, as in cargo-deny.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Scope {
    #[default]
    All,
    /// Direct dependencies of our crates.
    Workspace,
    /// All others.
    Transitive,
    None,
}

/// What a check found, as lines for people.
#[derive(Default)]
struct Report {
    /// What must be changed.
    problems: Vec<String>,
    /// What `deny.toml` does not count.
    uncounted: Vec<String>,
}

fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(deserializer: D) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse::<T>().map_err(|error| D::Error::custom(format!("{text}: {error}")))
}

fn all_parsed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<VersionReq>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let parse = |text: &String| {
        text.parse::<VersionReq>().map_err(|error| D::Error::custom(format!("{text}: {error}")))
    };
    texts.iter().map(parse).collect()
}

impl Advisory {
    /// Whether a package is affected. A pre-release only meets a requirement that names a pre-release of the same version;
    /// another one counts as affected, until somebody has looked.
    fn affects(&self, package: &Package) -> bool {
        let excludes = |requirement: &VersionReq| requirement.matches(&package.version);
        self.package == package.name && !self.patched.iter().chain(&self.unaffected).any(excludes)
    }

    fn describe(&self, package: &Package) -> String {
        let patched: Vec<String> = self.patched.iter().map(VersionReq::to_string).collect();
        let remedy = if patched.is_empty() {
            "no version is patched".to_owned()
        } else {
            format!("patched: {}", patched.join(" or "))
        };
        let Package { name, version, .. } = package;
        format!("{} ({:?}): {name} {version}; {remedy}", self.id, self.kind)
    }
}

impl Package {
    /// Whether an entry in the dependencies of another package means this one.
    fn is_meant_by(&self, dependency: &str) -> bool {
        let mut words = dependency.split(' ');
        words.next() == Some(self.name.as_str())
            && words.next().is_none_or(|version| version == self.version.to_string())
    }
}

impl Lock {
    fn is_direct(&self, package: &Package) -> bool {
        let own = self.packages.iter().filter(|package| package.source.is_none());
        own.flat_map(|own| &own.dependencies).any(|dependency| package.is_meant_by(dependency))
    }

    /// The packages that are not ours, and the advisories that affect them.
    fn affected<'a>(
        &'a self,
        advisories: &'a Advisories,
    ) -> impl Iterator<Item = (&'a Package, &'a Advisory)> {
        let packages = self.packages.iter().filter(|package| package.source.is_some());
        packages.flat_map(|package| {
            let affecting = advisories.advisories.iter().filter(|advisory| advisory.affects(package));
            affecting.map(move |advisory| (package, advisory))
        })
    }
}

impl Settings {
    fn count(&self, kind: Kind, is_direct: bool) -> bool {
        let scope = match kind {
            Kind::Vulnerability | Kind::Notice => Scope::All,
            Kind::Unmaintained => self.unmaintained,
            Kind::Unsound => self.unsound,
        };
        match scope {
            Scope::All => true,
            Scope::Workspace => is_direct,
            Scope::Transitive => !is_direct,
            Scope::None => false,
        }
    }
}

fn check(advisories: &Advisories, lock: &Lock, settings: &Settings) -> Report {
    let mut report = Report::default();
    for (package, advisory) in lock.affected(advisories) {
        if settings.ignore.iter().any(|ignored| ignored.id == advisory.id) {
            continue;
        }
        let line = advisory.describe(package);
        if settings.count(advisory.kind, lock.is_direct(package)) {
            report.problems.push(line);
        } else {
            report.uncounted.push(format!("{line} (not counted by deny.toml)"));
        }
    }
    for Ignored { id, reason } in &settings.ignore {
        if !lock.affected(advisories).any(|(_, advisory)| advisory.id == *id) {
            report.problems.push(format!("{id} is ignored, but affects nothing any more"));
        }
        if reason.trim().is_empty() {
            report.problems.push(format!("{id} is ignored without a reason"));
        }
    }
    report
}

fn read<T: DeserializeOwned>(path: &str) -> T {
    let text = fs::read_to_string(workspace::root().join(path)).expect("the file can be read");
    toml::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn no_dependency_has_a_known_vulnerability() {
    let advisories: Advisories = read(COPY);
    let Deny { advisories: settings } = read("deny.toml");
    let Report { problems, uncounted } = check(&advisories, &read("Cargo.lock"), &settings);
    assert!(
        problems.is_empty(),
        "advisories of {} affect crates; update these, or list exceptions with their reason in deny.toml:\n{}",
        advisories.taken,
        [problems, uncounted].concat().join("\n")
    );
}

#[test]
fn the_copy_is_whole_and_says_when_it_was_taken() {
    let advisories: Advisories = read(COPY);
    let taken = Date::parse(&advisories.taken, format_description!("[year]-[month]-[day]"));
    assert!(taken.is_ok(), "{}: {taken:?}", advisories.taken);
    // The database had 1,192 in 2026; few are ever withdrawn.
    assert!(advisories.advisories.len() > 1_100, "{} advisories", advisories.advisories.len());
}

/// An advisory about `parser`.
fn advisory(kind: &str) -> Advisories {
    let text = format!(
        r#"
        taken = "2026-08-21"
        [[advisories]]
        id = "A-1"
        package = "parser"
        kind = "{kind}"
        patched = [">= 1.3, < 2.0.0", "^2.0.1", ">= 9"]
        unaffected = ["< 1.1"]"#
    );
    toml::from_str(&text).expect("it is TOML")
}

/// A lock file: our crate needs `direct` and a patched version of `parser`, and `direct` needs this version of it.
fn lock(version: &str) -> Lock {
    let text = format!(
        r#"
        package = [
            {{ name = "own", version = "0.1.0", dependencies = ["direct", "parser 9.0.0"] }},
            {{ name = "direct", version = "1.2.0", source = "index", dependencies = ["parser {version}"] }},
            {{ name = "parser", version = "{version}", source = "index" }},
            {{ name = "parser", version = "9.0.0", source = "index" }},
        ]"#
    );
    toml::from_str(&text).expect("it is TOML")
}

fn settings(text: &str) -> Settings {
    toml::from_str(text).expect("it is TOML")
}

#[test]
fn an_affected_version_is_found_and_a_patched_or_unaffected_one_is_not() {
    let problems = |lock: &Lock| check(&advisory("vulnerability"), lock, &settings("")).problems;
    for affected in ["1.1.0", "1.2.9", "2.0.0", "2.1.0-rc.1", "3.0.0", "1.2.0+build"] {
        assert_eq!(problems(&lock(affected)).len(), 1, "{affected}");
    }
    for other in ["0.9.0", "1.0.9", "1.3.0", "1.9.0+build", "2.0.1", "2.7.0"] {
        assert_eq!(problems(&lock(other)), Vec::<String>::new(), "{other}");
    }
    let mut lock = lock("1.2.9");
    let line = "A-1 (Vulnerability): parser 1.2.9; patched: >=1.3, <2.0.0 or ^2.0.1 or >=9";
    assert_eq!(problems(&lock), [line]);
    lock.packages.iter_mut().for_each(|package| package.source = None);
    assert_eq!(problems(&lock), Vec::<String>::new(), "a crate of ours has the name of another");
}

#[test]
fn an_exception_needs_a_reason_and_something_that_it_is_for() {
    let ignored = r#"ignore = [{ id = "A-1", reason = "never given input of others" }]"#;
    let found = |version| check(&advisory("vulnerability"), &lock(version), &settings(ignored)).problems;
    assert_eq!(found("1.2.9"), Vec::<String>::new());
    assert_eq!(found("1.3.0"), ["A-1 is ignored, but affects nothing any more"]);
    let blank = settings(r#"ignore = [{ id = "A-1", reason = " " }]"#);
    let found = check(&advisory("vulnerability"), &lock("1.2.9"), &blank).problems;
    assert_eq!(found, ["A-1 is ignored without a reason"]);
    for incomplete in [r#"ignore = ["A-1"]"#, r#"ignore = [{ id = "A-1" }]"#] {
        assert!(toml::from_str::<Settings>(incomplete).is_err(), "{incomplete}");
    }
}

#[test]
fn deny_toml_says_for_which_packages_unmaintained_and_unsound_ones_count() {
    let counts = |kind: &str, scope: &str, lock: &Lock| {
        let Report { problems, uncounted } = check(&advisory(kind), lock, &settings(scope));
        assert_eq!(problems.len() + uncounted.len(), 1, "{kind} {scope}");
        problems.len() == 1
    };
    let below = lock("1.2.0");
    let mut direct = lock("1.2.0");
    direct.packages[0].dependencies.push("parser 1.2.0".to_owned());
    for kind in ["unmaintained", "unsound"] {
        for (scope, if_below, if_direct) in [
            (String::new(), true, true),
            (format!(r#"{kind} = "all""#), true, true),
            (format!(r#"{kind} = "workspace""#), false, true),
            (format!(r#"{kind} = "transitive""#), true, false),
            (format!(r#"{kind} = "none""#), false, false),
        ] {
            let counted = (counts(kind, &scope, &below), counts(kind, &scope, &direct));
            assert_eq!(counted, (if_below, if_direct), "{kind} {scope}");
        }
    }
    let none = "unmaintained = \"none\"\nunsound = \"none\"";
    assert!(counts("notice", none, &below) && counts("vulnerability", none, &below));
}
