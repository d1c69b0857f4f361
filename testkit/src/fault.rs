//! A TCP proxy in front of a store that counts what passes and loses what it is told to.
//!
//! It reads RESP both ways, so it counts commands and not packets, and a lost reply is one whole frame: the command has
//! run in the store, and only its answer is gone. It lives on a thread and runtime of its own: whatever the test does
//! to its own runtime, the wire keeps moving, and no task of the proxy shows up in the test's runtime metrics.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::pump;
use crate::store::TestStore;

/// What follows a swallowed reply. Either way no later reply passes on that connection: a stream that lost a frame in
/// its middle and went on would answer every later command with the reply of its predecessor, which no network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The connection stays open and says nothing any more, like a half-open socket. Commands still reach the store.
    Silent,
    /// The connection is closed once the last reply of the order is swallowed.
    Cut,
}

#[derive(Debug)]
struct Order {
    label: Option<String>,
    left: u64,
    action: Action,
    silenced: Vec<u64>,
}

/// What the proxy does with a reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Forward,
    Silence,
    Cut,
}

#[derive(Debug, Default)]
struct State {
    counts: BTreeMap<String, u64>,
    connections: u64,
    dropped: u64,
    delay: Duration,
    slow: BTreeMap<String, Duration>,
    refuse: bool,
    orders: Vec<Order>,
    live: BTreeMap<u64, CancellationToken>,
}

/// What the handle and the connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) upstream: SocketAddr,
    pub(super) held: watch::Sender<bool>,
    state: Mutex<State>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an accepted connection; `None` if it has to be closed at once.
    pub(super) fn accepted(&self) -> Option<(u64, CancellationToken)> {
        let mut state = self.lock();
        state.connections += 1;
        if state.refuse {
            return None;
        }
        let (id, cut) = (state.connections, CancellationToken::new());
        state.live.insert(id, cut.clone());
        Some((id, cut))
    }

    pub(super) fn closed(&self, id: u64) {
        self.lock().live.remove(&id);
    }

    pub(super) fn count(&self, labels: &[String]) {
        let mut state = self.lock();
        for label in labels {
            *state.counts.entry(label.clone()).or_default() += 1;
        }
    }

    pub(super) fn delay(&self) -> Duration {
        self.lock().delay
    }

    /// By how much the reply to the command with `labels` comes later than the others.
    pub(super) fn lag(&self, labels: &[String]) -> Duration {
        let state = self.lock();
        labels.iter().filter_map(|label| state.slow.get(label)).max().copied().unwrap_or_default()
    }

    /// Decides over the reply to the command with `labels`. Orders without a name leave pushes alone.
    pub(super) fn judge(&self, connection: u64, labels: &[String], push: bool) -> Verdict {
        let mut state = self.lock();
        let wanted = |order: &Order| match &order.label {
            Some(label) => labels.contains(label),
            None => !push,
        };
        let Some(at) = state.orders.iter().position(wanted) else {
            return Verdict::Forward;
        };
        state.dropped += 1;
        let order = &mut state.orders[at];
        order.left -= 1;
        order.silenced.push(connection);
        if order.left > 0 {
            return Verdict::Silence;
        }
        let order = state.orders.remove(at);
        if order.action == Action::Silent {
            return Verdict::Silence;
        }
        // The connection of this reply drains what came before it; the others have been silent for long.
        for other in order.silenced.iter().filter(|other| **other != connection) {
            if let Some(cut) = state.live.get(other) {
                cut.cancel();
            }
        }
        Verdict::Cut
    }
}

/// The running proxy; dropping it closes the port and every connection.
#[derive(Debug)]
pub struct FaultProxy {
    shared: Arc<Shared>,
    port: u16,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl FaultProxy {
    /// Starts a proxy in front of `store`, which must listen on TCP. It passes everything until told otherwise.
    pub fn start(store: &TestStore) -> Self {
        Self::to(store.port())
    }

    /// Starts a proxy in front of whatever listens on that loopback port.
    pub fn to(upstream_port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("could not bind the fault proxy");
        listener.set_nonblocking(true).expect("could not make the listener of the fault proxy non-blocking");
        let port = listener.local_addr().expect("the fault proxy has no address").port();
        let shared = Arc::new(Shared {
            upstream: SocketAddr::from((Ipv4Addr::LOCALHOST, upstream_port)),
            held: watch::Sender::new(false),
            state: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let thread = thread::Builder::new()
            .name("fault-proxy".to_owned())
            .spawn({
                let (shared, stop) = (Arc::clone(&shared), stop.clone());
                move || pump::run(listener, shared, stop)
            })
            .expect("could not start the thread of the fault proxy");
        Self { shared, port, stop, thread: Some(thread) }
    }

    /// The URL for clients, without any parameter.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The loopback port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Ends every fault: orders are forgotten, no delay, nothing held or refused. Connections that are silent already
    /// stay so; [`cut_all`](Self::cut_all) ends those.
    pub fn pass(&self) {
        {
            let mut state = self.shared.lock();
            state.orders.clear();
            state.delay = Duration::ZERO;
            state.slow.clear();
            state.refuse = false;
        }
        self.resume();
    }

    /// Swallows the next `n` replies of whatever command (pushes pass), then does `action`.
    pub fn drop_replies(&self, n: u64, action: Action) {
        self.order(None, n, action);
    }

    /// Swallows the reply to the next command counted under `label`: `EVALSHA`, `EVALSHA <sha>`, `PUBLISH <channel>`.
    pub fn drop_next_reply_of(&self, label: &str, action: Action) {
        self.drop_replies_of(label, 1, action);
    }

    /// Swallows the replies to the next `n` commands counted under `label`, then does `action`.
    pub fn drop_replies_of(&self, label: &str, n: u64, action: Action) {
        self.order(Some(label.to_owned()), n, action);
    }

    fn order(&self, label: Option<String>, left: u64, action: Action) {
        if left > 0 {
            self.shared.lock().orders.push(Order { label, left, action, silenced: Vec::new() });
        }
    }

    /// Replies that orders have swallowed so far; those behind them on a silent connection do not count.
    pub fn dropped(&self) -> u64 {
        self.shared.lock().dropped
    }

    /// Closes all connections and comes back when they are closed. New ones are accepted as before.
    pub fn cut_all(&self) {
        let cut: Vec<u64> = {
            let state = self.shared.lock();
            state.live.values().for_each(CancellationToken::cancel);
            state.live.keys().copied().collect()
        };
        let end = Instant::now() + Duration::from_secs(5);
        while cut.iter().any(|id| self.shared.lock().live.contains_key(id)) {
            assert!(Instant::now() < end, "the fault proxy could not close its connections within 5 s");
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// From now on accepts connections only to close them at once, or stops doing so. Open ones are left alone.
    pub fn refuse(&self, refuse: bool) {
        self.shared.lock().refuse = refuse;
    }

    /// Hands every reply and push on that much later, without slowing the stream down. Zero ends it.
    pub fn delay(&self, delay: Duration) {
        self.shared.lock().delay = delay;
    }

    /// Hands the replies to the commands counted under `label` on that much later, and with each what is behind it on its
    /// connection. [`pass`](Self::pass) ends it.
    pub fn delay_replies_of(&self, label: &str, delay: Duration) {
        self.shared.lock().slow.insert(label.to_owned(), delay);
    }

    /// Stops forwarding in both directions. Connections stay open and new ones are accepted, but nothing is heard.
    pub fn hold(&self) {
        self.shared.held.send_replace(true);
    }

    /// Forwards again, beginning with what was held.
    pub fn resume(&self) {
        self.shared.held.send_replace(false);
    }

    /// Commands that were forwarded to the store, by upper-case name, EVALSHA also as `EVALSHA <sha>` and PUBLISH also
    /// as `PUBLISH <channel>`.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.shared.lock().counts.clone()
    }

    /// How often the command counted under `label` was forwarded.
    pub fn count(&self, label: &str) -> u64 {
        self.shared.lock().counts.get(label).copied().unwrap_or(0)
    }

    /// Starts counting commands from nothing.
    pub fn reset_counts(&self) {
        self.shared.lock().counts.clear();
    }

    /// Connections accepted so far, refused ones included.
    pub fn connections(&self) -> u64 {
        self.shared.lock().connections
    }

    /// Connections open now.
    pub fn open_connections(&self) -> usize {
        self.shared.lock().live.len()
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if ended.is_err() && !thread::panicking() {
                panic!("the thread of the fault proxy panicked, see above");
            }
        }
    }
}
