//! A closed loop: the next request is sent when the previous one is answered.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use postonce_tests::wait::Stopwatch;
use tokio::task::JoinSet;

use super::client::Client;
use super::{Outcome, Traffic, on_own_thread};

/// The end of a load.
#[derive(Debug, Clone)]
pub enum Until {
    /// After that many requests.
    Sent(u64),
    /// After that time.
    Passed(Duration),
    /// When this is true.
    Ended(Arc<AtomicBool>),
}

/// Sends requests over that many connections, one at a time on each. If the arm has several addresses, each
/// connection stands for one to each of them, which are used in turns.
pub async fn closed(traffic: Traffic, connections: usize, until: Until) -> Outcome {
    on_own_thread(async move || {
        let mut connected = Vec::new();
        for number in 0..connections {
            connected.push(Client::connect(&traffic.addresses, number).await);
        }
        let (traffic, next) = (Rc::new(traffic), Rc::new(Cell::new(0)));
        let outcome = Rc::new(RefCell::new(Outcome::new()));
        let mut clients = JoinSet::new();
        let watch = Rc::new(Stopwatch::start());
        for mut client in connected {
            let (traffic, next, outcome) = (Rc::clone(&traffic), Rc::clone(&next), Rc::clone(&outcome));
            let (watch, until) = (Rc::clone(&watch), until.clone());
            clients.spawn_local(async move {
                loop {
                    let number: u64 = next.get();
                    let is_over = match &until {
                        Until::Sent(requests) => number >= *requests,
                        Until::Passed(lasting) => watch.elapsed() >= *lasting,
                        Until::Ended(is_over) => is_over.load(Ordering::Relaxed),
                    };
                    if is_over {
                        return;
                    }
                    next.set(number.saturating_add(1));
                    let sent = Stopwatch::start();
                    let answer = client.submit(&traffic, number).await;
                    let is_broken = answer.is_err();
                    outcome.borrow_mut().note(answer, sent.elapsed());
                    if is_broken {
                        return;
                    }
                }
            });
        }
        drop(clients.join_all().await);
        let mut outcome = outcome.replace(Outcome::new());
        outcome.took = watch.elapsed();
        outcome
    })
    .await
}
