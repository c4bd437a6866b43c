//! An open loop: requests are sent at a fixed rate.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use postonce_tests::wait::Stopwatch;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::client::Client;
use super::{Outcome, Traffic, on_own_thread};

/// Most connections. A request that is due while all are busy waits, and its waiting time counts.
const CONNECTIONS_MAX: usize = 256;
/// Shortest sleep of the clock: more wake-ups would take processor time from the measured processes.
const TICK: Duration = Duration::from_micros(200);
const NANOS: u64 = 1_000_000_000;

/// A request that is due.
struct Due {
    number: u64,
    /// Time since the start.
    at: Duration,
}

/// Sends `rate` requests a second for that long, evenly spread. Latencies are measured from the due times.
pub async fn open(traffic: Traffic, rate: u64, lasting: Duration) -> Outcome {
    on_own_thread(async move || {
        let mut idle = VecDeque::new();
        for number in 0..CONNECTIONS_MAX {
            idle.push_back(Client::connect(&traffic.addresses, number).await);
        }
        let (due_requests, due) = unbounded_channel();
        let watch = Rc::new(Stopwatch::start());
        let clock = std::thread::Builder::new().name("clock".to_owned());
        let clock = clock.spawn(move || tick(rate, lasting, &due_requests)).expect("a thread for the clock");
        let mut outcome = send_due(&Rc::new(traffic), idle, due, &watch).await;
        outcome.took = watch.elapsed();
        clock.join().expect("the clock does not panic");
        outcome
    })
    .await
}

/// Sends the due requests at their times, on its own thread: the timers of the runtime have a precision of 1 ms.
fn tick(rate: u64, lasting: Duration, due_requests: &UnboundedSender<Due>) {
    let interval = Duration::from_nanos(NANOS.checked_div(rate).expect("a rate is not zero"));
    let watch = Stopwatch::start();
    let (mut number, mut at) = (0_u64, Duration::ZERO);
    while at < lasting {
        let ahead = at.saturating_sub(watch.elapsed());
        if !ahead.is_zero() {
            std::thread::sleep(ahead.max(TICK));
        }
        let now = watch.elapsed();
        while at <= now && at < lasting {
            if due_requests.send(Due { number, at }).is_err() {
                return;
            }
            number = number.saturating_add(1);
            at = at.saturating_add(interval);
        }
    }
}

/// Sends due requests over idle connections until all are answered.
async fn send_due(
    traffic: &Rc<Traffic>,
    mut idle: VecDeque<Client>,
    mut due: UnboundedReceiver<Due>,
    watch: &Rc<Stopwatch>,
) -> Outcome {
    let mut outcome = Outcome::new();
    let mut waiting = VecDeque::new();
    let mut under_way = JoinSet::new();
    let mut is_over = false;
    while !is_over || !under_way.is_empty() || !waiting.is_empty() {
        while let (Some(Due { number, at }), true) = (waiting.front(), !idle.is_empty()) {
            let (number, at) = (*number, *at);
            let (Some(_), Some(mut client)) = (waiting.pop_front(), idle.pop_front()) else { break };
            let (watch, traffic) = (Rc::clone(watch), Rc::clone(traffic));
            under_way.spawn_local(async move {
                let answer = client.submit(&traffic, number).await;
                (client, answer, watch.elapsed().saturating_sub(at))
            });
        }
        tokio::select! {
            biased;
            next = due.recv(), if !is_over => match next {
                Some(next) => waiting.push_back(next),
                None => is_over = true,
            },
            Some(done) = under_way.join_next() => {
                let (client, answer, latency) = done.expect("a client does not panic");
                if answer.is_ok() {
                    idle.push_back(client);
                }
                outcome.note(answer, latency);
            }
        }
    }
    outcome
}
