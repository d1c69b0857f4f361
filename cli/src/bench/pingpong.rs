use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Failure;
use maitred::ids::NodeId;
use maitred::store::{Feed, FeedChannel, FeedItem, Store};

/// Longest wait for a subscription or for a message that was published.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Most trips at once.
const LANES: usize = 64;

/// A channel that this process listens on, until it is dropped.
pub(super) struct Subscription {
    items: mpsc::Receiver<FeedItem>,
    _stop: DropGuard,
}

impl Subscription {
    pub async fn open(store: &Store, channel: String) -> Result<Self, Failure> {
        let (feed, sink, mut items) = Feed::new();
        let stop = CancellationToken::new();
        let (store, stopped) = (store.clone(), stop.clone());
        tokio::spawn(async move { feed.run(store, vec![(FeedChannel::Inbox, channel)], sink, stopped).await });
        match timeout(WAIT_MAX, items.recv()).await {
            Ok(Some(FeedItem::Gap)) => Ok(Self { items, _stop: stop.drop_guard() }),
            _ => Err(Failure::Io("the store gives no subscription".to_owned())),
        }
    }

    /// The next message.
    pub async fn next(&mut self) -> Result<Vec<u8>, Failure> {
        loop {
            match timeout(WAIT_MAX, self.items.recv()).await {
                Ok(Some(FeedItem::Message(_, bytes))) => return Ok(bytes),
                Ok(Some(FeedItem::Gap | FeedItem::Down)) => {}
                Ok(None) | Err(_) => return Err(Failure::Io("a message of the bench did not arrive".to_owned())),
            }
        }
    }

    /// The next message, however long it takes; none once the feed has ended.
    async fn wait(&mut self) -> Option<Vec<u8>> {
        loop {
            if let FeedItem::Message(_, bytes) = self.items.recv().await? {
                return Some(bytes);
            }
        }
    }
}

/// The floor of a call: one message there, one back, of the same sizes and over the same connections, without names,
/// signatures or checks. The first two bytes say which trip it is. Cheap to clone; ends with the last clone.
#[derive(Clone)]
pub(super) struct PingPong {
    store: Store,
    there: NodeId,
    payload: Arc<[Vec<u8>]>,
    back: Arc<[Notify]>,
    _tasks: Arc<JoinSet<()>>,
}

impl PingPong {
    pub async fn start([near, far]: [&Store; 2], there_bytes: usize, back_bytes: usize) -> Result<Self, Failure> {
        let (there, home) = (NodeId::new("ping")?, NodeId::new("pong")?);
        let mut arrivals = Subscription::open(far, far.keys().inbox(&there).to_string()).await?;
        let mut returns = Subscription::open(near, near.keys().inbox(&home).to_string()).await?;
        let back: Arc<[Notify]> = (0..LANES).map(|_| Notify::new()).collect();
        let mut tasks = JoinSet::new();
        let store = far.clone();
        tasks.spawn(async move {
            while let Some(mut bytes) = arrivals.wait().await {
                let (store, home) = (store.clone(), home.clone());
                bytes.resize(back_bytes, b'x');
                tokio::spawn(async move {
                    // A lost answer shows as a trip that does not end.
                    let _ = store.publish(store.keys().inbox(&home), &bytes).await;
                });
            }
        });
        let lanes = Arc::clone(&back);
        tasks.spawn(async move {
            while let Some(bytes) = returns.wait().await {
                let lane = bytes.get(..2).and_then(|text| std::str::from_utf8(text).ok()?.parse::<usize>().ok());
                if let Some(lane) = lane.and_then(|lane| lanes.get(lane)) {
                    lane.notify_one();
                }
            }
        });
        let payload = (0..LANES).map(|lane| format!("{lane:02}{}", "x".repeat(there_bytes)).into_bytes());
        let payload = payload.map(|mut bytes| {
            bytes.truncate(there_bytes.max(2));
            bytes
        });
        Ok(Self { store: near.clone(), there, payload: payload.collect(), back, _tasks: Arc::new(tasks) })
    }

    /// There and back.
    pub async fn trip(self, lane: usize) -> Result<(), Failure> {
        let (Some(payload), Some(back)) = (self.payload.get(lane), self.back.get(lane)) else {
            return Err(Failure::Io(format!("the bench has {LANES} lanes")));
        };
        self.store.publish(self.store.keys().inbox(&self.there), payload).await?;
        timeout(WAIT_MAX, back.notified()).await.map_err(|error| Failure::io("waiting for a bare message", &error))
    }
}
