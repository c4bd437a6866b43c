//! States that differ only in the names of processes count as one: web processes are interchangeable, and so are
//! workers.

use std::cmp::Ordering;

use stateright::Representative;

use super::state::{Late, Lease, Owner, State};

impl Lease {
    const fn renamed(self) -> Self {
        match self {
            Self::Held(worker) => Self::Held(other(worker)),
            Self::Expired(worker) => Self::Expired(other(worker)),
            Self::Free | Self::LateDelete => self,
        }
    }
}

impl State {
    fn with_workers_swapped(mut self) -> Self {
        self.workers.swap(0, 1);
        for message in &mut self.queue {
            message.lease = message.lease.renamed();
        }
        self.queue.sort_unstable();
        self.with_owners(|owner| match owner {
            Owner::Worker(worker) => Some(Owner::Worker(other(worker))),
            Owner::Web(_) => Some(owner),
        })
    }

    fn with_webs_swapped(mut self) -> Self {
        self.webs.swap(0, 1);
        self.with_owners(|owner| match owner {
            Owner::Worker(_) => Some(owner),
            Owner::Web(web) => Some(Owner::Web(other(web))),
        })
    }

    fn with_owners(mut self, change: impl Fn(Owner) -> Option<Owner>) -> Self {
        self.change_owners(change);
        self
    }

    /// Changes the process that knows the nonce of a commit, or forgets the nonce.
    pub(super) fn change_owners(&mut self, change: impl Fn(Owner) -> Option<Owner>) {
        for row in self.rows.iter_mut().flatten() {
            row.decided_by = row.decided_by.and_then(&change);
        }
        for late in &mut self.late {
            if let Late::Commit(_, owner) = late {
                *owner = owner.and_then(&change);
            }
        }
        self.late.sort_unstable();
    }
}

/// The state or the renamed one, whichever is smaller; `order` is that of the two processes.
fn smaller(state: State, order: Ordering, renamed: impl Fn(State) -> State) -> State {
    match order {
        Ordering::Less => state,
        Ordering::Greater => renamed(state),
        // Both processes are equal, but references to them may differ.
        Ordering::Equal => renamed(state.clone()).min(state),
    }
}

const fn other(worker: usize) -> usize {
    1_usize.saturating_sub(worker)
}

impl Representative for State {
    fn representative(&self) -> Self {
        let [one, two] = &self.webs;
        let state = smaller(self.clone(), one.cmp(two), Self::with_webs_swapped);
        let [one, two] = &self.workers;
        smaller(state, one.cmp(two), Self::with_workers_swapped)
    }
}
