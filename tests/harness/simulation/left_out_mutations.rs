//! The mutations that leave decisions out of the journal.

use postonce_shared::testing::prelude::*;

use super::mutations::Mutation;
use super::ports::StoreConnection;

/// Removes the page of a decision, which has no entries, if the run makes that mistake.
pub fn leave_out(
    connection: &StoreConnection,
    mutation: Mutation,
    after: &mut Account,
    page: &mut Option<JournalPage>,
) {
    if connection.makes(mutation)
        && let Some(page) = page.take_if(|page| page.entries.is_empty())
    {
        after.head = page.previous_hash;
    }
}
