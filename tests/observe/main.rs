//! OBS-1: what an operator's dashboards and traces are made of. If one of these fails, the fleet still works and nobody
//! can see why it is slow.

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod recorder;
mod spans;

use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, SECRET, backend, config, key, lands, proxy, sees, transfer};
use maitred_testkit::fault::{Action, FaultProxy};
use maitred_testkit::store::TestStore;
use maitred_testkit::wait::eventually;
use recorder::Metrics;
use spans::Spans;

#[tokio::test]
async fn obs_1_one_players_way_shows_in_the_metrics() {
    let (metrics, _alone) = Metrics::alone().await;
    let store = TestStore::start();
    let stock = Stock::new(9, 9);
    let wire = FaultProxy::start(&store);
    let b1 = backend(config("b1", "backend", &wire.url()), &stock).await;
    let p1 = proxy(config("p1", "proxy", &store.url())).await;
    sees(&p1, &[&b1]).await;
    transfer(&p1, "alice").await;
    lands(&b1, "alice").await;
    let mut conn = store.conn().await;
    let () = redis::cmd("PUBLISH").arg(key("events:node")).arg("9:maitred/1,").query_async(&mut conn).await.unwrap();

    for (script, answer, transition) in
        [("issue", "ISSUED", "issue"), ("claim", "CLAIMED", "claim"), ("consume", "CONSUMED", "consume")]
    {
        let labels = format!("{{script=token/{script},answer={answer}}}");
        assert_eq!(metrics.count(&format!("maitred_script_calls_total{labels}")), 1.0, "{:#?}", metrics.texts());
        let took = metrics.values(&format!("maitred_script_seconds{labels}"));
        assert!(matches!(took[..], [seconds] if seconds > 0.0 && seconds < LIMIT.as_secs_f64()), "{took:?}");
        let tokens = format!("maitred_tokens_total{{transition={transition},answer={answer}}}");
        assert_eq!(metrics.count(&tokens), 1.0);
    }
    assert_eq!(metrics.count("maitred_places_promised_total"), 1.0);
    assert_eq!(metrics.count("maitred_dispatches_total{outcome=transfer}"), 1.0);
    for kind in ["call", "reply"] {
        for way in ["sent", "received"] {
            assert_eq!(metrics.count(&format!("maitred_messages_{way}_total{{kind={kind}}}")), 1.0, "{kind} {way}");
        }
    }
    eventually("beats go out and come in", LIMIT, async || {
        metrics.count("maitred_beats_sent_total") > 2.0 && metrics.count("maitred_beats_received_total") > 2.0
    })
    .await;
    eventually("the forged beat is counted by its reason", LIMIT, async || {
        metrics.count("maitred_audit_drops_total{reason=missing_signature}") > 0.0
    })
    .await;
    eventually("the age of each node's last beat is told", LIMIT, async || {
        ["b1", "p1"].iter().all(|node| {
            let age = metrics.values(&format!("maitred_node_beat_age_seconds{{node={node}}}"));
            age.first().is_some_and(|age| (0.0..LIMIT.as_secs_f64()).contains(age))
        })
    })
    .await;
    // The age goes on for a node that fell silent: what an alert is set on.
    wire.refuse(true);
    wire.cut_all();
    eventually("the age of a dead node's beat grows", LIMIT, async || {
        metrics.count("maitred_node_beat_age_seconds{node=b1}") > 3.0
    })
    .await;
    wire.refuse(false);
    eventually("it is heard again", LIMIT, async || metrics.count("maitred_node_beat_age_seconds{node=b1}") < 1.5)
        .await;
    b1.leave().await;
    eventually("nobody waits for the beat of a node that left", LIMIT, async || {
        metrics.count("maitred_node_beat_age_seconds{node=b1}").is_nan()
    })
    .await;
}

#[tokio::test]
async fn obs_1_a_broken_wire_shows_as_retries_reloads_and_reconnects() {
    let (metrics, _alone) = Metrics::alone().await;
    let store = TestStore::start();
    let wire = FaultProxy::start(&store);
    let p1 = proxy(config("p2", "proxy", &wire.url())).await;
    eventually("its subscription stands", LIMIT, async || !p1.agent().directory().is_stale()).await;
    let reconnects = ["maitred_store_reconnects_total", "maitred_feed_reconnects_total"];
    let before = reconnects.map(|name| metrics.count(name));
    wire.cut_all();
    eventually("both connections are back, and counted", LIMIT, async || {
        reconnects.iter().zip(before).all(|(name, before)| metrics.count(name) > before)
    })
    .await;
    wire.drop_next_reply_of("EVALSHA", Action::Cut);
    eventually("a repeated beat is counted", LIMIT, async || {
        metrics.count("maitred_script_retries_total{script=node/beat}") > 0.0
            && metrics.count("maitred_script_calls_total{script=node/beat,answer=UNREACHABLE}") > 0.0
    })
    .await;
    let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut store.conn().await).await.unwrap();
    eventually("a script that was loaded again is counted", LIMIT, async || {
        metrics.count("maitred_script_reloads_total{script=node/beat}") > 0.0
    })
    .await;
    p1.leave().await;
}

#[tokio::test]
async fn obs_1_a_dispatch_is_one_trace_without_payloads_and_secrets() {
    let spans = Spans::installed();
    let (_, _alone) = Metrics::alone().await;
    let store = TestStore::start();
    let stock = Stock::new(9, 9);
    let b1 = backend(config("b3", "backend", &store.url()), &stock).await;
    let p1 = proxy(config("p3", "proxy", &store.url())).await;
    sees(&p1, &[&b1]).await;
    let moved = transfer(&p1, "carol").await;
    lands(&b1, "carol").await;

    let one = |name: &str| {
        let (field, value) = if name == "call" { ("to", "b3:places") } else { ("player", "carol") };
        let found = spans.ended(name, field, value);
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        found.into_iter().next().unwrap()
    };
    let dispatch = one("dispatch");
    assert_eq!(dispatch.fields["outcome"], "transfer");
    assert_eq!(dispatch.fields["request"], moved.request.as_str());
    let call = one("call");
    assert_eq!((call.fields["method"].as_str(), call.inside.as_slice()), ("reserve", ["dispatch"].as_slice()));
    let claim = one("claim");
    assert_eq!((claim.fields["answer"].as_str(), claim.inside.as_slice()), ("CLAIMED", ["dispatch"].as_slice()));
    for (name, answer) in [("issue", "ISSUED"), ("consume", "CONSUMED")] {
        let span = one(name);
        assert_eq!((span.fields["answer"].as_str(), span.fields["server"].as_str()), (answer, "b3"));
        assert_eq!(span.fields["token"], moved.token.id.as_str());
    }
    let payload = moved.payload().to_string();
    assert!(payload.contains("\"x\""));
    for text in spans.texts() {
        assert!(!text.contains(&payload) && !text.contains(SECRET), "{text}");
    }
}
