//! An operator with a browser.

use postonce_tests::browser::Browser;
use postonce_tests::scenario::Scenario;

/// Chromium, signed in to the console of a web process.
pub struct Visit {
    /// The browser.
    pub browser: Browser,
    address: String,
}

impl Visit {
    /// Starts a browser, and signs in with a key on the page for that.
    pub async fn sign_in(bank: &Scenario, web: usize, key: &str) -> Self {
        let visit = Self { browser: Browser::start().await, address: bank.webs[web].address().to_owned() };
        visit.browser.viewport(1280, 900).await;
        visit.open("/console").await;
        visit.enter(key).await;
        visit.browser.wait_for("form[action='/console/sign-out']").await;
        visit
    }

    /// Enters a key on the page for signing in.
    pub async fn enter(&self, key: &str) {
        self.browser.fill("#field-key", key).await;
        self.browser.click("form[action='/console/sign-in'] button").await;
    }

    /// Opens a page.
    pub async fn open(&self, path: &str) {
        self.browser.open(&format!("{}{path}", self.address)).await;
    }

    /// The path of the page with its query.
    pub async fn path(&self) -> String {
        self.browser.address().await.replace(&self.address, "")
    }

    /// Waits until the page shows that its values are current.
    pub async fn until_live(&self) {
        self.browser.wait_for("[data-live-status][data-state='live']").await;
    }

    /// Marks the page. The mark stays until the page is loaded again.
    pub async fn mark(&self) {
        let _nothing = self.browser.run("window.isMarked = true").await;
    }

    /// Whether the page has its mark, so that it was not loaded again.
    pub async fn is_marked(&self) -> bool {
        self.browser.run("return window.isMarked === true").await == true
    }

    /// The names of the sections in the navigation.
    pub async fn sections(&self) -> Vec<String> {
        self.browser.texts(".nav-list li a").await
    }
}
