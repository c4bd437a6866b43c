//! Queries of the operations on batches.

use postonce_shared::domain::batch::{ITEMS_MAX, OnInvalid, Phase};
use postonce_shared::domain::ids::{PartnerId, PartnerIdError};
use postonce_shared::text::digits;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::api::arguments::QueryTexts;
use crate::query::Violations;

/// The query of a batch.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BatchSubmitParams {
    /// What becomes of items that break a rule: with `refuse` the whole batch is refused and nothing is posted; with
    /// `skip` the other items are posted, and these are reported in the results. A member whose name looks like a known one
    /// always refuses a new batch.
    #[serde(rename = "on-invalid")]
    #[param(default = "refuse", pattern = "^(refuse|skip)$")]
    pub on_invalid: Option<String>,
}

impl QueryTexts for BatchSubmitParams {
    type Value = OnInvalid;

    fn parse(self, violations: &mut Violations) -> Option<OnInvalid> {
        let rule = "must be refuse or skip";
        let on_invalid = violations.parse("on-invalid", self.on_invalid, rule, OnInvalid::from_code);
        Some(on_invalid.unwrap_or(OnInvalid::Refuse))
    }
}

/// Filter of batches.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BatchListParams {
    /// The phase.
    #[param(pattern = "^(received|splitting|posting|completed|cancelled)$")]
    pub phase: Option<String>,
}

impl QueryTexts for BatchListParams {
    type Value = Option<&'static str>;

    fn parse(self, violations: &mut Violations) -> Option<Option<&'static str>> {
        let rule = "must be received, splitting, posting, completed or cancelled";
        let known = |code: &str| Phase::CODES.into_iter().find(|known| *known == code);
        Some(violations.parse("phase", self.phase, rule, known))
    }
}

/// The partner whose batches are listed.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BatchPartnerParam {
    /// The partner. Without it, the open batches of all partners are listed.
    #[param(pattern = "^[a-z][a-z0-9_]{0,31}$", example = "shop")]
    pub partner_id: Option<String>,
}

impl QueryTexts for BatchPartnerParam {
    type Value = Option<PartnerId>;

    fn parse(self, violations: &mut Violations) -> Option<Option<PartnerId>> {
        let rule = PartnerIdError.to_string();
        Some(violations.parse("partner_id", self.partner_id, &rule, |text| PartnerId::parse(text).ok()))
    }
}

/// The query of results.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ResultParams {
    /// The last line that you received; the results continue with the next one.
    #[param(value_type = Option<u32>, minimum = 0, maximum = 1000000)]
    pub after: Option<String>,
}

impl QueryTexts for ResultParams {
    type Value = u32;

    fn parse(self, violations: &mut Violations) -> Option<u32> {
        let rule = format!("must be the number of a line, at most {ITEMS_MAX}");
        let after = violations
            .parse("after", self.after, &rule, |text| digits(text).filter(|line| *line <= ITEMS_MAX));
        Some(after.unwrap_or(0))
    }
}
