//! What open pages of the console cost: one process on SQLite, with three streams of current values and without any.

use std::rc::Rc;

use reqwest::header::{COOKIE, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use tokio::task::JoinSet;

use crate::bench::prelude::*;

const CONNECTIONS: usize = 64;
const ACCOUNTS: usize = 10_000;
/// The streams: each page of an operator that shows current values.
const STREAMS: [&str; 3] = ["/console/live/overview", "/console/live/gate", "/console/live/queues"];

const OPEN: &str = "three open pages";
const NONE: &str = "no open page";
const GOALS: [GoalOf; 2] =
    [(OPEN, POSTED, Goal::TimesTheOther(NONE, 97)), (OPEN, PROCESSOR, Goal::TimesTheOtherAtMost(NONE, 103))];

/// Measures all ways of the requests. Both arms are the same process, in turns.
pub async fn measure(options: &Options, machine: &Machine) {
    let mut report = Report::of("consoles");
    for way in Way::ALL {
        let arm = Rc::new(arms::embedded(machine.directory(), way).await);
        let accounts = arm.open(options.accounts(ACCOUNTS)).await;
        let arms = [(OPEN, (Rc::clone(&arm), true)), (NONE, (arm, false))];
        let phase = way.name();
        let name = format!("consoles, {phase}");
        let series = interleave(&name, options.rounds(), &arms, machine, async |(arm, is_open)| {
            let streams = if *is_open { Some(open(arm).await) } else { None };
            let sample = throughput(arm, &accounts, CONNECTIONS, options.lasting(LASTING)).await;
            if let Some(mut streams) = streams {
                assert!(streams.try_join_next().is_none(), "the streams lasted as long as the load");
            }
            sample
        })
        .await;
        report.add(phase, &series, &GOALS);
    }
    report.finish(machine);
}

/// Signs in, and receives all streams until the set is dropped.
async fn open(arm: &Arm) -> JoinSet<()> {
    let Target { addresses, key } = &arm.target;
    let address = format!("http://{}", addresses.first().expect("an arm has a process"));
    let http = Client::builder().redirect(Policy::none()).no_proxy().build().expect("a client");
    let form = http.post(format!("{address}/console/sign-in")).form(&[("key", key)]);
    let answer = form.send().await.expect("the process answers");
    let cookie = answer.headers().get(SET_COOKIE).and_then(|it| it.to_str().ok()).expect("a session");
    let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
    let mut streams = JoinSet::new();
    for path in STREAMS {
        let request = http.get(format!("{address}{path}")).header(COOKIE, &cookie);
        let mut stream = request.send().await.and_then(Response::error_for_status).expect("a stream");
        streams.spawn(async move { while let Ok(Some(_)) = stream.chunk().await {} });
    }
    streams
}
