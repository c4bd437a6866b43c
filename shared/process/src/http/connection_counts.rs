//! Numbers of open connections of a server, without those that are being closed.

use std::collections::BTreeMap;
use std::net::IpAddr;

#[derive(Debug, Default)]
pub(super) struct Counts {
    total: usize,
    by_address: BTreeMap<IpAddr, usize>,
}

impl Counts {
    pub(super) const fn total(&self) -> usize {
        self.total
    }

    pub(super) fn of(&self, address: IpAddr) -> usize {
        self.by_address.get(&address).copied().unwrap_or_default()
    }

    pub(super) fn add(&mut self, address: IpAddr) {
        self.total = self.total.saturating_add(1);
        let count = self.by_address.entry(address).or_default();
        *count = count.saturating_add(1);
    }

    pub(super) fn remove(&mut self, address: IpAddr) {
        self.total = self.total.saturating_sub(1);
        if let Some(count) = self.by_address.get_mut(&address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
    }
}
