//! The web processes, which accept requests: insert, compare, send, and then acknowledge.
//!
//! The following is left out because it makes no difference: a request that shares the insert or the send
//! of another request (it gets the same answer), retries within a request (repeated requests of clients
//! cover them), and the nonce of an insert (an own row and an equal row of another process lead to the same
//! step).

use super::rules::{Mutation, Rules};
use super::state::{Items, KEYS, Late, Owner, REQUESTS, Request, Slot, State, Status};
use crate::model::request_outcome::RequestOutcome;

/// The transaction and the content of a client's request.
pub const fn requested(request: usize) -> (usize, u8) {
    const { assert!(REQUESTS == KEYS + 1, "the last request has the first id and other content") };
    if request < KEYS { (request, 0) } else { (0, 1) }
}

impl State {
    /// A client sends a request, for the first time or again.
    pub(super) fn submit(&mut self, web: usize, request: usize, waits: bool) {
        let (key, content) = requested(request);
        let submits = &mut self.budget.submits[request];
        *submits = submits.saturating_sub(1);
        self.budget.waits = self.budget.waits.saturating_sub(u8::from(waits));
        let process = &mut self.webs[web];
        let is_later = (0..KEYS).any(|other| other != key && process.confirmed[other]);
        process.slots[key] =
            if waits { Slot::Waiting(Request { content, is_later }) } else { Slot::Inserting(content) };
    }

    /// The insert of a request. Without an answer the client receives 503.
    pub(super) fn web_insert(&mut self, web: usize, key: usize, outcome: RequestOutcome, rules: &Rules) {
        let Slot::Inserting(content) = self.webs[web].slots[key] else { return };
        self.webs[web].slots[key] = Slot::Idle;
        let shares_nonce = rules.breaks(Mutation::FallbackSharesNonce)
            && self.webs[web].attempt.is_some_and(|attempt| attempt.key == key);
        let nonce = shares_nonce.then_some(Owner::Web(web));
        match outcome {
            RequestOutcome::Answered => {
                let fresh = self.insert(key, content, nonce, rules);
                self.webs[web].slots[key] = self.inserted(web, key, content, fresh, rules);
            }
            RequestOutcome::AnswerLost => drop(self.insert(key, content, nonce, rules)),
            RequestOutcome::RequestLost => {}
            RequestOutcome::Late => self.delay(Late::Insert { key, content }),
        }
    }

    /// The next state of a request after the answer of the log.
    fn inserted(&mut self, web: usize, key: usize, content: u8, fresh: bool, rules: &Rules) -> Slot {
        let Some(row) = self.rows[key] else { return Slot::Idle };
        if row.content != content && !rules.breaks(Mutation::SkipFingerprint) {
            return Slot::Idle;
        }
        if fresh && rules.sends_with_insert {
            self.webs[web].confirmed[key] = true;
        }
        let acknowledged = self.webs[web].confirmed[key]
            || row.status != Status::Accepted
            || (!fresh && rules.breaks(Mutation::AcknowledgeOldRows));
        if acknowledged || (fresh && rules.breaks(Mutation::AcknowledgeBeforeSend)) {
            self.acknowledge(key, content);
        }
        if acknowledged { Slot::Idle } else { Slot::Sending { content, revision: row.revision } }
    }

    /// The send of the work of some requests of a process, in one message. Without an answer the clients
    /// receive 503.
    pub(super) fn web_send(&mut self, web: usize, keys: [bool; KEYS], outcome: RequestOutcome) {
        let mut items: Items = [None; KEYS];
        for key in (0..KEYS).filter(|key| keys[*key]) {
            let Slot::Sending { content, revision } = self.webs[web].slots[key] else { continue };
            items[key] = Some(revision);
            self.webs[web].slots[key] = Slot::Idle;
            if outcome == RequestOutcome::Answered {
                self.webs[web].confirmed[key] = true;
                self.acknowledge(key, content);
            }
        }
        match outcome {
            RequestOutcome::Answered | RequestOutcome::AnswerLost => self.send(items),
            RequestOutcome::RequestLost => {}
            RequestOutcome::Late => self.delay(Late::Send(items)),
        }
    }

    /// Answers 202, or 200 with the final status.
    pub(super) fn acknowledge(&mut self, key: usize, content: u8) {
        self.acknowledged[key] = true;
        self.violations.other_content |= self.rows[key].is_none_or(|row| row.content != content);
    }

    /// Repair marks a row and sends its work again; the send may arrive late, or never.
    pub(super) fn repair(&mut self, key: usize, outcome: RequestOutcome) {
        let Some(row) = &mut self.rows[key] else { return };
        row.revision = row.revision.saturating_add(1);
        let mut items: Items = [None; KEYS];
        items[key] = Some(row.revision);
        self.budget.repairs = self.budget.repairs.saturating_sub(1);
        match outcome {
            RequestOutcome::Answered | RequestOutcome::AnswerLost => self.send(items),
            RequestOutcome::RequestLost => {}
            RequestOutcome::Late => self.delay(Late::Send(items)),
        }
    }
}
