//! The device and the preferences that a page sees, and pictures of the page.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::{Browser, done};

/// Below this width a device is a mobile one.
const DESKTOP_WIDTH_MIN: u32 = 500;

impl Browser {
    /// Sets the size of the viewport in CSS pixels, for this page and the next ones. Below 500 pixels of width it is that of a
    /// mobile device, which obeys `<meta name="viewport">`.
    pub async fn viewport(&self, width: u32, height: u32) {
        let metrics = json!({
            "width": width,
            "height": height,
            "deviceScaleFactor": 1,
            "mobile": width < DESKTOP_WIDTH_MIN,
        });
        done("the viewport", self.session.cdp("Emulation.setDeviceMetricsOverride", metrics).await);
    }

    /// Sets whether the user prefers a dark colour scheme, for this page and the next ones.
    pub async fn color_scheme(&self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        done("the colour scheme", self.session.cdp("Emulation.setEmulatedMedia", features).await);
    }

    /// Loads everything again for each page, as a browser does that was never here.
    pub async fn without_cache(&self) {
        done("the network", self.session.cdp("Network.enable", json!({})).await);
        let disabled = json!({"cacheDisabled": true});
        done("the cache", self.session.cdp("Network.setCacheDisabled", disabled).await);
    }

    /// Enables or disables the scripts of the pages that are opened from now on. [`Self::run`] works in either case.
    pub async fn scripts(&self, enabled: bool) {
        let value = json!({"value": !enabled});
        done("the scripts", self.session.cdp("Emulation.setScriptExecutionDisabled", value).await);
    }

    /// Opens another tab in front of the page, which is hidden then. Its scripts keep running.
    pub async fn hide(&self) {
        done("another tab", self.session.cdp("Target.createTarget", json!({"url": "about:blank"})).await);
    }

    /// Shows the page again after [`Self::hide`].
    pub async fn unhide(&self) {
        done("the tab of the page", self.session.cdp("Page.bringToFront", json!({})).await);
    }

    /// Writes a picture of the whole page, also of what is outside of the viewport, as a PNG file.
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
