//! Runs the tasks of several processes on one thread, by a clock of its own. One seed decides which
//! task goes on next, and nothing else does: the same seed gives the same run, step by step.
//!
//! A step is one poll of one task. Between any two steps a process may be killed (all of its tasks
//! are gone, at whatever `await` they stood) or paused (its tasks do not run, while time goes on for
//! everybody else). The clock moves only when nothing can run.

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

/// One life of a process, from its start to its end. A process that starts again is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Life(u32);

impl Life {
    /// Whatever is no process of the bank: the network, the clients, the operators. It never ends.
    pub const OUTSIDE: Self = Self(0);

    /// Its number, in the order of the starts.
    pub const fn number(self) -> u32 {
        self.0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct TaskId(u64);

struct Task {
    life: Life,
    /// `None` while it is polled.
    future: Option<BoxFuture<'static, ()>>,
}

struct Sleeper {
    life: Life,
    wake: oneshot::Sender<()>,
}

struct State {
    rng: StdRng,
    now: Duration,
    steps: u64,
    numbers: u64,
    lives: u32,
    tasks: BTreeMap<TaskId, Task>,
    /// Who sleeps until when; the number keeps those apart that wake at the same time.
    sleepers: BTreeMap<(Duration, u64), Sleeper>,
    living: BTreeSet<Life>,
    paused: BTreeMap<Life, Duration>,
}

/// Tasks that can go on. Ordered, so that the order in which they were woken plays no part: some
/// primitives wake their waiters in an order of their own.
type Ready = Arc<Mutex<BTreeSet<TaskId>>>;

/// Runs tasks. Clones share everything.
#[derive(Clone)]
pub struct Scheduler {
    state: Arc<Mutex<State>>,
    ready: Ready,
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A task of that life went on.
    Ran(Life),
    /// Nothing could run, so the clock moved to the next time at which something may.
    Waited,
    /// Nothing will ever happen again.
    Ended,
}

struct Bell {
    task: TaskId,
    ready: Ready,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ready.lock().insert(self.task);
    }
}

impl Scheduler {
    /// A scheduler without tasks, at the time zero.
    pub fn new(seed: u64) -> Self {
        let state = State {
            rng: StdRng::seed_from_u64(seed),
            now: Duration::ZERO,
            steps: 0,
            numbers: 0,
            lives: 0,
            tasks: BTreeMap::new(),
            sleepers: BTreeMap::new(),
            living: BTreeSet::from([Life::OUTSIDE]),
            paused: BTreeMap::new(),
        };
        Self { state: Arc::new(Mutex::new(state)), ready: Ready::default() }
    }

    /// Time since the start of the run.
    pub fn now(&self) -> Duration {
        self.state.lock().now
    }

    /// Steps so far.
    pub fn steps(&self) -> u64 {
        self.state.lock().steps
    }

    /// A random number, all 64 bits of it.
    pub fn random(&self) -> u64 {
        self.state.lock().rng.next_u64()
    }

    /// A random number below `end`, which is not zero.
    pub fn below(&self, end: u64) -> u64 {
        self.state.lock().rng.random_range(0..end)
    }

    /// Whether something happens that does so in `permille` of a thousand cases.
    pub fn chance(&self, permille: u32) -> bool {
        // Nothing is drawn for what cannot happen, so that switching it off changes nothing else.
        permille > 0 && self.state.lock().rng.random_range(0..1000) < permille
    }

    /// A random time from zero to `longest`.
    pub fn up_to(&self, longest: Duration) -> Duration {
        let microseconds = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.below(microseconds.saturating_add(1)))
    }

    /// One of them; there is one at least.
    pub fn one_of<T: Copy>(&self, choices: &[T]) -> T {
        let place = self.below(u64::try_from(choices.len()).expect("few choices"));
        choices[usize::try_from(place).expect("few choices")]
    }

    /// One of them, taken out; `None` where there is none.
    pub fn take_one<T>(&self, mut choices: Vec<T>) -> Option<T> {
        let place = self.below(u64::try_from(choices.len().max(1)).expect("few choices"));
        let place = usize::try_from(place).expect("few choices");
        (place < choices.len()).then(|| choices.swap_remove(place))
    }

    /// Begins a life.
    pub fn begin(&self) -> Life {
        let mut state = self.state.lock();
        state.lives = state.lives.checked_add(1).expect("fewer lives than that");
        let life = Life(state.lives);
        state.living.insert(life);
        life
    }

    /// Whether the life did not end yet.
    pub fn is_living(&self, life: Life) -> bool {
        self.state.lock().living.contains(&life)
    }

    /// Ends a life: its tasks and its sleeps are gone, and it can start no more of them.
    pub fn kill(&self, life: Life) {
        let mut state = self.state.lock();
        state.living.remove(&life);
        state.paused.remove(&life);
        let (ended, tasks) =
            std::mem::take(&mut state.tasks).into_iter().partition(|(_, task)| task.life == life);
        state.tasks = tasks;
        let ended: BTreeMap<TaskId, Task> = ended;
        state.sleepers.retain(|_, sleeper| sleeper.life != life);
        drop(state);
        // Outside of the lock: what a future drops may wake or spawn others.
        drop(ended);
    }

    /// Ends everything: tasks hold what holds the scheduler, and would never be dropped otherwise.
    pub fn clear(&self) {
        let mut state = self.state.lock();
        state.living.clear();
        let (tasks, sleepers) = (std::mem::take(&mut state.tasks), std::mem::take(&mut state.sleepers));
        drop(state);
        drop((tasks, sleepers));
        self.ready.lock().clear();
    }

    /// Stops a life for some time: SIGSTOP, a virtual machine that moves, a very long page fault.
    pub fn pause(&self, life: Life, duration: Duration) {
        let mut state = self.state.lock();
        let until = state.now.saturating_add(duration);
        state.paused.insert(life, until);
    }

    /// Starts a task of a life; of one that ended, nothing happens.
    pub fn spawn(&self, life: Life, future: BoxFuture<'static, ()>) {
        let mut state = self.state.lock();
        if !state.living.contains(&life) {
            drop(state);
            return;
        }
        let task = TaskId(next_number(&mut state));
        state.tasks.insert(task, Task { life, future: Some(future) });
        drop(state);
        self.ready.lock().insert(task);
    }

    /// Returns after that time.
    pub async fn sleep(&self, life: Life, duration: Duration) {
        let woken = {
            let mut state = self.state.lock();
            if !state.living.contains(&life) {
                return;
            }
            let (wake, woken) = oneshot::channel();
            let place = (state.now.saturating_add(duration), next_number(&mut state));
            state.sleepers.insert(place, Sleeper { life, wake });
            woken
        };
        // Without a sender the life has ended, and nothing of it runs any more.
        woken.await.unwrap_or_default();
    }

    /// One step.
    pub fn step(&self) -> Step {
        let Some((id, life, mut future)) = self.choose() else { return self.wait() };
        let waker = Waker::from(Arc::new(Bell { task: id, ready: Arc::clone(&self.ready) }));
        // A task that panics is gone, as it would be in a process; the run hears of it elsewhere.
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
            // It was killed while it ran: it was its own step that did it.
            (Poll::Pending, None) => {
                drop(state);
                drop(future);
            }
        }
        Step::Ran(life)
    }

    /// A task that can go on, chosen at random.
    fn choose(&self) -> Option<(TaskId, Life, BoxFuture<'static, ()>)> {
        let mut ready = self.ready.lock();
        let mut state = self.state.lock();
        let State { tasks, paused, now, rng, .. } = &mut *state;
        ready.retain(|id| tasks.contains_key(id));
        paused.retain(|_, until| until > now);
        let is_awake = |id: &&TaskId| tasks.get(id).is_some_and(|task| !paused.contains_key(&task.life));
        let awake: Vec<TaskId> = ready.iter().filter(is_awake).copied().collect();
        if awake.is_empty() {
            return None;
        }
        let chosen = awake[rng.random_range(0..awake.len())];
        ready.remove(&chosen);
        let task = tasks.get_mut(&chosen)?;
        let future = task.future.take().expect("a task is polled by one step at a time");
        Some((chosen, task.life, future))
    }

    /// Moves the clock to the next sleeper, or to the end of a pause.
    fn wait(&self) -> Step {
        let mut state = self.state.lock();
        let now = state.now;
        state.sleepers.retain(|_, sleeper| !sleeper.wake.is_closed());
        let asleep = state.sleepers.keys().next().map(|(until, _)| *until);
        let paused = state.paused.values().min().copied();
        let Some(next) = [asleep, paused].into_iter().flatten().min() else { return Step::Ended };
        let now = next.max(now);
        state.now = now;
        let later = state.sleepers.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut state.sleepers, later);
        drop(state);
        for sleeper in due.into_values() {
            let _gone = sleeper.wake.send(());
        }
        Step::Waited
    }
}

fn next_number(state: &mut State) -> u64 {
    state.numbers = state.numbers.checked_add(1).expect("fewer tasks than that");
    state.numbers
}
