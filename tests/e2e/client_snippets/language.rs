//! The languages of the snippets, and the programs that run them.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use postonce_tests::npm::TYPESCRIPT;
use postonce_tests::process::Launch;
use postonce_tests::{java, python, workspace};

/// Longest time for a compilation.
const COMPILE_TIME_MAX: Duration = Duration::from_secs(300);

/// The language of a snippet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Python,
    TypeScript,
    Java,
    Curl,
}

impl Language {
    /// The start of the snippet, without its arguments. `None` if there is no JDK and this is not a run of CI: then the
    /// tests of this language are skipped.
    pub fn launch(self, directory: &Path) -> Option<Launch> {
        let snippets = workspace::root().join("schemas/clients");
        let (program, arguments) = match self {
            // Without the packages of its environment: the snippet uses the standard library only.
            Self::Python => (python::program(), vec!["-S".into(), snippets.join("deposit.py")]),
            Self::TypeScript => ("node".into(), vec![compiled_typescript().into()]),
            Self::Java if java::has_jdk() => ("java".into(), vec![snippets.join("Deposit.java")]),
            Self::Java => return None,
            Self::Curl => ("bash".into(), vec![snippets.join("deposit.sh")]),
        };
        let mut launch = Launch::of(format!("{self:?}"), program, directory).arguments(arguments);
        // The settings, the proxies and the language of the user who runs the tests do not apply.
        launch.hidden_prefixes = vec!["POSTONCE_"];
        let fixed = [("NO_PROXY", "*"), ("no_proxy", "*"), ("LC_ALL", "C.UTF-8")];
        launch.environment.extend(fixed.map(|(name, value)| (name.to_owned(), value.to_owned())));
        Some(launch)
    }
}

/// The snippet as JavaScript, which every supported version of Node.js can run. Its types are checked.
fn compiled_typescript() -> &'static Path {
    static COMPILED: OnceLock<Box<Path>> = OnceLock::new();
    COMPILED.get_or_init(|| {
        let directory = TYPESCRIPT.installed();
        let output = workspace::target_directory().join("client-snippets");
        let options = ["node_modules/typescript/bin/tsc", "--project", ".", "--outDir"].map(OsString::from);
        let arguments = options.into_iter().chain([output.clone().into_os_string()]);
        let (status, printed) =
            Launch::of("tsc", "node", &directory).arguments(arguments).run(COMPILE_TIME_MAX);
        assert!(status.success(), "deposit.ts is not valid:\n{}", printed.join("\n"));
        fs::write(output.join("package.json"), r#"{"type":"module"}"#).expect("a file can be written");
        output.join("deposit.js").into_boxed_path()
    })
}
