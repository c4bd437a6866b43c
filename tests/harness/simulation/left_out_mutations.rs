//! The mutations that omit decisions from the journal.

use postonce_shared::testing::prelude::*;

use super::mutations::Mutation;
use super::ports::StoreConnection;

/// Removes a rejection from a page that has another decision, if the run makes this mistake.
pub fn leave_out_rejection(connection: &StoreConnection, after: &mut Account, page: &mut JournalPage) {
    if connection.makes(Mutation::RejectionLeftOut) && page.count() > 1 && page.decided.pop().is_some() {
        seal_again(after, page);
    }
}

/// Changes the terms in a page, if the run makes this mistake.
pub fn leave_out_terms(connection: &StoreConnection, after: &mut Account, page: &mut JournalPage) {
    if connection.makes(Mutation::TermsLeftOut) {
        for decided in &mut page.decided {
            if let Decided::TermsChanged { status, .. } = decided {
                *status = AccountStatus::Frozen;
            }
        }
        seal_again(after, page);
    }
}

fn seal_again(after: &mut Account, page: &mut JournalPage) {
    let place = (page.previous_hash, page.nonce);
    *page = JournalPage::seal(after, page.entries.clone(), page.decided.clone(), place);
    after.head = page.hash;
}
