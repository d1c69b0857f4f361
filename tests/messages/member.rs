//! One member of a fleet in this process: it joins, beats, looks at the others and takes messages, over connections of
//! its own.
#![allow(dead_code, reason = "more than one test binary compiles it, and uses a part of it")]

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use maitred::envelope::{AuditReason, Keyring, Secret};
use maitred::error::{Error, Result};
use maitred::ids::{Epoch, Incarnation, NodeId, Role, Zone};
use maitred::message::{CallError, Inbox, MessageOptions, Post, ServiceRegistration, Services, handler_fn};
use maitred::node::{
    Control, Directory, DirectoryOptions, Identity, Lease, LivenessLimits, Load, Membership, NodeRecord, NodeState,
};
use maitred::store::{Feed, FeedChannel, FeedItem, Store, StoreOptions, StoreUrl, Verifier};
use serde_json::value::RawValue;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::support::wait::eventually;

/// How long a test waits for what must come.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Timeout of calls that must be answered.
pub const CALL: Duration = Duration::from_secs(15);

const SECRET: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// Limits that no test reaches by being slow.
const PATIENT: LivenessLimits = LivenessLimits { suspect_ms: 60_000, offline_ms: 90_000, removed_ms: 120_000 };

/// How a member differs from the usual one.
#[derive(Debug, Clone)]
pub struct Options {
    pub limits: LivenessLimits,
    pub lease_ms: u64,
    pub messages: MessageOptions,
    pub replaces: Option<Incarnation>,
    pub command_timeout: Duration,
    /// How long a call is repeated whose outcome is not known.
    pub operation_timeout: Duration,
    /// Whether it looks at the others again and again.
    pub refreshing: bool,
    /// Time between two of its beats.
    pub beat_every: Duration,
    /// Time between two looks at the others.
    pub look_every: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: PATIENT,
            lease_ms: 90_000,
            messages: MessageOptions::default(),
            replaces: None,
            command_timeout: Duration::from_secs(10),
            operation_timeout: Duration::from_secs(3),
            refreshing: true,
            beat_every: Duration::from_millis(100),
            look_every: Duration::from_millis(50),
        }
    }
}

pub fn zone() -> Zone {
    Zone::new("eu").expect("a zone")
}

pub fn id(text: &str) -> NodeId {
    NodeId::new(text).expect("an id")
}

pub fn keyring() -> Keyring {
    Keyring::new(zone(), Secret::from_base64("MAITRED_SECRET", SECRET).expect("a secret"), Vec::new())
}

pub fn json(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("JSON")
}

/// A member; dropping it ends its tasks without a leave, as a crash would.
pub struct Member {
    pub id: NodeId,
    pub store: Store,
    pub verifier: Verifier,
    pub lease: Lease,
    pub directory: Directory,
    pub services: Services,
    pub post: Post,
    pub inbox: Inbox,
    membership: Arc<Mutex<Membership>>,
    beat_every: Duration,
    beating: Option<JoinHandle<()>>,
    looking: JoinHandle<()>,
    listening: Option<(CancellationToken, JoinHandle<()>)>,
    routing: JoinHandle<()>,
}

impl Member {
    pub async fn join(url: &str, name: &str) -> Self {
        Self::join_with(url, name, Options::default()).await
    }

    pub async fn join_with(url: &str, name: &str, options: Options) -> Self {
        let id = id(name);
        let mut store_options = StoreOptions::new(StoreUrl::parse(url).expect("a URL"));
        store_options.command_timeout = options.command_timeout;
        store_options.operation_timeout = options.operation_timeout;
        let store = Store::open(zone(), store_options).await.expect("a store");
        let verifier = Verifier::new(keyring());
        let lease = Lease::new(id.clone(), options.lease_ms);
        let identity = Identity { id: id.clone(), role: Role::backend(), addr: "127.0.0.1:1".to_owned() };
        let mut membership = Membership::new(store.clone(), verifier.clone(), identity, lease.clone());
        if let Some(incarnation) = options.replaces {
            membership = membership.replacing(incarnation);
        }
        let looks = DirectoryOptions { limits: options.limits, roles: None };
        let directory = Directory::new(store.clone(), verifier.clone(), looks, None);
        let services = Services::new();
        let post = Post::new(
            store.clone(),
            verifier.clone(),
            lease.clone(),
            directory.clone(),
            services.clone(),
            options.messages,
        );
        let inbox = Inbox::new(&post);

        membership.join(record(&id, &services)).await.expect("a place in the fleet");
        directory.refresh().await.expect("a first look");
        let membership = Arc::new(Mutex::new(membership));
        let beat_every = options.beat_every;
        let beating = Some(tokio::spawn(beat(Arc::clone(&membership), id.clone(), services.clone(), beat_every)));
        let looking = tokio::spawn(look(directory.clone(), options.refreshing, options.look_every));
        let (listening, routing) = listen(&store, &id, inbox.clone()).await;
        Self {
            id,
            store,
            verifier,
            lease,
            directory,
            services,
            post,
            inbox,
            membership,
            beat_every,
            beating,
            looking,
            listening: Some(listening),
            routing,
        }
    }

    pub fn epoch(&self) -> Epoch {
        self.lease.epoch()
    }

    pub async fn incarnation(&self) -> Incarnation {
        self.membership.lock().await.incarnation().clone()
    }

    /// Publishes the services as they are now, without waiting for the next beat.
    pub async fn beat_now(&self) {
        let record = record(&self.id, &self.services);
        self.membership.lock().await.beat(record, &Control::default()).await.expect("a beat");
    }

    /// From now on its row gets older, as if the process hung. Its inbox goes on listening.
    pub async fn stop_beating(&mut self) {
        if let Some(beating) = self.beating.take() {
            // Not in the middle of a beat, which would come to the store afterwards.
            let _between = self.membership.lock().await;
            beating.abort();
            let _ = beating.await;
        }
    }

    /// Joins again after its row was lost, and beats as before.
    pub async fn join_again(&mut self) {
        let record = record(&self.id, &self.services);
        self.membership.lock().await.join(record).await.expect("a place in the fleet");
        let (membership, services) = (Arc::clone(&self.membership), self.services.clone());
        self.beating = Some(tokio::spawn(beat(membership, self.id.clone(), services, self.beat_every)));
    }

    /// Nobody listens on its inbox any more. Its beats go on.
    pub async fn stop_listening(&mut self) {
        if let Some((stop, listening)) = self.listening.take() {
            stop.cancel();
            listening.await.expect("the feed ends");
        }
        let mut conn = self.store_conn().await;
        let channel = self.store.keys().inbox(&self.id).to_string();
        eventually("the store forgets the subscription", PATIENCE, async || listeners(&mut conn, &channel).await == 0)
            .await;
    }

    async fn store_conn(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.store.options().url.to_string()).expect("a URL");
        client.get_multiplexed_async_connection().await.expect("a connection")
    }

    pub async fn leave(&self) {
        self.membership.lock().await.leave().await.expect("a leave");
    }

    pub fn audited(&self, reason: AuditReason) -> u64 {
        self.verifier.audit().count(reason)
    }

    /// Waits until it sees `other` with its present services.
    pub async fn sees(&self, other: &Member) {
        let want = other.services.published();
        eventually("a member sees the other and its services", PATIENCE, async || {
            let Some(view) = self.directory.view_of(&other.id) else { return false };
            view.record.epoch == other.epoch() && want.iter().all(|name| view.record.offers(name.as_str()))
        })
        .await;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.beating.iter().for_each(JoinHandle::abort);
        self.listening.iter().for_each(|(stop, _)| stop.cancel());
        self.looking.abort();
        self.routing.abort();
    }
}

/// Two members that see each other; the second answers to `echo`.
pub async fn pair(url: &str) -> (Member, Member, ServiceRegistration) {
    let a = Member::join(url, "a").await;
    let b = Member::join(url, "b").await;
    let echo = b.services.register("echo", echo()).expect("a name");
    b.beat_now().await;
    a.sees(&b).await;
    b.sees(&a).await;
    (a, b, echo)
}

/// Answers with the body.
pub fn echo() -> impl maitred::message::Handler {
    handler_fn(|call| async move { Ok(call.body) })
}

/// A handler under the test's control: counts its starts, and ends only when it is let go.
#[derive(Clone)]
pub struct Gate {
    started: Arc<AtomicUsize>,
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    doors: Arc<Semaphore>,
}

impl Gate {
    /// With `open` starts that go through at once.
    pub fn new(open: usize) -> Self {
        let zero = || Arc::new(AtomicUsize::new(0));
        Self { started: zero(), running: zero(), most: zero(), doors: Arc::new(Semaphore::new(open)) }
    }

    pub fn handler(&self) -> impl maitred::message::Handler {
        let gate = self.clone();
        handler_fn(move |call| {
            let gate = gate.clone();
            async move {
                gate.started.fetch_add(1, Ordering::SeqCst);
                gate.most.fetch_max(gate.running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                gate.doors.acquire().await.map_err(|_| CallError::new("closed", ""))?.forget();
                gate.running.fetch_sub(1, Ordering::SeqCst);
                Ok(call.body)
            }
        })
    }

    pub fn started(&self) -> usize {
        self.started.load(Ordering::SeqCst)
    }

    pub fn most_at_once(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    pub fn let_go(&self, count: usize) {
        self.doors.add_permits(count);
    }

    pub async fn has_started(&self, count: usize) {
        eventually("handlers start", PATIENCE, async || self.started() >= count).await;
    }
}

/// Repeats a call until it ends with an error that `want` likes: a node takes its time on the way down.
pub async fn until_refused(post: &Post, target: &str, want: impl Fn(&Error) -> bool) -> Error {
    eventually("a call is refused as it should be", PATIENCE, async || {
        match post.call(target, "go", &1, Duration::from_millis(200)).await {
            Err(error) if want(&error) => Some(error),
            _ => None,
        }
    })
    .await
}

pub async fn listeners(conn: &mut redis::aio::MultiplexedConnection, channel: &str) -> u64 {
    let counted: (String, u64) =
        redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).query_async(conn).await.expect("PUBSUB");
    counted.1
}

fn record(id: &NodeId, services: &Services) -> NodeRecord {
    NodeRecord {
        id: id.clone(),
        role: Role::backend(),
        addr: String::new(),
        epoch: Epoch::NONE,
        incarnation: Incarnation::new("x").expect("a name"),
        seq: 0,
        sent_at_ms: 0,
        state: NodeState::Ready,
        accepting: true,
        kill: false,
        players: 0,
        soft_cap: 0,
        load: Load::default(),
        services: services.published(),
        labels: BTreeMap::new(),
    }
}

async fn beat(membership: Arc<Mutex<Membership>>, id: NodeId, services: Services, every: Duration) {
    loop {
        sleep(every).await;
        // A store that cannot be reached is what some tests are about.
        let _: Result<_> = membership.lock().await.beat(record(&id, &services), &Control::default()).await;
    }
}

async fn look(directory: Directory, refreshing: bool, every: Duration) {
    if !refreshing {
        pending::<()>().await;
    }
    loop {
        sleep(every).await;
        let _: Result<()> = directory.refresh().await;
        directory.age();
    }
}

type Listening = (CancellationToken, JoinHandle<()>);

/// Subscribes to the inbox channel and hands everything to `inbox`; comes back once the subscription stands.
async fn listen(store: &Store, id: &NodeId, inbox: Inbox) -> (Listening, JoinHandle<()>) {
    let (feed, sink, mut source) = Feed::new();
    let channels = vec![(FeedChannel::Inbox, store.keys().inbox(id).to_string())];
    let stop = CancellationToken::new();
    let running = {
        let (store, stop) = (store.clone(), stop.clone());
        tokio::spawn(async move { feed.run(store, channels, sink, stop).await })
    };
    // Whoever knew a former incarnation may send at once.
    loop {
        match tokio::time::timeout(PATIENCE, source.recv()).await.expect("a subscription") {
            Some(FeedItem::Message(FeedChannel::Inbox, bytes)) => inbox.take(bytes),
            first => break assert!(matches!(first, Some(FeedItem::Gap)), "{first:?}"),
        }
    }
    let routing = tokio::spawn(async move {
        while let Some(item) = source.recv().await {
            if let FeedItem::Message(FeedChannel::Inbox, bytes) = item {
                inbox.take(bytes);
            }
        }
    });
    ((stop, running), routing)
}
