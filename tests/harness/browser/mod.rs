//! A real Chromium without a window, which is driven through WebDriver. Each one has a new profile. It connects to loopback
//! only, and accepts every certificate.
//!
//! Every method waits for its condition for up to [`WAIT_TIME_MAX`]. When that does not come true, the test fails with what was
//! awaited, the address, the visible text and the console of the page. Elements are named by CSS selectors; where several
//! match, the first one counts. An element is *shown* when it is rendered, wherever the page is scrolled to.
//!
//! The protocol is implemented [here](webdriver), as the crates for it bring a license that `deny.toml` refuses (fantoccini) or
//! a second HTTP client (thirtyfour).

mod axe;
mod downloads;
mod elements;
mod emulation;
mod install;
mod keys;
mod observations;
mod webdriver;

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Launch, Process, Signal};
use crate::{debian, wait, workspace};
use install::Programs;
pub use observations::Cookie;
use webdriver::{Fault, Session};

/// Longest time for which a method waits for its condition. The overview reads the store rarely, on Azure up to once a minute if
/// operations had to be repeated: a change is shown after the reading that follows it, and some reading may fail.
pub const WAIT_TIME_MAX: Duration = Duration::from_secs(180);

/// Longest time for the end of the processes.
const END_TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum number of attempts to start chromedriver.
const CHROMEDRIVER_STARTS_MAX: usize = 5;

/// Maximum number of characters of the visible text in a failure.
const TEXT_PRINTED_MAX: usize = 2000;

/// Arguments of Chromium, apart from those that depend on the machine.
const ARGUMENTS: &[&str] = &[
    "--headless=new",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
    "--remote-debugging-port=0",
    // No page of its own, no question, no note about an update.
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-default-apps",
    "--disable-extensions",
    "--enable-automation",
    "--password-store=basic",
    // As few requests of its own as possible. All others fail, since no name but that of this machine is looked up.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--disable-features=MediaRouter,OptimizationHints,Translate",
    "--no-pings",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost , EXCLUDE 127.0.0.1",
    // Pages are tested while they are in the background, at full speed.
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    // The same on every machine, and the viewport as wide as it is set.
    "--lang=en-US",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    // A machine without a desktop lacks much that Chromium would report as errors.
    "--log-level=3",
];

/// A running Chromium with one page. Its processes end when it is dropped, or else with the test process.
#[derive(Debug)]
pub struct Browser {
    session: Session,
    /// Chromium is no child of it, since the children of a process that is killed would stay.
    chromedriver: Process,
    chromium: Process,
    /// Deleted after the processes have ended.
    profile: TempDir,
}

impl Browser {
    /// Starts Chromium with an empty page. Installs it first if it is missing.
    ///
    /// # Panics
    /// When that fails. The message says how to fix it.
    pub async fn start() -> Self {
        let programs = Programs::get();
        let profile = TempDir::with_prefix("postonce-chromium-").expect("a directory");
        let mut chromium = Process::start(&launch_of_chromium(&programs.chromium, profile.path()));
        let debugger_port = chromium.wait_for_line("port of Chromium", wait::TIMEOUT, |line| {
            let (_, address) = line.split_once("DevTools listening on ws://127.0.0.1:")?;
            address.split('/').next()?.parse().ok()
        });
        let launch =
            Launch::of("chromedriver", &programs.chromedriver, profile.path()).arguments(["--port=0"]);
        let (chromedriver, driver_port) = (0..CHROMEDRIVER_STARTS_MAX)
            .find_map(|_| start_chromedriver(&launch))
            .expect("chromedriver finds a port that is free for both versions of the internet protocol");
        let session = done("a session with Chromium", Session::open(driver_port, debugger_port).await);
        Self { session, chromedriver, chromium, profile }
    }

    /// The process ids of Chromium and of chromedriver.
    pub fn pids(&self) -> [u32; 2] {
        [self.chromium.pid(), self.chromedriver.pid()]
    }

    /// Opens an address, and waits until the page and what it needs are loaded.
    ///
    /// # Panics
    /// When no page can be loaded. A page with a status such as 404 is one.
    pub async fn open(&self, url: &str) {
        done(&format!("opening {url}"), self.session.post("/url", json!({"url": url})).await);
        // WebDriver reports most errors of the network, but not all.
        let shown = self.run("return document.URL").await;
        assert!(!text_of(&shown).starts_with("chrome-error:"), "opening {url}: Chromium shows an error");
    }

    /// The address of the present page.
    pub async fn address(&self) -> String {
        text_of(&done("the address", self.session.get("/url").await))
    }

    /// The document as HTML, with the changes that scripts have made.
    pub async fn source(&self) -> String {
        text_of(&done("the source", self.session.get("/source").await))
    }

    /// Runs the body of a function in the page, whatever its Content-Security-Policy, and even if its own scripts are
    /// [disabled](Self::scripts). Returns the result, or that of the promise that it returns.
    ///
    /// # Panics
    /// When it throws.
    pub async fn run(&self, script: &str) -> Value {
        done(&format!("running {script}"), self.session.execute(script, json!([])).await)
    }

    /// Waits until the body of a function returns `true`. It counts as `false` if it throws.
    pub async fn wait_until(&self, description: &str, script: &str) {
        let check = async || {
            let result = self.session.execute(script, json!([])).await?;
            if result == true { Ok(()) } else { Err(format!("the script returned {result}")) }
        };
        self.until(description, check).await;
    }

    /// Returns the result of `check` as soon as it is `Ok`. `Err` describes the current state.
    async fn until<T>(&self, what: &str, check: impl AsyncFnMut() -> Result<T, String>) -> T {
        match wait::attempt(WAIT_TIME_MAX, check).await {
            Ok(found) => found,
            Err(state) => {
                let page = self.described().await.unwrap_or_else(|fault| format!("no page: {fault}"));
                panic!("{what}: not within {WAIT_TIME_MAX:?}; seen last: {state}\n{page}")
            }
        }
    }

    /// The page, for failures.
    async fn described(&self) -> Result<String, Fault> {
        let address = text_of(&self.session.get("/url").await?);
        let text = text_of(&self.session.execute("return document.body?.innerText ?? ''", json!([])).await?);
        let text: String = text.chars().take(TEXT_PRINTED_MAX).collect();
        let messages = self.new_messages().await?.join("\n");
        Ok(format!("---- page {address}\n{text}\n---- console of the page\n{messages}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        for process in [&mut self.chromedriver, &mut self.chromium] {
            process.signal(Signal::Kill);
        }
        // The processes below Chromium notice its end, and write to the profile until then.
        let closed = || {
            let [chromedriver, chromium] =
                [&self.chromedriver, &self.chromium].map(Process::is_output_closed);
            if chromedriver && chromium { Ok(()) } else { Err(String::new()) }
        };
        drop(wait::block_until(END_TIME_MAX, closed));
    }
}

/// The path for a screenshot with that name, in a directory of Cargo's target directory.
pub fn screenshot_path(name: &str) -> PathBuf {
    workspace::target_directory().join("screenshots").join(format!("{name}.png"))
}

/// Starts chromedriver. Returns it with its port; `None` if it ends at once, because the port that it took of one version of the
/// internet protocol is in use for the other one.
fn start_chromedriver(launch: &Launch) -> Option<(Process, u16)> {
    let mut chromedriver = Process::start(launch);
    let started = chromedriver.wait_for_line_or_end("port of chromedriver", wait::TIMEOUT, |line| {
        let (_, port) = line.split_once("started successfully on port ")?;
        port.trim_end_matches('.').parse().ok()
    });
    match started {
        Ok(port) => Some((chromedriver, port)),
        Err(status) => {
            eprintln!("chromedriver ended ({status}):\n{}", chromedriver.log().lines().join("\n"));
            None
        }
    }
}

fn launch_of_chromium(program: &Path, profile: &Path) -> Launch {
    let mut launch = Launch::of("chromium", program, profile)
        .arguments(ARGUMENTS)
        .arguments([format!("--user-data-dir={}", profile.display())]);
    if debian::is_root() {
        // Its sandbox needs another user.
        launch = launch.arguments(["--no-sandbox"]);
    }
    // Caches and crash reports are not left in the user's directory.
    launch.environment.insert("HOME".to_owned(), profile.display().to_string());
    launch.hidden_prefixes = vec!["XDG_", "CHROMIUM_FLAGS"];
    launch.arguments(["about:blank"])
}

/// The result of a command that does not fail in a correct test.
fn done<T>(what: &str, result: Result<T, Fault>) -> T {
    result.unwrap_or_else(|fault| panic!("{what}: {fault}"))
}

/// A text that WebDriver or a script has returned.
fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("a text was expected, not {value}")).to_owned()
}
