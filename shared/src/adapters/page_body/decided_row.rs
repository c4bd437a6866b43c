//! Encodes decisions that move no money.

use serde::{Deserialize, Serialize};

use super::PageBodyError;
use crate::domain::account::{AccountStatus, Holder};
use crate::domain::ids::{MessageId, PartnerId};
use crate::domain::instruction::Fingerprint;
use crate::domain::journal::{Decided, Rejection};
use crate::domain::money::{Currency, OverdraftLimit};
use crate::domain::rejection::RejectReason;
use crate::domain::time::Timestamp;

/// A decision. Numbers are decimal texts, as in entries. The names are short, because whole batches may be rejected.
#[derive(Serialize, Deserialize)]
#[serde(tag = "k")]
pub(super) enum DecidedRow {
    /// A rejection.
    #[serde(rename = "r")]
    Rejected {
        /// Partner.
        p: String,
        /// Message id.
        m: String,
        /// Fingerprint of the instruction.
        f: String,
        /// Reason.
        r: String,
        /// Accepted at, milliseconds since 1970.
        t: String,
        /// Rejected at, milliseconds since 1970.
        u: String,
    },
    /// The opening of the account.
    #[serde(rename = "o")]
    Opened {
        /// Currency.
        c: String,
        /// Overdraft limit in minor units.
        l: String,
        /// Given name of the holder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        g: Option<String>,
        /// Family name of the holder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        n: Option<String>,
        /// Opened at, milliseconds since 1970.
        u: String,
    },
    /// A change of terms.
    #[serde(rename = "t")]
    TermsChanged {
        /// Status.
        s: String,
        /// Overdraft limit in minor units.
        l: String,
        /// Currency of the limit.
        c: String,
        /// Given name of the new holder, if the holder was changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        g: Option<String>,
        /// Family name of the new holder, if the holder was changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        n: Option<String>,
        /// Changed at, milliseconds since 1970.
        u: String,
    },
}

impl DecidedRow {
    pub(super) fn of(decided: &Decided) -> Self {
        match decided {
            Decided::Rejected(rejection) => Self::Rejected {
                p: rejection.partner.as_str().to_owned(),
                m: rejection.message.simple(),
                f: rejection.fingerprint.to_string(),
                r: rejection.reason.code().to_owned(),
                t: rejection.accepted_at.unix_ms().to_string(),
                u: rejection.rejected_at.unix_ms().to_string(),
            },
            Decided::Opened { currency, overdraft_limit, holder, opened_at } => Self::Opened {
                c: currency.code().to_owned(),
                l: overdraft_limit.minor_units().to_string(),
                g: holder.as_ref().map(|holder| holder.given_name.clone()),
                n: holder.as_ref().map(|holder| holder.family_name.clone()),
                u: opened_at.unix_ms().to_string(),
            },
            Decided::TermsChanged { status, overdraft_limit, holder, changed_at } => Self::TermsChanged {
                s: status.code().to_owned(),
                l: overdraft_limit.minor_units().to_string(),
                c: overdraft_limit.currency().code().to_owned(),
                g: holder.as_ref().map(|holder| holder.given_name.clone()),
                n: holder.as_ref().map(|holder| holder.family_name.clone()),
                u: changed_at.unix_ms().to_string(),
            },
        }
    }

    pub(super) fn read(self) -> Result<Decided, PageBodyError> {
        let field = PageBodyError::Field;
        Ok(match self {
            Self::Rejected { p, m, f, r, t, u } => Decided::Rejected(Rejection {
                partner: PartnerId::parse(&p).map_err(|_| field("partner"))?,
                message: m.parse::<MessageId>().map_err(|_| field("message id"))?,
                fingerprint: Fingerprint::parse(&f).ok_or(field("fingerprint"))?,
                accepted_at: time(&t, "time of acceptance")?,
                reason: RejectReason::from_code(&r).ok_or(field("reason"))?,
                rejected_at: time(&u, "time of rejection")?,
            }),
            Self::Opened { c, l, g, n, u } => {
                let (currency, overdraft_limit) = limit(&l, &c)?;
                let holder = holder(g, n)?;
                let opened_at = time(&u, "time of opening")?;
                Decided::Opened { currency, overdraft_limit, holder, opened_at }
            }
            Self::TermsChanged { s, l, c, g, n, u } => Decided::TermsChanged {
                status: AccountStatus::from_code(&s).ok_or(field("status"))?,
                overdraft_limit: limit(&l, &c)?.1,
                holder: holder(g, n)?,
                changed_at: time(&u, "time of the change")?,
            },
        })
    }
}

fn holder(given_name: Option<String>, family_name: Option<String>) -> Result<Option<Holder>, PageBodyError> {
    Holder::of_names(given_name, family_name).ok_or(PageBodyError::Field("holder"))
}

fn time(text: &str, name: &'static str) -> Result<Timestamp, PageBodyError> {
    text.parse().map(Timestamp::from_unix_ms).map_err(|_| PageBodyError::Field(name))
}

fn limit(minor_units: &str, currency: &str) -> Result<(Currency, OverdraftLimit), PageBodyError> {
    let currency = Currency::parse(currency).map_err(|_| PageBodyError::Field("currency"))?;
    let units = minor_units.parse().map_err(|_| PageBodyError::Field("overdraft limit"))?;
    let limit = OverdraftLimit::try_new(units, currency);
    Ok((currency, limit.map_err(|_| PageBodyError::Field("overdraft limit"))?))
}
