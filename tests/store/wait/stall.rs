//! A store that stands still for longer than a lease.

use super::{line, served, wait_proxy, waits_for_any};
use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, backend, config, sees};
use maitred::ids::LineName;
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

// the backend that is back first must not put players away whose proxy is only as late as it was itself, nor serve
// those behind them.
#[tokio::test]
async fn r_43_a_backend_back_first_after_a_stall_serves_nobody_before_those_in_front() {
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    let stock = Stock::new(0, 0);
    let b1 = backend(config("b1", "backend", &store.url()), &stock).await;
    let (p1, p2) = (wait_proxy("p1", &wire.url()).await, wait_proxy("p2", &store.url()).await);
    sees(&p1, &[&b1]).await;
    sees(&p2, &[&b1]).await;
    let mut alice = waits_for_any(&p1, "alice").await;
    let mut bob = waits_for_any(&p2, "bob").await;
    let seen = line(&store.url(), LineName::wait()).await;

    let lease_ms = b1.agent().lease().length_ms();
    store.sigstop();
    wire.hold();
    eventually("every lease is over", LIMIT, async || {
        [p1.agent(), p2.agent(), b1.agent()].iter().all(|agent| !agent.lease().is_valid())
    })
    .await;
    tokio::time::sleep(std::time::Duration::from_millis(lease_ms / 4)).await;
    store.sigcont();
    eventually("b1 is back", LIMIT, async || b1.agent().lease().is_valid()).await;
    stock.restock(1);
    b1.restocked();
    let until = std::time::Instant::now() + std::time::Duration::from_millis(lease_ms / 3);
    while std::time::Instant::now() < until {
        assert_eq!(seen.view().await.expect("the store").away, 0, "b1 was back first, and judged");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    wire.resume();
    wire.pass();
    assert_eq!(served(&mut alice).await.player.as_str(), "alice", "she stood in front");
    stock.restock(1);
    b1.restocked();
    served(&mut bob).await;
}
