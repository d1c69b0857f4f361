//! Stores that refuse, each in its own way.

use std::time::Duration;

use maitred::error::StoreRefusal;
use maitred::ids::Zone;
use maitred::store::{Store, StoreOptions, StoreUrl};
use maitred::token::BookOptions;
use redis::aio::MultiplexedConnection;
use tokio::task::JoinHandle;

use crate::fixtures::command::{CliFixture, backend};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

const LIMIT: Duration = Duration::from_secs(20);

/// A store in trouble with an overdue token of `alice` on `b1`, and everybody's rights.
pub struct Trouble {
    pub fixture: CliFixture,
    pub b1: maitred::ids::NodeEpoch,
    /// With the rights of whoever is refused.
    pub url: String,
    held: Option<JoinHandle<()>>,
}

/// What is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Full,
    ReadOnly,
    MasterDown,
    NoReplicas,
    Loading,
    Busy,
    WrongType,
    NoEvalsha,
    NoKeys,
    NoChannels,
    WrongPassword,
}

impl State {
    pub const ALL: [Self; 11] = [
        Self::Full,
        Self::ReadOnly,
        Self::MasterDown,
        Self::NoReplicas,
        Self::Loading,
        Self::Busy,
        Self::WrongType,
        Self::NoEvalsha,
        Self::NoKeys,
        Self::NoChannels,
        Self::WrongPassword,
    ];

    pub fn refusal(self) -> StoreRefusal {
        match self {
            Self::Full => StoreRefusal::OutOfMemory,
            Self::ReadOnly => StoreRefusal::ReadOnly,
            Self::MasterDown | Self::NoReplicas => StoreRefusal::NoReplicas,
            Self::Loading => StoreRefusal::Loading,
            Self::Busy => StoreRefusal::BusyScript,
            Self::WrongType => StoreRefusal::WrongType,
            Self::NoEvalsha | Self::NoKeys | Self::NoChannels => StoreRefusal::Denied,
            Self::WrongPassword => StoreRefusal::Unauthenticated,
        }
    }

    /// Whether waiting can help without anybody's hand.
    pub fn passes(self) -> bool {
        !matches!(self, Self::WrongType | Self::NoEvalsha | Self::NoKeys | Self::NoChannels | Self::WrongPassword)
    }
}

impl Trouble {
    pub async fn new(state: State) -> Self {
        let args: &[&str] = match state {
            // It looks at its clients after every key of what it loads.
            State::Loading => &[
                "--enable-debug-command",
                "yes",
                "--rdbcompression",
                "no",
                "--loading-process-events-interval-bytes",
                "1024",
            ],
            _ => &[],
        };
        let times = BookOptions { ttl_ms: 40, ..BookOptions::default() };
        let fixture = CliFixture::on(TestStore::with_args(args), "", times).await;
        let (_membership, b1) = fixture.join(backend("b1")).await;
        let token = fixture.issue(&b1, "alice", "{}").await;
        eventually("the token is over", LIMIT, async || {
            fixture.store.sync_clock().await.expect("the clock");
            fixture.store.clock().now_ms() > token.expires_at_ms
        })
        .await;
        let url = fixture.server.url();
        let mut trouble = Self { fixture, b1, url, held: None };
        trouble.begin(state).await;
        trouble
    }

    async fn begin(&mut self, state: State) {
        let fixture = &self.fixture;
        match state {
            State::Full => fixture.by_hand(&["CONFIG", "SET", "maxmemory", "1"]).await,
            State::ReadOnly => fixture.by_hand(&["REPLICAOF", "127.0.0.1", "1"]).await,
            State::MasterDown => {
                fixture.by_hand(&["CONFIG", "SET", "replica-serve-stale-data", "no"]).await;
                fixture.by_hand(&["REPLICAOF", "127.0.0.1", "1"]).await;
            }
            State::NoReplicas => fixture.by_hand(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await,
            State::Loading => {
                let fill = "for i = 1, 6000 do redis.call('SET', 'filler:' .. i, string.rep('x', 1024)) end";
                fixture.by_hand(&["EVAL", fill, "0"]).await;
                // Read back so slowly that nobody waits for the end: the store goes with the test.
                fixture.by_hand(&["CONFIG", "SET", "key-load-delay", "3000"]).await;
                self.hold(&["DEBUG", "RELOAD"], "LOADING").await;
            }
            State::Busy => {
                fixture.by_hand(&["CONFIG", "SET", "busy-reply-threshold", "20"]).await;
                self.hold(&["EVAL", "while true do end", "0"], "BUSY").await;
            }
            State::WrongType => {
                for key in ["token:bob", "roles", "due"] {
                    let key = format!("maitred:{{eu}}:{key}");
                    fixture.by_hand(&["DEL", &key]).await;
                    fixture.by_hand(&["SET", &key, "x"]).await;
                }
            }
            State::NoEvalsha => self.as_user(&["+@all", "-evalsha", "~*", "&*"]).await,
            State::NoKeys => self.as_user(&["+@all", "~other:*", "&*"]).await,
            State::NoChannels => self.as_user(&["+@all", "~*", "resetchannels", "&other:*"]).await,
            State::WrongPassword => {
                fixture.by_hand(&["ACL", "SETUSER", "op", "on", ">right", "+@all", "~*", "&*"]).await;
                self.url = self.fixture.server.url().replace("redis://", "redis://op:pw@");
            }
        }
    }

    async fn as_user(&mut self, rights: &[&str]) {
        let words = [&["ACL", "SETUSER", "op", "on", ">pw"], rights].concat();
        self.fixture.by_hand(&words).await;
        self.url = self.fixture.server.url().replace("redis://", "redis://op:pw@");
    }

    /// Sends a command that never ends, and waits until everybody else is told so.
    async fn hold(&mut self, command: &[&str], word: &str) {
        let mut conn = self.fixture.conn().await;
        let mut call = redis::cmd(command[0]);
        call.arg(&command[1..]);
        self.held = Some(tokio::spawn(async move {
            let _: redis::RedisResult<redis::Value> = call.query_async(&mut conn).await;
        }));
        let mut look: MultiplexedConnection = self.fixture.conn().await;
        eventually("the store is busy with itself", LIMIT, async || {
            let pong: redis::RedisResult<String> = redis::cmd("PING").query_async(&mut look).await;
            pong.is_err_and(|error| error.to_string().to_uppercase().contains(word) || error.code() == Some(word))
        })
        .await;
    }

    /// A handle with short times, with the rights of whoever is refused. Nothing is asked yet.
    pub fn store(&self) -> Store {
        let options = StoreOptions {
            command_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(2),
            operation_timeout: Duration::from_millis(500),
            ..StoreOptions::new(StoreUrl::parse(&self.url).expect("valid"))
        };
        Store::new(Zone::new("eu").expect("valid"), options).expect("a handle")
    }
}

impl Drop for Trouble {
    fn drop(&mut self) {
        if let Some(held) = &self.held {
            held.abort();
        }
    }
}
