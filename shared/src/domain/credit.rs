//! The credit that a partner may grant: the highest overdraft limit of an account in each currency.

use std::collections::BTreeMap;

use super::money::OverdraftLimit;

/// The highest overdraft limits that a partner may give an account.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum CreditCeilings {
    /// Any limit.
    #[default]
    Unlimited,
    /// Limits up to the ceiling in the account's currency, by currency code. A currency without a ceiling allows no overdraft.
    UpTo(BTreeMap<&'static str, OverdraftLimit>),
}

impl CreditCeilings {
    /// Builds the ceilings from a list. If a currency occurs twice, its last ceiling counts.
    pub fn up_to(ceilings: impl IntoIterator<Item = OverdraftLimit>) -> Self {
        Self::UpTo(ceilings.into_iter().map(|ceiling| (ceiling.currency().code(), ceiling)).collect())
    }

    /// Checks whether an account may get this limit.
    ///
    /// # Errors
    /// Returns the ceiling in the currency of the limit, if the limit is above it.
    pub fn check(&self, limit: OverdraftLimit) -> Result<(), OverdraftLimit> {
        let Self::UpTo(ceilings) = self else { return Ok(()) };
        let currency = limit.currency();
        let ceiling =
            ceilings.get(currency.code()).copied().unwrap_or_else(|| OverdraftLimit::none(currency));
        if limit.minor_units() <= ceiling.minor_units() { Ok(()) } else { Err(ceiling) }
    }

    /// Returns whether `other` allows every limit that these ceilings allow.
    pub fn is_within(&self, other: &Self) -> bool {
        match (self, other) {
            (_, Self::Unlimited) => true,
            (Self::Unlimited, Self::UpTo(_)) => false,
            (Self::UpTo(own), Self::UpTo(_)) => own.values().all(|ceiling| other.check(*ceiling).is_ok()),
        }
    }

    /// Returns the ceilings by currency code, each converted by `form`; `None` if they are unlimited.
    pub fn listed<T>(&self, form: impl Fn(OverdraftLimit) -> T) -> Option<BTreeMap<String, T>> {
        let Self::UpTo(ceilings) = self else { return None };
        Some(ceilings.iter().map(|(code, ceiling)| ((*code).to_owned(), form(*ceiling))).collect())
    }

    /// Returns the ceilings that allow exactly the limits that both allow.
    #[must_use]
    pub fn lower_of(&self, other: &Self) -> Self {
        let (Self::UpTo(own), Self::UpTo(others)) = (self, other) else {
            return if *self == Self::Unlimited { other.clone() } else { self.clone() };
        };
        let both = own.iter().filter_map(|(code, ceiling)| {
            let other = others.get(code)?;
            Some(if ceiling.minor_units() <= other.minor_units() { *ceiling } else { *other })
        });
        Self::up_to(both)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::money::Currency;

    fn limit(text: &str, currency: &str) -> OverdraftLimit {
        OverdraftLimit::parse(text, Currency::parse(currency).unwrap()).unwrap()
    }

    #[test]
    fn a_limit_is_allowed_up_to_the_ceiling_of_its_currency() {
        let ceilings = CreditCeilings::up_to([limit("100.00", "EUR"), limit("5000", "JPY")]);
        let check = |text, currency, expected| {
            assert_eq!(ceilings.check(limit(text, currency)).is_ok(), expected, "{text} {currency}");
        };
        check("100.00", "EUR", true);
        check("100.01", "EUR", false);
        check("5000", "JPY", true);
        check("5001", "JPY", false);
        check("0.00", "USD", true);
        check("0.01", "USD", false);
        assert!(CreditCeilings::Unlimited.check(limit("9999999999999999.99", "EUR")).is_ok());
    }

    #[test]
    fn two_ceilings_allow_together_what_each_of_them_allows() {
        let all = [
            CreditCeilings::Unlimited,
            CreditCeilings::up_to([]),
            CreditCeilings::up_to([limit("100.00", "EUR"), limit("7.00", "USD")]),
            CreditCeilings::up_to([limit("50.00", "EUR"), limit("5000", "JPY")]),
        ];
        let limits = [("50.00", "EUR"), ("50.01", "EUR"), ("7.00", "USD"), ("5000", "JPY"), ("0.00", "GBP")];
        for one in &all {
            for other in &all {
                for (text, currency) in limits {
                    let limit = limit(text, currency);
                    let expected = one.check(limit).is_ok() && other.check(limit).is_ok();
                    let both = one.lower_of(other).check(limit);
                    assert_eq!(both.is_ok(), expected, "{one:?} {other:?} {limit}");
                }
                assert!(one.lower_of(other).is_within(one) && one.lower_of(other).is_within(other));
                assert_eq!(one.is_within(other), one.lower_of(other) == *one, "{one:?} {other:?}");
            }
        }
    }
}
