use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Duration, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::call::{MAX_PAUSE, retry_pauses};
use super::clock::boot_ms;
use super::connect::Store;
use super::keys::Key;
use crate::error::{Error, Result};

/// Messages that may wait for their reader. What comes on top of that is dropped, and the reader is told to read
/// everything again.
const BUFFER: usize = 4096;
/// How often an idle subscription is asked whether it still stands.
const PING_EVERY: Duration = Duration::from_millis(500);

/// Which channel something came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FeedChannel {
    /// `events:node`
    Node,
    /// `events:token`
    Token,
    /// `events:line`
    Line,
    /// `events:control`
    Control,
    /// `inbox:<this node>`
    Inbox,
}

/// What a feed tells its reader, in order.
#[derive(Debug)]
pub enum FeedItem {
    /// Subscribed, or subscribed again, or messages were dropped: whatever was heard before may have a gap, so read
    /// the truth again.
    Gap,
    /// The connection is lost; a [`Gap`](Self::Gap) follows once it is back.
    Down,
    /// A message.
    Message(FeedChannel, Vec<u8>),
}

/// Pub/sub on a connection of its own, reconnected for ever with jitter and at most 1 s between tries. Ends when its
/// token is cancelled; [`run`](Self::run) is owned by whoever spawns it.
#[derive(Debug, Clone)]
pub struct Feed {
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    live: AtomicBool,
    contact_boot_ms: AtomicU64,
    generation: AtomicU64,
    dropped: AtomicBool,
    /// How the last session began or ended: `None` while it stands.
    trouble: watch::Sender<Option<Error>>,
}

impl State {
    fn missed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

impl Feed {
    /// A feed and the end that it is read from.
    pub fn new() -> (Self, mpsc::Sender<FeedItem>, mpsc::Receiver<FeedItem>) {
        let (sender, receiver) = mpsc::channel(BUFFER);
        (Self { state: Arc::default() }, sender, receiver)
    }

    /// True while the subscription stands, as far as the last ping or message tells.
    pub fn is_live(&self) -> bool {
        self.state.live.load(Ordering::Acquire)
    }

    /// When the subscription was last known to stand, on [`boot_ms`]'s clock; 0 for never.
    pub fn contact_boot_ms(&self) -> u64 {
        self.state.contact_boot_ms.load(Ordering::Acquire)
    }

    /// The generation of what was heard: one more each time messages may have been missed. It counts before the subscription shows as live and before its
    /// reader is handed the [`FeedItem::Gap`], so that nobody takes a view for fresh in between.
    pub fn generation(&self) -> u64 {
        self.state.generation.load(Ordering::Acquire)
    }

    /// Waits for a subscription that stands. Errors as soon as a try fails, also where it failed before this was called;
    /// the feed tries again meanwhile. Cancel safe.
    pub async fn subscribed(&self) -> Result<()> {
        let mut trouble = self.state.trouble.subscribe();
        loop {
            if self.is_live() {
                return Ok(());
            }
            if let Some(error) = trouble.borrow_and_update().clone() {
                return Err(error);
            }
            if trouble.changed().await.is_err() {
                return Err(Error::ShuttingDown);
            }
        }
    }

    /// Subscribes to `channels` and keeps it so until `stop` is cancelled.
    pub async fn run(
        &self,
        store: Store,
        channels: Vec<(FeedChannel, String)>,
        sink: mpsc::Sender<FeedItem>,
        stop: CancellationToken,
    ) {
        let mut pauses = retry_pauses();
        loop {
            let session = self.session(&store, &channels, &sink);
            tokio::select! {
                () = stop.cancelled() => break,
                outcome = session => {
                    let was_live = self.state.live.swap(false, Ordering::AcqRel);
                    if let Err(error) = outcome {
                        tracing::debug!(%error, "subscription lost");
                        self.state.trouble.send_replace(Some(error));
                    }
                    metrics::counter!("maitred_feed_reconnects_total").increment(1);
                    if was_live {
                        pauses = retry_pauses();
                        let told = tokio::select! {
                            () = stop.cancelled() => break,
                            told = sink.send(FeedItem::Down) => told,
                        };
                        if told.is_err() {
                            break;
                        }
                    }
                }
            }
            let pause = pauses.next().unwrap_or(MAX_PAUSE);
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(pause) => {}
            }
        }
        self.state.live.store(false, Ordering::Release);
    }

    async fn session(
        &self,
        store: &Store,
        channels: &[(FeedChannel, String)],
        sink: &mpsc::Sender<FeedItem>,
    ) -> Result<()> {
        let during = "subscribing";
        let options = store.options();
        // One for each session: the late end of an earlier connection must not end this one.
        let lost = Arc::new(Notify::new());
        let mut connection = self.connect(store, channels, sink, Arc::clone(&lost)).await?;
        let names: Vec<&str> = channels.iter().map(|(_, name)| name.as_str()).collect();
        let subscribed = timeout(options.connect_timeout, connection.subscribe(&names)).await;
        subscribed.map_err(|_| late(store, during))?.map_err(|error| store.fault_at(during, &error, &names))?;
        self.touch();
        self.state.dropped.store(false, Ordering::Release);
        self.state.missed();
        self.state.live.store(true, Ordering::Release);
        self.state.trouble.send_replace(None);
        if sink.send(FeedItem::Gap).await.is_err() {
            return Ok(());
        }
        loop {
            tokio::select! {
                () = lost.notified() => {
                    return Err(store.unreachable("listening", "the connection was closed"));
                }
                () = sleep(PING_EVERY) => {}
            }
            if self.state.dropped.swap(false, Ordering::AcqRel) {
                metrics::counter!("maitred_feed_overflows_total").increment(1);
                self.state.missed();
                if sink.send(FeedItem::Gap).await.is_err() {
                    return Ok(());
                }
            }
            let ping = redis::cmd("PING");
            timeout(options.command_timeout, ping.exec_async(&mut connection))
                .await
                .map_err(|_| late(store, "listening"))?
                .map_err(|error| store.fault("listening", &error))?;
            self.touch();
        }
    }

    async fn connect(
        &self,
        store: &Store,
        channels: &[(FeedChannel, String)],
        sink: &mpsc::Sender<FeedItem>,
        lost: Arc<Notify>,
    ) -> Result<MultiplexedConnection> {
        let options = store.options();
        let state = Arc::clone(&self.state);
        let known = channels.to_vec();
        let sink = sink.clone();
        let push = move |info: PushInfo| -> std::result::Result<(), redis::aio::SendError> {
            match info.kind {
                PushKind::Disconnection => lost.notify_one(),
                PushKind::Message => {
                    if let Some((channel, payload)) = message_of(info.data, &known)
                        && sink.try_send(FeedItem::Message(channel, payload)).is_err()
                        && !state.dropped.swap(true, Ordering::AcqRel)
                    {
                        state.missed();
                    }
                }
                _ => {}
            }
            Ok(())
        };
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(options.command_timeout.max(options.connect_timeout)))
            .set_push_sender(push);
        store
            .client()
            .get_multiplexed_async_connection_with_config(&config)
            .await
            .map_err(|error| store.fault("subscribing", &error))
    }

    fn touch(&self) {
        self.state.contact_boot_ms.store(boot_ms(), Ordering::Release);
    }
}

fn late(store: &Store, during: &'static str) -> Error {
    store.unreachable(during, "no answer inside the timeout")
}

fn message_of(data: Vec<Value>, known: &[(FeedChannel, String)]) -> Option<(FeedChannel, Vec<u8>)> {
    let mut data = data.into_iter();
    let (Some(Value::BulkString(channel)), Some(Value::BulkString(payload))) = (data.next(), data.next()) else {
        return None;
    };
    let (kind, _) = known.iter().find(|(_, name)| name.as_bytes() == channel)?;
    Some((*kind, payload))
}

/// The text of a channel, as a feed wants it.
impl From<Key<'_>> for String {
    fn from(key: Key<'_>) -> Self {
        key.to_string()
    }
}
