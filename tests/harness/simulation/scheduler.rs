//! Runs the tasks of several processes on one thread, with its own clock. Only the seed determines which task runs next, so the
//! same seed gives the same run, step by step.
//!
//! A step is one poll of one task. Between two steps a process may be killed (all its tasks are dropped, at any `await`) or
//! paused (its tasks do not run while time passes for others). The clock advances only when no task can run.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use tokio::sync::oneshot;

/// Identifies one run of a process, from its start to its end. A restarted process gets a new id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessId(u32);

impl ProcessId {
    /// Everything outside of the processes of the bank: the network, the clients, the operators. It never ends.
    pub const ENVIRONMENT: Self = Self(0);

    /// Returns the number, in the order of the starts.
    pub const fn number(self) -> u32 {
        self.0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TaskId(u64);

struct Task {
    process_id: ProcessId,
    /// `None` while it is polled.
    future: Option<BoxFuture<'static, ()>>,
}

struct Timer {
    process_id: ProcessId,
    wake: oneshot::Sender<()>,
}

struct State {
    rng: StdRng,
    now: Duration,
    steps: u64,
    numbers: u64,
    starts: u32,
    tasks: BTreeMap<TaskId, Task>,
    /// The timers by time. The number distinguishes timers with the same time.
    timers: BTreeMap<(Duration, u64), Timer>,
    running: BTreeSet<ProcessId>,
    paused: BTreeMap<ProcessId, Duration>,
}

/// Tasks that can run. The set is ordered, so the order of wake-ups has no effect: some primitives wake their waiters in their
/// own order.
type Ready = Arc<Mutex<BTreeSet<TaskId>>>;

/// Scheduler of tasks. Clones share all state.
#[derive(Clone)]
pub struct Scheduler {
    state: Arc<Mutex<State>>,
    ready: Ready,
}

/// The result of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A task of this process ran.
    Ran(ProcessId),
    /// No task could run, so the clock advanced to the next timer or the end of a pause.
    Waited,
    /// No task can ever run again.
    Ended,
}

struct TaskWaker {
    task: TaskId,
    ready: Ready,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.ready.lock().insert(self.task);
    }
}

impl Scheduler {
    /// Creates a scheduler without tasks, at time zero.
    pub fn new(seed: u64) -> Self {
        let state = State {
            rng: StdRng::seed_from_u64(seed),
            now: Duration::ZERO,
            steps: 0,
            numbers: 0,
            starts: 0,
            tasks: BTreeMap::new(),
            timers: BTreeMap::new(),
            running: BTreeSet::from([ProcessId::ENVIRONMENT]),
            paused: BTreeMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), ready: Ready::default() }
    }

    /// Returns the time since the start of the run.
    pub fn now(&self) -> Duration {
        self.state.lock().now
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    /// Returns a random number of 64 bits.
    pub fn random(&self) -> u64 {
        self.state.lock().rng.next_u64()
    }

    /// Returns a random number below `end`, which must not be zero.
    pub fn below(&self, end: u64) -> u64 {
        self.state.lock().rng.random_range(0..end)
    }

    /// Returns whether an event with this probability, per thousand, occurs.
    pub fn chance(&self, permille: u32) -> bool {
        // Nothing is drawn for an impossible event, so that disabling it changes nothing else.
        permille > 0 && self.state.lock().rng.random_range(0..1000) < permille
    }

    /// Returns a random duration from zero to `longest`.
    pub fn up_to(&self, longest: Duration) -> Duration {
        let microseconds = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.below(microseconds.saturating_add(1)))
    }

    /// Returns a random element of `choices`, which must not be empty.
    pub fn one_of<T: Copy>(&self, choices: &[T]) -> T {
        let place = self.below(u64::try_from(choices.len()).expect("few choices"));
        choices[usize::try_from(place).expect("few choices")]
    }

    /// Removes and returns a random element of `choices`, or returns `None` if it is empty.
    pub fn take_one<T>(&self, mut choices: Vec<T>) -> Option<T> {
        let place = self.below(u64::try_from(choices.len().max(1)).expect("few choices"));
        let place = usize::try_from(place).expect("few choices");
        (place < choices.len()).then(|| choices.swap_remove(place))
    }

    /// Starts a process without tasks.
    pub fn start_process(&self) -> ProcessId {
        let mut state = self.state.lock();
        state.starts = state.starts.checked_add(1).expect("few starts");
        let process_id = ProcessId(state.starts);
        state.running.insert(process_id);
        process_id
    }

    /// Returns whether the process has not ended.
    pub fn is_running(&self, process_id: ProcessId) -> bool {
        self.state.lock().running.contains(&process_id)
    }

    /// Ends a process: its tasks and timers are dropped, and it cannot start new ones.
    pub fn kill(&self, process_id: ProcessId) {
        let mut state = self.state.lock();
        state.running.remove(&process_id);
        state.paused.remove(&process_id);
        let (ended, tasks) =
            std::mem::take(&mut state.tasks).into_iter().partition(|(_, task)| task.process_id == process_id);
        state.tasks = tasks;
        let ended: BTreeMap<TaskId, Task> = ended;
        state.timers.retain(|_, timer| timer.process_id != process_id);
        drop(state);
        // Dropped outside of the lock, because dropping a future may wake or spawn other tasks.
        drop(ended);
    }

    /// Ends all processes. Tasks hold the scheduler, and would otherwise never be dropped.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        state.running.clear();
        let (tasks, timers) = (std::mem::take(&mut state.tasks), std::mem::take(&mut state.timers));
        drop(state);
        drop((tasks, timers));
        self.ready.lock().clear();
    }

    /// Pauses a process for some time, as SIGSTOP, a migrating virtual machine or a long page fault does.
    pub fn pause(&self, process_id: ProcessId, duration: Duration) {
        let mut state = self.state.lock();
        let until = state.now.saturating_add(duration);
        state.paused.insert(process_id, until);
    }

    /// Starts a task of a process. Does nothing if the process has ended.
    pub fn spawn(&self, process_id: ProcessId, future: BoxFuture<'static, ()>) {
        let mut state = self.state.lock();
        if !state.running.contains(&process_id) {
            drop(state);
            return;
        }
        let task = TaskId(next_number(&mut state));
        state.tasks.insert(task, Task { process_id, future: Some(future) });
        drop(state);
        self.ready.lock().insert(task);
    }

    /// Waits for this duration.
    pub async fn sleep(&self, process_id: ProcessId, duration: Duration) {
        let woken = {
            let mut state = self.state.lock();
            if !state.running.contains(&process_id) {
                return;
            }
            let (wake, woken) = oneshot::channel();
            let due = (state.now.saturating_add(duration), next_number(&mut state));
            state.timers.insert(due, Timer { process_id, wake });
            woken
        };
        // Without a sender, the process has ended and none of its tasks runs any more.
        woken.await.unwrap_or_default();
    }

    /// Runs one step.
    pub fn step(&self) -> Step {
        let Some((id, process_id, mut future)) = self.choose() else { return self.advance_clock() };
        let waker = Waker::from(Arc::new(TaskWaker { task: id, ready: Arc::clone(&self.ready) }));
        // A task that panics ends, as in a real process. The panic is captured elsewhere.
        let poll = AssertUnwindSafe(|| future.as_mut().poll(&mut Context::from_waker(&waker)));
        let polled = catch_unwind(poll).unwrap_or(Poll::Ready(()));
        let mut state = self.state.lock();
        state.steps = state.steps.saturating_add(1);
        match (polled, state.tasks.get_mut(&id)) {
            (Poll::Pending, Some(task)) => task.future = Some(future),
            (Poll::Ready(()), _) => {
                let ended = state.tasks.remove(&id);
                drop(state);
                drop((ended, future));
            }
            // The task ended its own process in this step.
            (Poll::Pending, None) => {
                drop(state);
                drop(future);
            }
        }
        Step::Ran(process_id)
    }

    /// Chooses a random task that can run.
    fn choose(&self) -> Option<(TaskId, ProcessId, BoxFuture<'static, ()>)> {
        let mut ready = self.ready.lock();
        let mut state = self.state.lock();
        let State { tasks, paused, now, rng, .. } = &mut *state;
        ready.retain(|id| tasks.contains_key(id));
        paused.retain(|_, until| until > now);
        let is_awake =
            |id: &&TaskId| tasks.get(id).is_some_and(|task| !paused.contains_key(&task.process_id));
        let awake: Vec<TaskId> = ready.iter().filter(is_awake).copied().collect();
        if awake.is_empty() {
            return None;
        }
        let chosen = awake[rng.random_range(0..awake.len())];
        ready.remove(&chosen);
        let task = tasks.get_mut(&chosen)?;
        let future = task.future.take().expect("a task is polled by one step at a time");
        Some((chosen, task.process_id, future))
    }

    /// Advances the clock to the next timer or the end of a pause.
    fn advance_clock(&self) -> Step {
        let mut state = self.state.lock();
        let now = state.now;
        state.timers.retain(|_, timer| !timer.wake.is_closed());
        let timer = state.timers.keys().next().map(|(until, _)| *until);
        let paused = state.paused.values().min().copied();
        let Some(next) = [timer, paused].into_iter().flatten().min() else { return Step::Ended };
        let now = next.max(now);
        state.now = now;
        let later = state.timers.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut state.timers, later);
        drop(state);
        for timer in due.into_values() {
            let _gone = timer.wake.send(());
        }
        Step::Waited
    }
}

fn next_number(state: &mut State) -> u64 {
    state.numbers = state.numbers.checked_add(1).expect("few tasks");
    state.numbers
}
