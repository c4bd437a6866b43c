//! User actions on elements of a page, and their visible state.

use serde_json::{Value, json};

use super::webdriver::{Element, Fault};
use super::{Browser, done, keys, text_of};

/// Start of scripts whose first argument is a CSS selector. Defines the matching elements, and those of them that are shown.
const MATCHING: &str = "
    const matching = [...document.querySelectorAll(arguments[0])];
    const shown = matching.filter(element => element.checkVisibility({visibilityProperty: true}));
";

/// Sets the value of a field whose browser control has parts in the order of the user's locale.
const SET_VALUE: &str = "
    const [field, value] = arguments;
    if (!/^(color|date|datetime-local|month|range|time|week)$/.test(field.type)) return false;
    field.focus();
    field.value = value;
    for (const type of ['input', 'change']) field.dispatchEvent(new Event(type, {bubbles: true}));
    return true;
";

impl Browser {
    /// Waits until a matching element is shown.
    pub async fn wait_for(&self, css: &str) {
        let check = async || {
            let found = self.matching(css, "return shown.length > 0").await?;
            if found == true { Ok(()) } else { Err("none is shown".to_owned()) }
        };
        self.until(&format!("an element {css}"), check).await;
    }

    /// Waits until no matching element is shown.
    pub async fn wait_gone(&self, css: &str) {
        let check = async || {
            let found = self.matching(css, "return shown.length > 0").await?;
            if found == false { Ok(()) } else { Err("one is shown".to_owned()) }
        };
        self.until(&format!("no element {css}"), check).await;
    }

    /// Waits until an element is shown whose visible text contains `needle`.
    pub async fn wait_text(&self, css: &str, needle: &str) {
        let check = async || {
            let texts = self.matching(css, "return shown.map(element => element.innerText)").await?;
            let texts = texts_of(&texts);
            if texts.iter().any(|text| text.contains(needle)) { Ok(()) } else { Err(format!("{texts:?}")) }
        };
        self.until(&format!("an element {css} with the text {needle:?}"), check).await;
    }

    /// Waits for an element, and returns its rendered text, trimmed. For an element that is not shown, returns its text in the
    /// document.
    pub async fn text(&self, css: &str) -> String {
        let script = "return matching[0].innerText ?? matching[0].textContent";
        text_of(&self.when_present(css, script).await).trim().to_owned()
    }

    /// Returns the texts of all elements that match now, in the form of [`Self::text`].
    pub async fn texts(&self, css: &str) -> Vec<String> {
        let script = "return matching.map(element => element.innerText ?? element.textContent)";
        let texts = done(&format!("the texts of {css}"), self.matching(css, script).await);
        texts_of(&texts).into_iter().map(|text| text.trim().to_owned()).collect()
    }

    /// Returns the number of elements that match now, shown or not.
    pub async fn count(&self, css: &str) -> usize {
        let count = done(&format!("the number of {css}"), self.matching(css, "return matching.length").await);
        count.as_u64().and_then(|count| count.try_into().ok()).expect("a length is a small number")
    }

    /// Waits for an element, and returns the value of its attribute.
    pub async fn attribute(&self, css: &str, name: &str) -> Option<String> {
        let name = Value::from(name);
        let value = self.when_present(css, &format!("return matching[0].getAttribute({name})")).await;
        value.as_str().map(str::to_owned)
    }

    /// Clicks on an element as soon as it is shown, enabled, and not covered. Waits for the page that a link or a form leads to.
    pub async fn click(&self, css: &str) {
        self.act(&format!("a click on {css}"), css, async |element| {
            self.session.element(&element, "click", json!({})).await
        })
        .await;
    }

    /// Replaces the text of a field by typing. For a date, a time, a colour or a range, sets the value in the notation of HTML,
    /// such as `2026-01-31`.
    pub async fn fill(&self, css: &str, text: &str) {
        self.act(&format!("typing into {css}"), css, async |element| {
            let arguments = json!([element.argument(), text]);
            if self.session.execute(SET_VALUE, arguments).await? == true {
                return Ok(Value::Null);
            }
            self.session.element(&element, "clear", json!({})).await?;
            if text.is_empty() {
                return Ok(Value::Null);
            }
            self.session.element(&element, "value", json!({"text": text})).await
        })
        .await;
    }

    /// Selects the option with this value in a `<select>`.
    pub async fn select(&self, css: &str, value: &str) {
        self.act(&format!("choosing {value:?} in {css}"), css, async |element| {
            let script = "const [list, value] = arguments;
                const option = [...list.options].find(option => option.value === value);
                if (!option) throw new Error('no such option');
                return option;";
            let option = self.session.execute(script, json!([element.argument(), value])).await?;
            let option = Element::of(&option).expect("an option is an element");
            self.session.element(&option, "click", json!({})).await
        })
        .await;
    }

    /// Moves the focus to an element, and presses a key as [`Self::press_focused`] does.
    pub async fn press(&self, css: &str, key: &str) {
        self.act(&format!("the focus on {css}"), css, async |element| {
            let script = "arguments[0].focus();
                if (document.activeElement !== arguments[0]) throw new Error('it takes no focus');";
            self.session.execute(script, json!([element.argument()])).await
        })
        .await;
        self.press_focused(key).await;
    }

    /// Presses a key at the focused element. The key is named as in `KeyboardEvent.key`, such as `Tab`, `Enter` or `a` (`Space`
    /// for a space), and can follow keys that are held, as in `Shift+Tab`.
    pub async fn press_focused(&self, key: &str) {
        done(&format!("pressing {key}"), self.session.post("/actions", keys::actions(key)).await);
    }

    /// Performs an action on an element as soon as it is shown and enabled. Repeats the search and the action until both succeed,
    /// because the page may replace the element in between.
    async fn act(&self, what: &str, css: &str, action: impl AsyncFn(Element) -> Result<Value, Fault>) {
        let check = async || {
            let found = "return shown.find(element => !element.matches(':disabled')) ?? null";
            let found = self.matching(css, found).await?;
            let element = Element::of(&found).ok_or("none is shown and enabled")?;
            action(element).await?;
            Ok(())
        };
        self.until(what, check).await;
    }

    /// Waits until an element matches, and returns the result of the script.
    async fn when_present(&self, css: &str, script: &str) -> Value {
        let script = format!("return matching.length ? [(() => {{ {script} }})()] : null");
        let check = async || {
            let result = self.matching(css, &script).await?;
            result.get(0).cloned().ok_or_else(|| "none exists".to_owned())
        };
        self.until(&format!("an element {css}"), check).await
    }

    /// Runs a script with the elements that match now.
    async fn matching(&self, css: &str, script: &str) -> Result<Value, Fault> {
        self.session.execute(&format!("{MATCHING}{script}"), json!([css])).await
    }
}

fn texts_of(value: &Value) -> Vec<String> {
    let texts = value.as_array().expect("the script returns a list");
    texts.iter().map(text_of).collect()
}
