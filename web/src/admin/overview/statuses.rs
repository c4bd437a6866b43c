//! Status of all processes, requested at most once in 0.9 s for all callers, without storage operations.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use postonce_process::activity::HISTORY_S;
use postonce_process::http::{PeerState, Status, StatusQuery};
use postonce_shared::adapters::http::{BroadcastRequest, CallFault, PeerBroadcast, STATUS_PATH};
use postonce_shared::domain::time::Timestamp;
use postonce_shared::ports::fault::chain;
use postonce_shared::ports::process_registry::RegisteredProcess;
use postonce_shared::ports::world::World;
use tracing::debug;

use super::flight::{Flight, start};

/// Time limit for the answer of a process.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);
/// Minimum time between the starts of two rounds of requests.
const INTERVAL: Duration = Duration::from_millis(900);
/// Length of the activity that a short round requests, in seconds. It suffices for most callers.
const SHORT_S: u16 = 330;
/// Time during which rounds request the whole history, after a caller needed more than a short round contains.
const LONG_FOR: Duration = Duration::from_secs(10);

/// Answers of one round of requests.
#[derive(Debug)]
pub struct Statuses {
    /// Time before the requests were sent.
    pub at: Timestamp,
    /// Status of this process.
    pub own: Status,
    /// The other processes with their status; `None` if a process did not answer.
    pub others: Vec<(RegisteredProcess, Option<Status>)>,
}

/// Requests the status of all processes. Callers share a round, which continues even if the first of them is cancelled.
pub struct StatusWatch {
    callee: Arc<PeerState>,
    broadcast: Arc<PeerBroadcast>,
    world: Arc<dyn World>,
    latest: Mutex<Latest>,
}

#[derive(Default)]
struct Latest {
    round: Option<Round>,
    /// Uptime until which rounds request the whole history.
    long_until: Duration,
}

struct Round {
    begun_at: Duration,
    activity_s: u16,
    answers: Flight<Option<Arc<Statuses>>>,
}

impl StatusWatch {
    /// Creates the watch of a process.
    pub fn new(callee: &Arc<PeerState>, broadcast: &Arc<PeerBroadcast>) -> Self {
        Self {
            world: Arc::clone(&callee.world),
            callee: Arc::clone(callee),
            broadcast: Arc::clone(broadcast),
            latest: Mutex::default(),
        }
    }

    /// Returns the statuses of these processes and of this one, with at least `history_s` seconds of activity. The
    /// round started less than 0.9 s ago or is still in progress. Returns `None` if the process is ending.
    pub async fn get(&self, processes: &[RegisteredProcess], history_s: u16) -> Option<Arc<Statuses>> {
        let answers = {
            let mut latest = self.latest.lock();
            let now = self.world.uptime();
            if history_s > SHORT_S {
                latest.long_until = now.saturating_add(LONG_FOR);
            }
            match latest.round.as_ref().filter(|round| round.serves(history_s, now)) {
                Some(round) => round.answers.clone(),
                None => {
                    let activity_s = if now < latest.long_until { HISTORY_S } else { SHORT_S };
                    let answers = self.begin(processes.to_vec(), activity_s);
                    latest.round = Some(Round { begun_at: now, activity_s, answers: answers.clone() });
                    answers
                }
            }
        };
        answers.await
    }

    fn begin(&self, processes: Vec<RegisteredProcess>, activity_s: u16) -> Flight<Option<Arc<Statuses>>> {
        let (callee, broadcast) = (Arc::clone(&self.callee), Arc::clone(&self.broadcast));
        let round = async move {
            let at = callee.world.now();
            let request = BroadcastRequest::get(&format!("{STATUS_PATH}?activity_s={activity_s}"));
            let answers = broadcast.send_to(processes, &request, ANSWER_TIME_MAX).await;
            let others = answers.into_iter().map(|(entry, answer)| {
                let status = status_of(&entry, answer);
                (entry, status)
            });
            let own = Status::of(&callee, StatusQuery { activity_s });
            Some(Arc::new(Statuses { at, own, others: others.collect() }))
        };
        start(&*self.world, round, || None)
    }
}

impl Round {
    /// Returns whether a caller can use this round instead of starting another one.
    fn serves(&self, history_s: u16, now: Duration) -> bool {
        let is_recent = now.saturating_sub(self.begun_at) < INTERVAL;
        self.activity_s >= history_s && (is_recent || self.answers.clone().now_or_never().is_none())
    }
}

fn status_of(entry: &RegisteredProcess, answer: Result<Vec<u8>, CallFault>) -> Option<Status> {
    let why = match answer.as_deref().map(serde_json::from_slice) {
        Ok(Ok(status)) => return Some(status),
        Ok(Err(error)) => chain(&error),
        Err(fault) => chain(fault),
    };
    // Not a warning, because the console asks every second.
    debug!("Process {} at {} does not report its status: {why}", entry.id, entry.address);
    None
}
