//! The web processes: `accept` of the bank. Insert, compare, send, and only then promise.
//!
//! Left out because they change nothing here: a request that joins another one's insert or send (it
//! gets that one's answer), retries inside a request (a client that asks again does more), and the
//! nonce of an insert (one's own row and another one's with the same content lead to the same step).

use super::rules::{Mutation, Rules};
use super::state::{Items, KEYS, Late, REQUESTS, Slot, State, Status};
use crate::model::fate::Fate;

/// Which transaction a client asks for, and with which content.
pub const fn asked_for(request: usize) -> (usize, u8) {
    const { assert!(REQUESTS == KEYS + 1, "the last one is the first id with other content") };
    if request < KEYS { (request, 0) } else { (0, 1) }
}

impl State {
    /// A client asks, for the first time or again.
    pub(super) fn submit(&mut self, web: usize, request: usize) {
        let (key, content) = asked_for(request);
        let submits = &mut self.budget.submits[request];
        *submits = submits.saturating_sub(1);
        self.webs[web].slots[key] = Slot::Inserting(content);
    }

    /// The insert of a request. Without an answer the client gets a 503.
    pub(super) fn web_insert(&mut self, web: usize, key: usize, fate: Fate, rules: &Rules) {
        let Slot::Inserting(content) = self.webs[web].slots[key] else { return };
        self.webs[web].slots[key] = Slot::Idle;
        match fate {
            Fate::Answered => {
                let fresh = self.insert(key, content, rules);
                self.webs[web].slots[key] = self.inserted(web, key, content, fresh, rules);
            }
            Fate::AnswerLost => drop(self.insert(key, content, rules)),
            Fate::NeverArrives => {}
            Fate::Late => self.delay(Late::Insert { key, content }),
        }
    }

    /// What a request does when the log has answered.
    fn inserted(&mut self, web: usize, key: usize, content: u8, fresh: bool, rules: &Rules) -> Slot {
        let Some(row) = self.rows[key] else { return Slot::Idle };
        if row.content != content && !rules.breaks(Mutation::SkipFingerprint) {
            return Slot::Idle;
        }
        if fresh && rules.sends_with_insert {
            self.webs[web].confirmed[key] = true;
        }
        let promised = self.webs[web].confirmed[key]
            || row.status != Status::Accepted
            || (!fresh && rules.breaks(Mutation::PromiseOldRows));
        if promised || (fresh && rules.breaks(Mutation::PromiseBeforeSend)) {
            self.acknowledge(key, content);
        }
        if promised { Slot::Idle } else { Slot::Sending { content, revision: row.revision } }
    }

    /// The send of the work of some requests of a process, in one message. Without an answer the
    /// clients get a 503.
    pub(super) fn web_send(&mut self, web: usize, keys: [bool; KEYS], fate: Fate) {
        let mut items: Items = [None; KEYS];
        for key in (0..KEYS).filter(|key| keys[*key]) {
            let Slot::Sending { content, revision } = self.webs[web].slots[key] else { continue };
            items[key] = Some(revision);
            self.webs[web].slots[key] = Slot::Idle;
            if fate == Fate::Answered {
                self.webs[web].confirmed[key] = true;
                self.acknowledge(key, content);
            }
        }
        match fate {
            Fate::Answered | Fate::AnswerLost => self.send(items),
            Fate::NeverArrives => {}
            Fate::Late => self.delay(Late::Send(items)),
        }
    }

    /// 202, or 200 with the final status.
    fn acknowledge(&mut self, key: usize, content: u8) {
        self.acknowledged[key] = true;
        self.flaws.other_content |= self.rows[key].is_none_or(|row| row.content != content);
    }

    /// Repair marks a row and sends its work again; the send may come late, or never.
    pub(super) fn repair(&mut self, key: usize, fate: Fate) {
        let Some(row) = &mut self.rows[key] else { return };
        row.revision = row.revision.saturating_add(1);
        let mut items: Items = [None; KEYS];
        items[key] = Some(row.revision);
        self.budget.repairs = self.budget.repairs.saturating_sub(1);
        match fate {
            Fate::Answered | Fate::AnswerLost => self.send(items),
            Fate::NeverArrives => {}
            Fate::Late => self.delay(Late::Send(items)),
        }
    }
}
