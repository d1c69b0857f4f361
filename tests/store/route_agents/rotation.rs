//! R-29 for routes and objects: the secret of a fleet changes in three rolls. If this fails islands that nobody visited
//! meanwhile are lost with the old secret.

use maitred::agent::{Agent, Setup};
use maitred::envelope::{Keyring, Secret};
use maitred::ids::ObjectKey;
use maitred::node::LoadSample;
use maitred::route::{Keeper, KindOptions, ObjectRouter, SignedBefore, signed_before};
use maitred::store::Verifier;

use crate::fixtures::agents::{LIMIT, SECRET as OLD, config, zone};
use crate::fixtures::member::CALL;
use crate::fixtures::routes::{Counter, counter, inc, object};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

const NEW: &str = "ISIjJCUmJygpKissLS4vMDEyMzQ1Njc4OTo7PD0+P0A=";
const NAMES: [&str; 3] = ["b1", "b2", "b3"];

fn keyring(signs: &str, also: &[&str]) -> Keyring {
    let secret = |text: &str| Secret::from_base64("TEST", text).unwrap();
    Keyring::new(zone(), secret(signs), also.iter().map(|text| secret(text)).collect())
}

struct Node {
    agent: Agent,
    router: ObjectRouter,
    keeper: Keeper<Counter>,
}

impl Node {
    /// Dropping it is a crash.
    async fn start(url: &str, name: &str, signs: &str, also: &[&str]) -> Self {
        let mut config = config(name, "backend", url);
        config.directory.refresh_ms = 300;
        config.routes.free_ms = 600_000;
        let agent = Setup::with_keyring(config, keyring(signs, also)).unwrap().node(LoadSample::default).unwrap();
        let router = agent.routes().unwrap();
        let keeper = router.host(counter(), Counter::new(KindOptions::default())).unwrap();
        eventually("a member", LIMIT, async || agent.joined().await.ok()).await;
        agent.beat_now();
        Self { agent, router, keeper }
    }
}

async fn roll(url: &str, nodes: &mut Vec<Node>, signs: &str, also: &[&str]) {
    for name in NAMES {
        // It crashes, so what it owned stays its own.
        drop(nodes.remove(0));
        nodes.push(Node::start(url, name, signs, also).await);
        assert_eq!(nodes.last().unwrap().agent.lease().id().as_str(), name);
        acquainted(nodes).await;
    }
}

/// Waits until everybody sees everybody in their present epoch.
async fn acquainted(nodes: &[Node]) {
    for node in nodes {
        eventually("a node sees the others", LIMIT, async || {
            nodes.iter().all(|other| {
                let (id, epoch) = (other.agent.lease().id(), other.agent.lease().epoch());
                node.agent.directory().view_of(id).is_some_and(|view| view.record.epoch == epoch)
            })
        })
        .await;
    }
}

async fn left(node: &Node, signs: &str) -> SignedBefore {
    signed_before(node.agent.store(), &Verifier::new(keyring(signs, &[])), 1_000).await.unwrap()
}

async fn write(node: &Node, key: &ObjectKey) {
    node.keeper.acquire(key).await.unwrap();
    node.keeper.with(key, |count| (count.value += 1, true)).await.unwrap();
    node.keeper.save(key).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_29_routes_and_objects_are_signed_again_before_the_old_secret_is_dropped() {
    let server = TestStore::start();
    let url = server.url();
    let mut nodes = Vec::new();
    for name in NAMES {
        nodes.push(Node::start(&url, name, OLD, &[]).await);
    }
    let (own, free, gone) = (object("counter:own"), object("counter:free"), object("counter:gone"));
    let lost = Node::start(&url, "b9", OLD, &[]).await;
    for (node, key) in [(&nodes[0], &own), (&nodes[1], &free), (&lost, &gone)] {
        write(node, key).await;
    }
    nodes[1].keeper.release(&free).await.unwrap();
    // An object that nobody owns and that has no record any more: no index names it.
    let bytes = object("counter:bytes");
    write(&nodes[1], &bytes).await;
    nodes[1].keeper.release(&bytes).await.unwrap();
    let mut conn = server.conn().await;
    let name = nodes[1].agent.store().keys().route(&bytes).to_string();
    let _: i64 = redis::cmd("DEL").arg(name).query_async(&mut conn).await.unwrap();
    drop(lost);

    roll(&url, &mut nodes, OLD, &[NEW]).await;
    assert_eq!(left(&nodes[0], OLD).await, SignedBefore { looked_at: 7, old: 0, strange: 0, whole: true });
    let new = left(&nodes[0], NEW).await;
    assert_eq!((new.old, new.strange), (7, 7), "who knows the new one alone believes none of them");
    roll(&url, &mut nodes, NEW, &[OLD]).await;
    eventually("nothing is left that only the old secret verifies", LIMIT, async || {
        left(&nodes[0], NEW).await.old == 0
    })
    .await;
    roll(&url, &mut nodes, NEW, &[]).await;

    for key in [&own, &free, &gone, &bytes] {
        // Their owners are over, in part a moment ago.
        let node = &nodes[0];
        eventually("it is taken over", LIMIT, async || inc(&node.router, key, "s", 1).await.is_ok()).await;
        let value: u64 = node.router.call_json(key, "get", &(), CALL).await.unwrap();
        assert_eq!(value, 2, "{key}");
    }
    for node in &nodes {
        let counts = node.agent.verifier().audit().counts();
        assert!(counts.iter().all(|(_, count)| *count == 0), "{:?}: {counts:?}", node.agent);
    }
}
