//! DSP-6 and DSP-7: who is sent where without being named, in a fleet with a lobby and in one without. If one of these
//! fails, players who connect are dropped, stand in the wrong place, or take a place that they have no right to.

use std::time::Duration;

use maitred::agent::config::Config;
use maitred::agent::{BackendAgent, Balanced, Outcome, ProxyAgent, Reason, Request, Source};
use maitred::node::{Load, LoadSample, NodeRecord};

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{
    LIMIT, config, id, key, lands, player, proxy, refused, region, sees, setup, transfer, transfer_of,
};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;

/// A backend whose ticks take `mspt` ms.
async fn busy(setting: Config, stock: &Stock, mspt: f64) -> BackendAgent<Stock> {
    let load = move || LoadSample { load: Load { mspt: Some(mspt), ..Load::default() }, ..LoadSample::default() };
    let backend = setup(setting).backend(stock.clone(), load).expect("a backend");
    eventually("the backend is a member", LIMIT, async || backend.agent().joined().await.ok()).await;
    backend
}

/// The kept places say b1, the load says b2.
struct Fleet {
    store: TestStore,
    shelves: [Stock; 2],
    b1: BackendAgent<Stock>,
    b2: BackendAgent<Stock>,
}

impl Fleet {
    async fn start() -> Self {
        let store = TestStore::start();
        let shelves = [Stock::new(9, 50), Stock::new(9, 5)];
        let b1 = busy(config("b1", "backend", &store.url()), &shelves[0], 90.0).await;
        let b2 = busy(config("b2", "backend", &store.url()), &shelves[1], 5.0).await;
        Self { store, shelves, b1, b2 }
    }

    async fn proxy(&self, name: &str, change: impl FnOnce(&mut Config)) -> ProxyAgent {
        let mut setting = config(name, "proxy", &self.store.url());
        // Who was asked before must not decide who is asked next.
        for metric in ["recentPicks", "proxyLatency"] {
            setting.selector.metrics.get_mut(metric).expect("a default").weight = 0.0;
        }
        change(&mut setting);
        let proxy = proxy(setting).await;
        sees(&proxy, &[&self.b1, &self.b2]).await;
        proxy
    }

    fn asked(&self) -> usize {
        self.shelves.iter().map(|stock| stock.asked().len()).sum()
    }
}

async fn server(proxy: &ProxyAgent, request: Request) -> String {
    transfer_of(proxy, request).await.server.to_string()
}

async fn balanced(proxy: &ProxyAgent, request: Request) -> Balanced {
    match proxy.dispatch(request).await {
        Outcome::Balanced(balanced) => balanced,
        other => panic!("not balanced: {other:?}"),
    }
}

fn row(proxy: &ProxyAgent, name: &str) -> Option<NodeRecord> {
    proxy.agent().directory().view_of(&id(name)).map(|view| (*view.record).clone())
}

#[tokio::test]
async fn dsp_6_a_bare_request_goes_by_kept_places_where_there_is_a_lobby_and_by_score_where_there_is_none() {
    let fleet = Fleet::start().await;
    let with_lobby = fleet.proxy("p1", |_| ()).await;
    let without = fleet.proxy("p2", |setting| setting.routing.lobby_mode = false).await;
    assert_eq!(server(&with_lobby, Request::new(player("ann"))).await, "b1");
    assert_eq!(server(&without, Request::new(player("bea"))).await, "b2");
    assert_eq!(fleet.shelves[0].asked()[0].region, Some(region("main")), "the region with the most kept places");
    assert_eq!(fleet.shelves[1].asked()[0].region, None, "any region");
    // What is named skips the pick: by score among those that serve the region, or the one server.
    assert_eq!(server(&with_lobby, Request::new(player("cat")).in_region(region("main"))).await, "b2");
    assert_eq!(server(&without, Request::new(player("dan")).on_server(id("b1"))).await, "b1");

    // The lobby itself: no regions whatever its load says, no new players, and the same pick under any config.
    let mut setting = config("l1", "backend", &fleet.store.url());
    setting.routing.lobby_mode = false;
    let load = || {
        let regions = [(region("hub"), Some(1_000))].into();
        LoadSample { load: Load { regions, ..Load::default() }, ..LoadSample::default() }
    };
    let lobby = setup(setting).lobby(load).expect("a lobby");
    eventually("the lobby is a member", LIMIT, async || lobby.agent().joined().await.ok()).await;
    sees(&lobby, &[&fleet.b1, &fleet.b2]).await;
    let shown = eventually("the proxy sees the lobby", LIMIT, async || row(&with_lobby, "l1")).await;
    assert_eq!((shown.role.as_str(), shown.accepting, shown.load.regions.len()), ("lobby", false, 0));
    let moved = transfer(&lobby, "eve").await;
    assert_eq!(moved.server.as_str(), "b1");
    lands(&fleet.b1, "eve").await;
    assert_eq!(server(&lobby, Request::new(player("fay")).on_server(id("b2"))).await, "b2");
    assert_eq!(server(&with_lobby, Request::new(player("gil"))).await, "b1", "the lobby is nobody's pick");
    assert_eq!(refused(&with_lobby, Request::new(player("hal")).on_server(id("l1"))).await.reason, Reason::NoCandidate);
}

#[tokio::test]
async fn dsp_6_with_nobody_who_publishes_kept_places_the_lobby_pick_is_none() {
    let store = TestStore::start();
    let silent = Stock::in_regions(9, 9, &[]);
    let b1 = busy(config("b1", "backend", &store.url()), &silent, 5.0).await;
    let p1 = proxy(config("p1", "proxy", &store.url())).await;
    sees(&p1, &[&b1]).await;
    let nobody = refused(&p1, Request::new(player("alice"))).await;
    assert_eq!((nobody.reason, nobody.reason.message_key()), (Reason::NoCandidate, "noCandidate"));
    assert!(nobody.detail.contains("b1: NoRegion"), "{}", nobody.detail);
    assert_eq!(server(&p1, Request::new(player("alice")).on_server(id("b1"))).await, "b1", "reached by name");
}

#[tokio::test]
async fn dsp_7_triggers_in_a_fleet_with_a_lobby() {
    let fleet = Fleet::start().await;
    let off = fleet.proxy("p1", |setting| setting.triggers.command = false).await;
    let on = fleet.proxy("p2", |setting| {
        (setting.triggers.join, setting.triggers.event) = (true, true);
        setting.texts.not_allowed = "members only".to_owned();
    });
    let on = on.await;
    let ask = |source| Request::new(player("alice")).from_source(source);
    for source in [Source::Command, Source::Join, Source::Event] {
        assert_eq!(refused(&off, ask(source)).await.reason, Reason::SourceOff, "{source:?}");
        let refusal = refused(&on, ask(source).without_right()).await;
        assert_eq!((refusal.reason, refusal.message.as_str()), (Reason::NotAllowed, "members only"), "{source:?}");
    }
    assert_eq!(fleet.asked(), 0, "nobody was asked for anybody");
    for (name, source) in [("ann", Source::Command), ("bea", Source::Join), ("cat", Source::Event)] {
        assert_eq!(server(&on, Request::new(player(name)).from_source(source)).await, "b1", "{source:?}");
    }
}

#[tokio::test]
async fn dsp_7_without_a_lobby_everybody_who_connects_is_sent_to_a_backend() {
    let mut fleet = Fleet::start().await;
    let p1 = fleet
        .proxy("p1", |setting| {
            setting.routing.lobby_mode = false;
            setting.triggers.first_join = true;
            setting.dispatch.stale_after_ms = 60_000;
            // Whoever waited for the store would wait for longer than is allowed below.
            (setting.store.operation_timeout_ms, setting.store.command_timeout_ms) = (20_000, 10_000);
            setting.texts.no_candidate = "the fleet is down".to_owned();
        })
        .await;
    let join = |name: &str| Request::new(player(name)).from_source(Source::Join);
    // The trigger is off, or the player has no right: a backend, and nothing else.
    for request in [join("ann"), join("ann").without_right(), join("ann").first_join().without_right()] {
        let wish = request.id.clone();
        let sent = balanced(&p1, request).await;
        assert_eq!((sent.server.as_str(), sent.addr.as_str()), ("b2", "b2.example:25565"));
        assert_eq!((sent.player, sent.request), (player("ann"), wish));
    }
    assert_eq!(fleet.asked(), 0, "no place was asked for");
    let mut conn = fleet.store.conn().await;
    let there: bool = redis::cmd("EXISTS").arg(key("token:ann")).query_async(&mut conn).await.unwrap();
    assert!(!there, "no token stands for them");
    assert!(matches!(fleet.b2.redeem(&player("ann")).await, Ok(maitred::agent::Redeemed::None)), "a normal join");
    // Only connections are mandatory.
    assert_eq!(refused(&p1, Request::new(player("ann")).without_right()).await.reason, Reason::NotAllowed);
    assert_eq!(refused(&p1, Request::new(player("ann")).from_source(Source::Event)).await.reason, Reason::SourceOff);
    // A first connection is placed; where it wants to go counts in both cases.
    assert_eq!(server(&p1, join("bea").first_join()).await, "b2");
    lands(&fleet.b2, "bea").await;
    assert_eq!(balanced(&p1, join("cat").on_server(id("b1"))).await.server, id("b1"));
    assert_eq!(balanced(&p1, join("dan").in_region(region("main"))).await.server, id("b2"));

    // SEL-7: nobody comes into question.
    let nobody = refused(&p1, join("eve").in_region(region("moon"))).await;
    assert_eq!((nobody.reason, nobody.message.as_str()), (Reason::NoCandidate, "the fleet is down"));

    // Nothing of it needs the store: who connects during an outage is somewhere all the same.
    fleet.store.kill();
    eventually("the lease is over", LIMIT, async || !p1.agent().lease().is_valid()).await;
    let began = std::time::Instant::now();
    assert_eq!(balanced(&p1, join("fay")).await.server, id("b2"));
    assert!(began.elapsed() < Duration::from_secs(5), "it waited for the store: {:?}", began.elapsed());
}
