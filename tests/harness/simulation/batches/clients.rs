//! The clients of batches. They repeat a document until they have a response, and some cancel the batch.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, select};
use postonce_shared::batches::BatchFault;
use postonce_shared::batches::intake::Submitted;
use postonce_shared::batches::items::{InvalidItem, ResultLine};
use postonce_shared::domain::batch::Item;
use postonce_shared::testing::prelude::*;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::documents::{Sent, key_of};
use crate::simulation::faults::Fault;
use crate::simulation::processes::RunningProcess;
use crate::simulation::scheduler::ProcessId;
use crate::simulation::workload::{
    ANSWER_TIMEOUT_MAX, RETRY_MAX, START_DELAY_MAX, Workload, account_of, partner,
};

/// Maximum number of items of a batch.
const ITEMS_MAX: u64 = 9;
/// First message id that is above those of all single requests.
const FIRST_ID: u128 = 1_000;
/// Number of the first account that does not exist.
const FIRST_MISSING: u64 = 90;

/// Requests that the clients of a run send, now or later.
pub type Requests = Vec<(TransactionKey, Instruction)>;

impl Workload {
    /// Starts clients of batches for the accounts below this number. Some items have the keys of other requests.
    pub fn spawn_batches(&self, batches: u32, accounts: u64, mut requests: Requests) {
        for number in 1..=batches {
            let key =
                BatchKey { partner: partner(), batch: BatchId::from_uuid(Uuid::from_u128(number.into())) };
            let sent = self.document(&key, accounts, &mut requests);
            // Another client uses the same id for another batch.
            let other =
                (self.scheduler().below(5) == 0).then(|| self.document(&key, accounts, &mut requests));
            let cancels = self.scheduler().below(4) == 0;
            for (sent, cancels) in [(Some(sent), cancels), (other, false)] {
                let (Some(sent), workload, key) = (sent, self.clone(), key.clone()) else { continue };
                self.waiting.fetch_add(1, Ordering::Relaxed);
                let start = self.scheduler().up_to(START_DELAY_MAX);
                self.spawn(async move {
                    workload.scheduler().sleep(ProcessId::ENVIRONMENT, start).await;
                    workload.batch_client(key, Arc::new(sent), cancels).await;
                    workload.waiting.fetch_sub(1, Ordering::Relaxed);
                });
            }
        }
    }

    /// Creates a random document. Its items become requests that later documents may repeat.
    fn document(&self, key: &BatchKey, accounts: u64, requests: &mut Requests) -> Sent {
        let (scheduler, mut sent) = (self.scheduler(), Sent::default());
        let lines = u32::try_from(scheduler.below(ITEMS_MAX)).unwrap_or(0).saturating_add(1);
        for line in 1..=lines {
            let number = u128::try_from(requests.len()).unwrap_or(0).saturating_add(FIRST_ID);
            let new = |account| {
                let message = MessageId::from_uuid(Uuid::from_u128(number));
                Item { line, account: account_of(account), message, instruction: self.random_instruction() }
            };
            let item = match scheduler.below(12) {
                0..=3 => match scheduler.take_one(requests.clone()) {
                    Some((of, instruction)) => {
                        let is_other = scheduler.below(4) == 0;
                        let instruction = if is_other { self.random_instruction() } else { instruction };
                        Item { line, account: of.account, message: of.message, instruction }
                    }
                    None => new(scheduler.below(accounts)),
                },
                4 => new(scheduler.below(2).saturating_add(FIRST_MISSING)),
                5 if scheduler.below(2) == 0 => {
                    sent.invalid
                        .insert(line, InvalidItem { line, message: None, reason: "no amount".to_owned() });
                    continue;
                }
                _ => new(scheduler.below(accounts)),
            };
            requests.push((key_of(key, &item), item.instruction.clone()));
            sent.items.insert(line, item);
        }
        sent
    }

    async fn batch_client(&self, key: BatchKey, sent: Arc<Sent>, cancels: bool) {
        let auditor = &self.processes.network.auditor;
        for item in sent.items.values() {
            auditor.requested(&key_of(&key, item), &item.instruction);
        }
        let (_, summary) = sent.divide();
        let content = hex::encode(summary.content.0);
        auditor.batches(|batches| batches.offered(&key, content, Sent::clone(&sent)));
        // Immediately after the response, some batches are still being split.
        let cancels_after_answer = cancels && self.scheduler().below(2) == 0;
        if cancels && !cancels_after_answer {
            let (workload, key) = (self.clone(), key.clone());
            self.spawn(async move {
                workload.pause(Duration::from_secs(4)).await;
                workload.cancel_batch(&key);
            });
        }
        while self.send_batch(&key, &sent).await.is_none() {
            self.pause(RETRY_MAX).await;
        }
        if cancels_after_answer {
            self.cancel_batch(&key);
        }
        for _ in 0..self.scheduler().below(3) {
            self.pause(Duration::from_secs(30)).await;
            self.ask_batch(&key);
        }
        if self.scheduler().below(4) == 0 {
            // The client sends the document again, as if it had no response.
            let _answer = self.send_batch(&key, &sent).await;
        }
    }

    /// Sends one request to any web process. Returns `None` when no response arrives.
    async fn send_batch(&self, key: &BatchKey, sent: &Arc<Sent>) -> Option<()> {
        let network = &self.processes.network;
        if network.injects(Fault::RequestTwice) {
            drop(self.processes.any_web().map(|web| self.serve_batch(&web, key, sent)));
        }
        let web = self.processes.any_web()?;
        let answered = self.serve_batch(&web, key, sent);
        let longest = self.scheduler().up_to(ANSWER_TIMEOUT_MAX);
        let timeout = self.scheduler().sleep(ProcessId::ENVIRONMENT, longest);
        let received = match select(answered, std::pin::pin!(timeout)).await {
            Either::Left((answer, _)) => answer.ok().flatten(),
            Either::Right(_) => None,
        };
        received.filter(|()| !network.injects(Fault::ResponseLost))
    }

    /// Receives the document in a web process.
    fn serve_batch(
        &self,
        web: &RunningProcess,
        key: &BatchKey,
        sent: &Arc<Sent>,
    ) -> oneshot::Receiver<Option<()>> {
        let (answer, answered) = oneshot::channel();
        let (process, key, sent) = (web.clone(), key.clone(), Arc::clone(sent));
        let network = Arc::clone(&self.processes.network);
        let serve = async move {
            let submitted = receive(&process, &key, &sent).await;
            let answered = submitted.map(|(content, submitted)| {
                network.auditor.batches(|batches| batches.answered(&key, &content, &submitted));
                network.note(format!("answered batch {key}: {}", name(&submitted)));
            });
            // The client may have given up.
            let _gone = answer.send(answered.ok());
        };
        self.scheduler().spawn(web.id, serve.boxed());
        answered
    }

    fn cancel_batch(&self, key: &BatchKey) {
        let Some(web) = self.processes.any_web() else { return };
        let (batches, network, key) = (web.bank.batches, Arc::clone(&self.processes.network), key.clone());
        let cancel = async move {
            if let Ok(answer) = batches.cancel(&key).await {
                network.auditor.batches(|batches| batches.answered_cancel(&key, &answer));
            }
        };
        self.scheduler().spawn(web.id, cancel.boxed());
    }

    /// Reads a batch as a client does, and its results if it is completed.
    pub fn ask_batch(&self, key: &BatchKey) {
        let Some(web) = self.processes.any_web() else { return };
        let wait = (self.scheduler().below(2) == 0).then(|| self.scheduler().up_to(Duration::from_secs(10)));
        let (batches, network, key) = (web.bank.batches, Arc::clone(&self.processes.network), key.clone());
        let ask = async move {
            let Ok(found) = batches.find(&key, wait).await else { return };
            network.auditor.batches(|batches| batches.shown(&key, found.as_ref()));
            let Some(batch) = found else { return };
            let mut lines: Vec<ResultLine> = Vec::new();
            let Ok(Some(mut results)) = batches.results(&batch, 0).await else { return };
            loop {
                match results.next().await {
                    Ok(Some(mut page)) => lines.append(&mut page),
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
            network.auditor.batches(|batches| batches.read(&key, &lines));
        };
        self.scheduler().spawn(web.id, ask.boxed());
    }
}

/// Stores a document and submits the batch, as a web process does.
async fn receive(
    process: &RunningProcess,
    key: &BatchKey,
    sent: &Sent,
) -> Result<(String, Submitted), BatchFault> {
    let batches = &process.bank.batches;
    let exists = batches.find(key, None).await?.is_some();
    let mut upload = batches.upload(key);
    let (parts, summary) = sent.divide();
    let digest = summary.content;
    let submitted = if exists {
        batches.repeat(key, digest).await?
    } else {
        for part in parts {
            upload.put(part).await?;
        }
        let document = upload.finish(summary).await?;
        let (now, operations) = (process.bank.world.now(), OperationCounts::default());
        batches.submit(Batch::received(key.clone(), OnInvalid::Skip, document, now, operations)).await?
    };
    if !matches!(submitted, Submitted::New(_)) {
        upload.abandon().await;
    }
    Ok((hex::encode(digest.0), submitted))
}

const fn name(submitted: &Submitted) -> &'static str {
    match submitted {
        Submitted::New(_) => "new",
        Submitted::Existing(_) => "existing",
        Submitted::KeyReused => "key reused",
    }
}
