//! Who says that others are dead. Whoever has just begun, or has just come back, cannot know: those that live have not had the
//! time to say so. If one of these fails, a stall of the store costs living proxies their claims and their players' places.

use std::time::Duration;

use maitred::agent::ProxyAgent;
use maitred::node::LoadSample;
use tokio::time::Instant;

use super::world::{World, end, line, lined, waits};
use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, key, sees, setup, transfer};
use maitred::agent::Update;
use maitred::agent::config::LineConfig;
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::wait::eventually;

/// Whoever is the first to speak to the store after its stall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    /// A proxy that was there before.
    Back,
    /// A process that begins only then.
    New,
}

// what the store's clock says of a node that could not reach the store is not that node's death.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_43_who_has_just_come_takes_nothing_from_one_that_comes_a_little_later() {
    for first in [First::Back, First::New] {
        let world = World::with(LineConfig { tick_ms: 100, ..line() });
        let wire = FaultProxy::start(&world.store);
        let late = world.proxy_at("p2", &wire.url()).await;
        let backend_config = lined("b1", "backend", &world.store.url(), &world.line);
        let load = || LoadSample { soft_cap: 10, ..LoadSample::default() };
        let backend = setup(backend_config).backend(Stock::new(9, 9), load).expect("a backend");
        sees(&late, &[&backend]).await;
        let _claimed = transfer(&late, "alice").await;
        backend.agent().set_accepting(false);
        eventually("the proxy sees that", LIMIT, async || !accepts(&late)).await;
        let mut visit = waits(&late, "bob").await;
        let mut other = None;
        if first == First::Back {
            other = Some(world.proxy("p1").await);
        }

        let lease = Duration::from_millis(late.agent().lease().length_ms());
        world.store.sigstop();
        wire.hold();
        eventually("its lease is over", LIMIT, async || !late.agent().lease().is_valid()).await;
        tokio::time::sleep(lease / 4).await;
        world.store.sigcont();
        let other = match other {
            Some(back) => back,
            None => world.proxy("p1").await,
        };
        eventually("the first one is there", LIMIT, async || other.agent().lease().is_valid()).await;
        backend.agent().set_accepting(true);
        eventually("it sees the backend", LIMIT, async || accepts(&other)).await;

        let (seen, mut conn) = (world.seen().await, world.conn().await);
        let until = Instant::now() + lease / 2;
        while Instant::now() < until {
            let state: String =
                redis::cmd("HGET").arg(key("token:alice")).arg("state").query_async(&mut conn).await.expect("HGET");
            assert_eq!(state, "CLAIMED", "{first:?}: the claim of a living proxy");
            assert_eq!(seen.view().await.expect("the store").away, 0, "{first:?}: the players of a living proxy");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        wire.resume();
        wire.pass();
        let heard = end(&mut visit).await;
        assert!(matches!(heard, Some(Update::Admitted(_))), "{first:?}: {heard:?}");
    }
}

/// What the proxy knows of the backend.
fn accepts(proxy: &ProxyAgent) -> bool {
    let id = crate::fixtures::agents::id("b1");
    proxy.agent().directory().view_of(&id).is_some_and(|view| view.record.accepting)
}
