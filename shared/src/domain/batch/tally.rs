//! Counts and sums of the items of a batch.

use std::collections::BTreeMap;

use crate::domain::instruction::TransactionKind;
use crate::domain::money::{Amount, Currency};

/// Numbers of storage operations, by the code of their price category.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OperationCounts(BTreeMap<String, u64>);

impl OperationCounts {
    /// Adds `count` operations of a category.
    pub fn add(&mut self, category: &str, count: u64) {
        let sum = self.0.entry(category.to_owned()).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Adds all operations of another count.
    pub fn merge(&mut self, others: &Self) {
        others.iter().for_each(|(category, count)| self.add(category, count));
    }

    /// Returns the number of operations per category.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(category, count)| (category.as_str(), *count))
    }
}

/// The status of an item in the results of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemStatus {
    /// This batch posted it.
    Posted,
    /// This batch recorded its rejection.
    Rejected,
    /// A transaction with the same key and content existed before.
    Replayed,
    /// A transaction with the same key and another content existed before.
    Refused,
}

impl ItemStatus {
    /// Every status.
    pub const ALL: [Self; 4] = [Self::Posted, Self::Rejected, Self::Replayed, Self::Refused];

    /// Returns the stable code.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Posted => "posted",
            Self::Rejected => "rejected",
            Self::Replayed => "replayed",
            Self::Refused => "refused",
        }
    }

    /// Returns the status with this code.
    pub fn from_code(code: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.code() == code)
    }
}

/// A currency and a direction of money, by their codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flow {
    /// The code of the currency.
    pub currency: &'static str,
    /// The code of the kind of transaction.
    pub kind: &'static str,
}

impl Flow {
    /// Returns the flow of this currency and kind.
    pub fn of(currency: Currency, kind: TransactionKind) -> Self {
        Self { currency: currency.code(), kind: kind.code() }
    }
}

/// A number of items, and the sums of their amounts in minor units.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// The number of items.
    pub count: u64,
    /// The sums by currency and direction.
    pub sums: BTreeMap<Flow, u128>,
}

impl Tally {
    /// Adds an item.
    pub fn add(&mut self, kind: TransactionKind, amount: Amount) {
        self.count = self.count.checked_add(1).expect("a batch has few items");
        let minor_units = u128::from(amount.minor_units().unsigned_abs());
        self.put(Flow::of(amount.currency(), kind), minor_units);
    }

    /// Adds all items of another tally.
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.checked_add(other.count).expect("a batch has few items");
        for (flow, sum) in &other.sums {
            self.put(*flow, *sum);
        }
    }

    /// Adds a sum without counting an item.
    pub fn put(&mut self, flow: Flow, minor_units: u128) {
        let sum = self.sums.entry(flow).or_default();
        *sum = sum.checked_add(minor_units).expect("18 digits for each item are far below 39");
    }

    /// Returns the sum of a currency over both directions, as in the control sum of ISO 20022.
    pub fn sum_of(&self, currency: Currency) -> u128 {
        let of_currency = self.sums.iter().filter(|(flow, _)| flow.currency == currency.code());
        of_currency.fold(0, |all, (_, sum)| all.saturating_add(*sum))
    }
}

/// Tallies of the items by their status.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals(BTreeMap<ItemStatus, Tally>);

impl Totals {
    /// Adds an item with its status.
    pub fn record(&mut self, status: ItemStatus, kind: TransactionKind, amount: Amount) {
        self.0.entry(status).or_default().add(kind, amount);
    }

    /// Adds all items of other totals.
    pub fn add(&mut self, other: &Self) {
        for (status, tally) in &other.0 {
            self.0.entry(*status).or_default().merge(tally);
        }
    }

    /// Returns the tally of a status.
    pub fn of(&self, status: ItemStatus) -> Tally {
        self.0.get(&status).cloned().unwrap_or_default()
    }

    /// Returns the tallies by status, without statuses that were never added.
    pub fn iter(&self) -> impl Iterator<Item = (ItemStatus, &Tally)> {
        self.0.iter().map(|(status, tally)| (*status, tally))
    }

    /// Sets the tally of a status, as read from the store.
    pub fn set(&mut self, status: ItemStatus, tally: Tally) {
        self.0.insert(status, tally);
    }

    /// Returns the tally of all items.
    pub fn sum(&self) -> Tally {
        let mut all = Tally::default();
        self.0.values().for_each(|tally| all.merge(tally));
        all
    }
}
