//! Emulation of devices and user preferences, and screenshots.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{Browser, done};

/// Minimum viewport width of a desktop device, in CSS pixels.
const DESKTOP_WIDTH_MIN: u32 = 500;

impl Browser {
    /// Sets the size of the viewport in CSS pixels, for this and later pages. Below a width of 500 pixels, emulates a mobile
    /// device, which obeys `<meta name="viewport">`.
    pub async fn viewport(&self, width: u32, height: u32) {
        let metrics = json!({
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": width < DESKTOP_WIDTH_MIN,
        });
        done("the viewport", self.session.cdp("Emulation.setDeviceMetricsOverride", metrics).await);
    }

    /// Sets whether the user prefers a dark colour scheme, for this and later pages.
    pub async fn color_scheme(&self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        done("the colour scheme", self.session.cdp("Emulation.setEmulatedMedia", features).await);
    }

    /// Disables the cache, as for the first visit of a browser.
    pub async fn without_cache(&self) {
        done("the network", self.session.cdp("Network.enable", json!({})).await);
        let disabled = json!({"cacheDisabled": true});
        done("the cache", self.session.cdp("Network.setCacheDisabled", disabled).await);
    }

    /// Enables or disables scripts of pages opened from now on. [`Self::run`] works in either case.
    pub async fn scripts(&self, enabled: bool) {
        let value = json!({"value": !enabled});
        done("the scripts", self.session.cdp("Emulation.setScriptExecutionDisabled", value).await);
    }

    /// Opens another tab in front of the page, which hides the page. Its scripts keep running.
    pub async fn hide(&self) {
        done("another tab", self.session.cdp("Target.createTarget", json!({"url": "about:blank"})).await);
    }

    /// Shows the page again after [`Self::hide`].
    pub async fn unhide(&self) {
        done("the tab of the page", self.session.cdp("Page.bringToFront", json!({})).await);
    }

    /// Writes a screenshot of the whole page, including the part outside of the viewport, to a PNG file.
    pub async fn screenshot(&self, path: &Path) {
        let metrics = done("the size", self.session.cdp("Page.getLayoutMetrics", json!({})).await);
        let size = &metrics["cssContentSize"];
        let clip = json!({"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1});
        let parameters = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let picture = done("the picture", self.session.cdp("Page.captureScreenshot", parameters).await);
        let picture = picture["data"].as_str().expect("a picture has data");
        let picture = STANDARD.decode(picture).expect("the data is in Base64");
        let directory = path.parent().expect("a file is in a directory");
        fs::create_dir_all(directory).expect("the directory of the picture can be created");
        fs::write(path, picture).expect("the picture can be written");
    }
}
