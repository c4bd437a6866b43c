//! A headless Chromium, controlled through WebDriver. Each instance has a new profile, connects to loopback only, and accepts
//! every certificate.
//!
//! Every method waits up to [`WAIT_TIME_MAX`] for its condition. A test whose condition does not come true fails with a
//! description of it, and with the address, the visible text and the console of the page. Elements are selected by CSS
//! selectors, and the first match counts. An element is *shown* when it is rendered, at any scroll position.
//!
//! The protocol is implemented in [`webdriver`], because the crates for it bring a license that `deny.toml` refuses
//! (fantoccini) or a second HTTP client (thirtyfour).

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

/// Maximum wait for a condition. The overview reads the store rarely, on Azure up to once a minute if operations had to be
/// repeated. It shows a change after the next read, and reads can fail.
pub const WAIT_TIME_MAX: Duration = Duration::from_secs(180);

/// Maximum wait for the end of the processes.
const END_TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum number of attempts to start chromedriver.
const CHROMEDRIVER_STARTS_MAX: usize = 5;

/// Maximum number of characters of the visible text in a failure message.
const TEXT_PRINTED_MAX: usize = 2000;

/// Arguments of Chromium that do not depend on the machine.
const ARGUMENTS: &[&str] = &[
    "--headless=new",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
    "--remote-debugging-port=0",
    // No welcome page, no prompts, no update notices.
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-default-apps",
    "--disable-extensions",
    "--enable-automation",
    "--password-store=basic",
    // As few requests of Chromium itself as possible. The remaining ones fail, because only local names resolve.
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-domain-reliability",
    "--disable-sync",
    "--disable-features=MediaRouter,OptimizationHints,Translate",
    "--no-pings",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost , EXCLUDE 127.0.0.1",
    // Pages in the background run at full speed.
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    // The same rendering on every machine, with the full width of the viewport.
    "--lang=en-US",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    // On a machine without a desktop, Chromium reports many missing parts as errors.
    "--log-level=3",
];

/// A running Chromium with one page. Its processes end when this value is dropped, and at the latest with the test process.
#[derive(Debug)]
pub struct Browser {
    session: Session,
    /// Not the parent of Chromium, because children of a killed process keep running.
    chromedriver: Process,
    chromium: Process,
    /// Deleted after the processes have ended.
    profile: TempDir,
}

impl Browser {
    /// Starts Chromium with an empty page. Installs it first if it is missing.
    ///
    /// # Panics
    /// When Chromium cannot be started. The message says how to fix it.
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

    /// Returns the process ids of Chromium and of chromedriver.
    pub fn pids(&self) -> [u32; 2] {
        [self.chromium.pid(), self.chromedriver.pid()]
    }

    /// Opens an address, and waits until the page and its resources are loaded.
    ///
    /// # Panics
    /// When no page can be loaded. A page with a status such as 404 counts as loaded.
    pub async fn open(&self, url: &str) {
        done(&format!("opening {url}"), self.session.post("/url", json!({"url": url})).await);
        // WebDriver does not report every network error.
        let shown = self.run("return document.URL").await;
        assert!(!text_of(&shown).starts_with("chrome-error:"), "opening {url}: Chromium shows an error");
    }

    /// Returns the address of the current page.
    pub async fn address(&self) -> String {
        text_of(&done("the address", self.session.get("/url").await))
    }

    /// Returns the document as HTML, including changes by scripts.
    pub async fn source(&self) -> String {
        text_of(&done("the source", self.session.get("/source").await))
    }

    /// Runs the body of a function in the page, regardless of its Content-Security-Policy and even if scripts are
    /// [disabled](Self::scripts). Returns the result; a promise is awaited.
    ///
    /// # Panics
    /// When the function throws.
    pub async fn run(&self, script: &str) -> Value {
        done(&format!("running {script}"), self.session.execute(script, json!([])).await)
    }

    /// Waits until the body of a function returns `true`. An exception counts as `false`.
    pub async fn wait_until(&self, description: &str, script: &str) {
        let check = async || {
            let result = self.session.execute(script, json!([])).await?;
            if result == true { Ok(()) } else { Err(format!("the script returned {result}")) }
        };
        self.until(description, check).await;
    }

    /// Repeats `check` until it is `Ok`, and returns its result. `Err` describes the current state.
    async fn until<T>(&self, what: &str, check: impl AsyncFnMut() -> Result<T, String>) -> T {
        match wait::attempt(WAIT_TIME_MAX, check).await {
            Ok(found) => found,
            Err(state) => {
                let page = self.described().await.unwrap_or_else(|fault| format!("no page: {fault}"));
                panic!("{what}: not within {WAIT_TIME_MAX:?}; seen last: {state}\n{page}")
            }
        }
    }

    /// Describes the page, for failure messages.
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
        // The child processes of Chromium write to the profile until they detect its end.
        let closed = || {
            let [chromedriver, chromium] =
                [&self.chromedriver, &self.chromium].map(Process::is_output_closed);
            if chromedriver && chromium { Ok(()) } else { Err(String::new()) }
        };
        drop(wait::block_until(END_TIME_MAX, closed));
    }
}

/// Returns the path for a screenshot, in a directory below Cargo's target directory.
pub fn screenshot_path(name: &str) -> PathBuf {
    workspace::target_directory().join("screenshots").join(format!("{name}.png"))
}

/// Starts chromedriver, and returns it with its port. Returns `None` if it ends at once because another process uses the same
/// port with the other IP version.
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
        // The sandbox does not work as root.
        launch = launch.arguments(["--no-sandbox"]);
    }
    // Keeps caches and crash reports out of the user's home directory.
    launch.environment.insert("HOME".to_owned(), profile.display().to_string());
    launch.hidden_prefixes = vec!["XDG_", "CHROMIUM_FLAGS"];
    launch.arguments(["about:blank"])
}

/// Returns the result of a command that does not fail in a correct test.
fn done<T>(what: &str, result: Result<T, Fault>) -> T {
    result.unwrap_or_else(|fault| panic!("{what}: {fault}"))
}

/// Returns a text from WebDriver or from a script.
fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("a text was expected, not {value}")).to_owned()
}
