//! A fleet that uses everything there is, as the users of the document.

use std::process::Command;
use std::time::Duration;

use maitred::agent::config::{Config, LineConfig};
use maitred::agent::{BackendAgent, Departure, Entering, Entry, ProxyAgent, Request, Setup, Source};
use maitred::envelope::{Keyring, Secret};
use maitred::ids::{LimitName, LineName, ObjectKey, ObjectKind};
use maitred::limit::Limit;
use maitred::node::LoadSample;
use maitred::route::{Keeper, KindOptions, ObjectRouter};
use redis::aio::MultiplexedConnection;

use super::document;
use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, SECRET, ZONE, config, lands, player, sees, transfer_of, zone};
use crate::fixtures::command::{Ran, maitred, run};
use crate::fixtures::routes::{Counter, inc, object};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

const PASSWORD: &str = "pw";
const OLD_SECRET: &str = "ISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0A=";

/// The names are those of the document.
pub struct Fleet {
    pub server: TestStore,
    pub proxy: ProxyAgent,
    pub backend: BackendAgent<Stock>,
    pub router: ObjectRouter,
    pub keeper: Keeper<Counter>,
    dir: tempfile::TempDir,
}

pub fn login() -> LineName {
    LineName::new("login").expect("a name")
}

pub fn island() -> ObjectKey {
    object("island:i1")
}

fn node(name: &str, role: &str, url: &str) -> Config {
    let mut config = config(name, role, url);
    config.tokens.ttl_ms = 600_000;
    config.selector.recent_picks.shared = true;
    let limit = Limit::new(1, 1_000, 60).expect("a limit");
    config.limits.insert(LimitName::new("command").expect("a name"), limit);
    config.lines.insert(login(), LineConfig { tick_ms: 100, reconnect_grace_ms: 600_000, ..LineConfig::default() });
    config
}

/// While the secret changes: a node signs again what the old one verifies, and walks over the keys for it.
fn setup(config: Config) -> Setup {
    let secret = |text| Secret::from_base64("TEST", text).expect("a secret");
    let keyring = Keyring::new(zone(), secret(SECRET), vec![secret(OLD_SECRET)]);
    Setup::with_keyring(config, keyring).expect("a config that is valid")
}

impl Fleet {
    /// On a store with the document's users, as its agent.
    pub async fn start() -> Self {
        let server = TestStore::start();
        let mut conn = server.conn().await;
        for words in document::users(PASSWORD) {
            let made: redis::RedisResult<String> = redis::cmd(&words[0]).arg(&words[1..]).query_async(&mut conn).await;
            made.unwrap_or_else(|error| panic!("{words:?}: {error}"));
        }
        let url = url_of(&server, "maitred-agent");
        let backend = setup(node("backend-7", "backend", &url));
        let backend = backend.backend(Stock::new(10, 5), LoadSample::default).expect("a backend");
        eventually("the backend joins", LIMIT, async || backend.agent().joined().await.ok()).await;
        let proxy = setup(node("proxy-1", "proxy", &url)).proxy(LoadSample::default).expect("a proxy");
        eventually("the proxy joins", LIMIT, async || proxy.agent().joined().await.ok()).await;
        let router = backend.agent().routes().expect("routes");
        let kind = ObjectKind::new("island").expect("a kind");
        let keeper = router.host(kind, Counter::new(KindOptions::default())).expect("a keeper");
        sees(&proxy, &[&backend]).await;
        let dir = tempfile::tempdir().expect("a directory");
        let file =
            "lines: {login: {}}\nstore: {commandTimeoutMs: 5000, connectTimeoutMs: 5000, operationTimeoutMs: 10000}\n";
        std::fs::write(dir.path().join("network.yml"), file).expect("the config is written");
        std::fs::write(dir.path().join("push.yml"), "dispatch: {maxRetries: 5}\n").expect("the push is written");
        Self { server, proxy, backend, router, keeper, dir }
    }

    /// Uses everything, and leaves a key of each kind behind: alice is under way with a token and admitted to the line, bob
    /// dropped from it, carol waits, and an island was saved.
    pub async fn live(&self) {
        let as_operator = |args: &[&str]| self.cli("maitred-operator", args).code(0);
        as_operator(&["kill", "on", "--node", "backend-7"]);
        as_operator(&["kill", "off", "--node", "backend-7"]);
        as_operator(&["kill", "off"]);
        as_operator(&["drain", "backend-7"]);
        as_operator(&["undrain", "backend-7"]);
        as_operator(&["config", "push", &self.file("push.yml")]);
        eventually("the fleet takes its orders", LIMIT, async || {
            let node = self.proxy.agent().directory().snapshot();
            let id = self.backend.agent().lease().id();
            let ready = node.get(id).is_some_and(|view| view.record.accepting && !view.record.kill);
            ready && !self.proxy.agent().control().is_draining(id) && !self.proxy.agent().control().is_killed(id)
        })
        .await;

        let asked = |name: &str| Request { source: Source::Command, ..Request::new(player(name)) };
        transfer_of(&self.proxy, asked("dora")).await;
        lands(&self.backend, "dora").await;
        transfer_of(&self.proxy, asked("alice")).await;

        let mut visit = self.enters("alice").await;
        if let Some(visit) = &mut visit {
            eventually("alice is admitted", LIMIT, async || {
                let mut conn = self.conn("maitred-reader").await;
                let key = format!("maitred:{{{ZONE}}}:pass:login:alice");
                redis::cmd("EXISTS").arg(key).query_async::<bool>(&mut conn).await.expect("EXISTS")
            })
            .await;
            assert_eq!(visit.player(), &player("alice"));
        }
        as_operator(&["queue", "login", "pause"]);
        for name in ["bob", "carol"] {
            assert!(self.enters(name).await.is_some(), "{name} waits while the line is paused");
        }
        self.proxy.left(&login(), &player("bob"), Departure::Dropped).await.expect("the store answers");

        inc(&self.router, &island(), "test", 0).await.expect("the island counts");
        self.keeper.save(&island()).await.expect("the island is saved");
        eventually("the picks are shared", LIMIT, async || self.has("picks").await).await;
    }

    async fn enters(&self, name: &str) -> Option<maitred::agent::Visit> {
        match self.proxy.enter(Entry::new(login(), player(name))).await.expect("the store answers") {
            Entering::Waiting(visit) => Some(visit),
            Entering::Admitted(_) => None,
            Entering::Full => panic!("the line is full"),
        }
    }

    pub async fn has(&self, name: &str) -> bool {
        let key = format!("maitred:{{{ZONE}}}:{name}");
        redis::cmd("EXISTS").arg(key).query_async(&mut self.server.conn().await).await.expect("EXISTS")
    }

    /// The path of a file beside the config.
    pub fn file(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// The binary as one of the users.
    pub fn cli(&self, user: &str, args: &[&str]) -> Ran {
        let mut command: Command = maitred(args);
        command.args(["--zone", ZONE, "--config", &self.file("network.yml")]);
        command.env("MAITRED_STORE", url_of(&self.server, user)).env("MAITRED_SECRET_ALSO", OLD_SECRET);
        run(command)
    }

    /// A connection of one of the users.
    pub async fn conn(&self, user: &str) -> MultiplexedConnection {
        let client = redis::Client::open(url_of(&self.server, user)).expect("a URL");
        tokio::time::timeout(Duration::from_secs(10), client.get_multiplexed_async_connection())
            .await
            .expect("the store answers")
            .expect("the user may connect")
    }
}

fn url_of(server: &TestStore, user: &str) -> String {
    server.url().replace("redis://", &format!("redis://{user}:{PASSWORD}@"))
}
