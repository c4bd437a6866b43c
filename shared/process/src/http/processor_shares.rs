//! Processor time of a thread that serves HTTP, shared fairly between clients. A thread runs its tasks in the order in which
//! they became ready. Without shares, a client with a thousand connections would run a thousand times before another client.
//!
//! The time used by all connections of a client is measured. Once it reaches [`QUANTUM`], the client's other connections wait
//! for the next turn. A turn begins when all other ready tasks have run and the runtime has polled the sockets again. Time
//! above the quantum is carried over as a debt (deficit round robin: Shreedhar and Varghese, 1995). No processor time stays
//! unused. A client that is alone on its thread has turns too, but longer ones: the runtime polls sockets only after many
//! tasks, and a request of another client may have arrived.
//!
//! Over HTTP/1.1, the requests are part of the work of their connection. Over HTTP/2, each request is a task of its own, and
//! its time is charged to its client.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use actix_web::body::{BodySize, MessageBody};
use actix_web::web::Bytes;
use pin_project_lite::pin_project;
use postonce_shared::access::current_client::while_serving;
use tokio::task::{spawn_local, yield_now};

use super::connections::{ClientOfRequest, Connection};

/// Processor time of a client in one turn.
const QUANTUM: Duration = Duration::from_micros(500);
/// The same for a client that is alone on its thread.
const QUANTUM_ALONE: Duration = Duration::from_millis(2);
/// Number of remembered clients above which a turn begins, in which clients without a debt are forgotten.
const CLIENTS_MAX: usize = 1024;

#[derive(Default)]
pub(super) struct ProcessorShares {
    clients: RefCell<HashMap<u64, Share>>,
    has_turns: Cell<bool>,
}

/// The used time and the waiting connections of a client.
#[derive(Default)]
struct Share {
    used: Duration,
    /// Waiting connections in the order of their arrival.
    waiting: VecDeque<Rc<Ticket>>,
}

/// The place of a connection in the queue of its client.
struct Ticket {
    is_called: Cell<bool>,
    task: RefCell<Waker>,
}

impl Share {
    /// Lets the first waiting connection continue.
    fn call_next(&mut self) {
        if let Some(ticket) = self.waiting.pop_front() {
            ticket.is_called.set(true);
            ticket.task.borrow().wake_by_ref();
        }
    }
}

impl ProcessorShares {
    /// Returns whether a connection of a client may run now. If not, its task is woken later.
    fn admits(self: &Rc<Self>, client: u64, place: &mut Option<Rc<Ticket>>, task: &Waker) -> bool {
        if let Some(ticket) = place {
            let is_called = ticket.is_called.get();
            if is_called {
                *place = None;
            } else {
                ticket.task.borrow_mut().clone_from(task);
            }
            return is_called;
        }
        let mut clients = self.clients.borrow_mut();
        let quantum = quantum(clients.len());
        let Some(share) = clients.get_mut(&client) else { return true };
        if share.waiting.is_empty() && share.used < quantum {
            return true;
        }
        let ticket = Rc::new(Ticket { is_called: Cell::new(false), task: RefCell::new(task.clone()) });
        share.waiting.push_back(Rc::clone(&ticket));
        *place = Some(ticket);
        drop(clients);
        self.begin_turns();
        false
    }

    /// Charges processor time to a client.
    fn charge(self: &Rc<Self>, client: u64, used: Duration) {
        let mut clients = self.clients.borrow_mut();
        let share = clients.entry(client).or_default();
        share.used = share.used.saturating_add(used);
        let (used, has_waiting) = (share.used, !share.waiting.is_empty());
        let count = clients.len();
        if has_waiting
            && used < quantum(count)
            && let Some(share) = clients.get_mut(&client)
        {
            share.call_next();
        }
        let is_full = count > CLIENTS_MAX;
        drop(clients);
        if is_full {
            self.begin_turns();
        }
    }

    /// Starts a task that begins turns until no connection waits.
    fn begin_turns(self: &Rc<Self>) {
        if self.has_turns.replace(true) {
            return;
        }
        let shares = Rc::clone(self);
        spawn_local(async move {
            loop {
                yield_now().await;
                if !shares.next_turn() {
                    shares.has_turns.set(false);
                    return;
                }
            }
        });
    }

    /// Begins a turn. Returns whether connections still wait, so that another turn is needed.
    fn next_turn(&self) -> bool {
        let mut clients = self.clients.borrow_mut();
        let count = clients.len();
        clients.retain(|_, share| {
            // A client that is alone has delayed no other client, so it has no debt.
            share.used = if count == 1 { Duration::ZERO } else { share.used.saturating_sub(QUANTUM) };
            if share.used < quantum(count) {
                share.call_next();
            }
            !share.waiting.is_empty() || !share.used.is_zero()
        });
        clients.values().any(|share| !share.waiting.is_empty())
    }
}

/// Returns the processor time of each client in a turn, given the number of clients.
const fn quantum(clients: usize) -> Duration {
    if clients == 1 { QUANTUM_ALONE } else { QUANTUM }
}

/// Charges the work of a connection or a request to its client, and delays it when the client has used its time.
pub(super) struct Part {
    connection: Arc<Connection>,
    /// The client of a request, if it may differ from the client of the connection.
    client: Option<ClientOfRequest>,
    shares: Rc<ProcessorShares>,
    place: Option<Rc<Ticket>>,
}

impl Part {
    /// Charges an accepted connection.
    pub(super) const fn new(connection: Arc<Connection>, shares: Rc<ProcessorShares>) -> Self {
        Self { connection, client: None, shares, place: None }
    }

    /// Charges a request over HTTP/2, or its response, which does not run within the work of its connection.
    pub(super) const fn of_request(
        client: ClientOfRequest,
        connection: Arc<Connection>,
        shares: Rc<ProcessorShares>,
    ) -> Self {
        Self { connection, client: Some(client), shares, place: None }
    }

    fn client(&self) -> u64 {
        self.client.as_ref().map_or_else(|| self.connection.client(), |of_request| of_request.0.get())
    }

    /// Runs the work if the client has time left in this turn.
    fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        work: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let client = self.client();
        if !self.shares.admits(client, &mut self.place, context.waker()) {
            return Poll::Pending;
        }
        let begun = self.connection.world.uptime();
        let polled = while_serving(client, || work(context));
        let used = self.connection.world.uptime().saturating_sub(begun);
        // The client may have shown a key during the work, and be a different one now.
        self.shares.charge(self.client(), used);
        polled
    }
}

pin_project! {
    /// Work that is charged to its client if `part` is set. Otherwise it runs within other work that is charged.
    pub(super) struct Shared<W> {
        #[pin]
        work: W,
        part: Option<Part>,
    }
}

impl<W> Shared<W> {
    /// Creates work that is charged to `part`, or runs within other work.
    pub(super) const fn new(work: W, part: Option<Part>) -> Self {
        Self { work, part }
    }
}

impl<F: Future> Future for Shared<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        match this.part {
            Some(part) => part.poll(context, |context| this.work.poll(context)),
            None => this.work.poll(context),
        }
    }
}

impl<B: MessageBody> MessageBody for Shared<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.work.size()
    }

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, B::Error>>> {
        let this = self.project();
        match this.part {
            Some(part) => part.poll(context, |context| this.work.poll_next(context)),
            None => this.work.poll_next(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;

    use actix_http::Version;

    use super::*;

    /// The shares of a thread whose turns begin only when the test calls `next_turn`.
    fn shares() -> Rc<ProcessorShares> {
        let shares = Rc::new(ProcessorShares::default());
        shares.has_turns.set(true);
        shares
    }

    #[test]
    fn a_client_that_used_its_quantum_waits_for_the_next_turn_and_others_do_not() {
        let (shares, mut places) = (shares(), [const { None }; 3]);
        let [first, second, other] = &mut places;
        assert!(shares.admits(1, first, Waker::noop()));
        shares.charge(1, QUANTUM);
        assert!(shares.admits(1, first, Waker::noop()), "nobody else has used the thread");
        shares.charge(2, Duration::ZERO);
        assert!(!shares.admits(1, first, Waker::noop()) && !shares.admits(1, second, Waker::noop()));
        assert!(shares.admits(2, other, Waker::noop()));
        assert!(shares.next_turn());
        assert!(shares.admits(1, first, Waker::noop()));
        assert!(!shares.admits(1, second, Waker::noop()), "the first one continues first");
        shares.charge(1, Duration::ZERO);
        assert!(shares.admits(1, second, Waker::noop()), "there was time left in this turn");
        for client in [1, 2] {
            shares.charge(client, QUANTUM.saturating_mul(3));
        }
        assert!(!shares.admits(1, first, Waker::noop()));
        assert!(shares.next_turn() && shares.next_turn(), "what was more than a quantum is owed");
        assert!(!shares.admits(1, first, Waker::noop()));
        assert!(!shares.next_turn());
        assert!(shares.admits(1, first, Waker::noop()));
        assert!(!shares.next_turn() && shares.clients.borrow().is_empty(), "nothing is left behind");
    }

    #[test]
    fn a_client_alone_has_longer_turns_and_owes_nothing() {
        let (shares, mut place) = (shares(), None);
        for _ in 0..3 {
            shares.charge(1, QUANTUM_ALONE.saturating_mul(5));
            assert!(!shares.admits(1, &mut place, Waker::noop()), "sockets are looked at first");
            assert!(!shares.next_turn());
            assert!(shares.admits(1, &mut place, Waker::noop()));
        }
    }

    #[test]
    fn requests_over_http2_have_a_part_of_their_own() {
        let (shares, connection) = (shares(), Connection::of_test(Duration::from_secs(1)));
        let client_of = |version| ClientOfRequest::of(version, &connection);
        assert!(client_of(Version::HTTP_11).is_none(), "one over HTTP/1.1 is work of its connection");
        let of_request = client_of(Version::HTTP_2).unwrap();
        let part = || Part::of_request(of_request.clone(), Arc::clone(&connection), Rc::clone(&shares));
        let (client, other) = (connection.client(), connection.client().wrapping_add(1));
        shares.charge(other, Duration::ZERO);
        let mut context = Context::from_waker(Waker::noop());
        let work = poll_fn(|_| {
            let begun = connection.world.uptime();
            while connection.world.uptime().saturating_sub(begun) < QUANTUM {}
            Poll::Ready(())
        });
        let mut first = pin!(Shared::new(work, Some(part())));
        assert!(first.as_mut().poll(&mut context).is_ready());
        let body = Shared::new(Bytes::from_static(b"x"), Some(part()));
        let mut body = pin!(body);
        assert!(body.as_mut().poll_next(&mut context).is_pending(), "the request has used the quantum");
        assert!(shares.admits(other, &mut None, Waker::noop()));
        assert!(!shares.admits(client, &mut None, Waker::noop()));
        // The other request on the connection, and its response, belong to another client.
        let of_other = client_of(Version::HTTP_2).unwrap();
        of_other.0.set(other);
        let part = Part::of_request(of_other, Arc::clone(&connection), Rc::clone(&shares));
        let mut others = pin!(Shared::new(Bytes::from_static(b"y"), Some(part)));
        assert!(others.as_mut().poll_next(&mut context).is_ready());
        // On a busy machine the work has taken several quanta.
        while body.as_mut().poll_next(&mut context).is_pending() {
            assert!(shares.next_turn());
        }
    }

    #[test]
    fn a_connection_that_ends_while_it_waits_keeps_no_other_one_waiting() {
        let (shares, mut place) = (shares(), None);
        shares.charge(2, Duration::ZERO);
        shares.charge(1, QUANTUM);
        for _ in 0..3 {
            assert!(!shares.admits(1, &mut None, Waker::noop()));
        }
        assert!(!shares.admits(1, &mut place, Waker::noop()));
        let turns = (0..10).take_while(|_| shares.next_turn()).count();
        assert_eq!(turns, 3);
        assert!(shares.admits(1, &mut place, Waker::noop()));
    }
}
