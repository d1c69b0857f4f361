//! The configured list: order, what is passed over, one deadline, what is never tried again.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use maitred::place::{Absence, AttemptEnd, LoginRoute, Origin, Registry, Why};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use super::{Names, PATIENT, ends, list, name, placed, try_place, unplaced};
use crate::fixtures::listener::{Backend, Blackhole, Closed};
use maitred_testkit::wait::eventually;

// PLC-1, PLC-2: registered backends are there, and none of them is chosen by anybody.
#[tokio::test]
async fn plc_2_table_row_1_an_empty_list_refuses_and_never_picks_whoever_is_registered() {
    let backend = Backend::start().await;
    let registry = Registry::new();
    registry.set_static([(name("a"), backend.text())]);
    registry.register(name("b"), backend.text());
    let refused = unplaced(&registry, &LoginRoute::new(list(&[])), PATIENT).await;
    assert_eq!((&refused.why, refused.attempts.len()), (&Why::NoServers, 0));
    assert_eq!(refused.to_string(), "no entry server is configured");
    assert_eq!(backend.connections(), 0);
}

#[tokio::test]
async fn plc_4_the_candidates_are_tried_in_the_order_of_the_list() {
    let (a, b) = (Backend::start().await, Backend::start().await);
    let registry = Registry::new();
    // Neither the order of registration nor that of the names decides.
    registry.register(name("a"), a.text());
    registry.set_static([(name("b"), b.text())]);
    let placed = placed(&registry, &LoginRoute::new(list(&["b", "a"]))).await;
    assert_eq!(placed.registration, registry.resolve(&name("b")).expect("registered"));
    assert_eq!((placed.registration.origin, placed.passed.len()), (Origin::Static, 0));
    assert_eq!(placed.stream.peer_addr().expect("connected"), b.addr);
    drop(placed);
    assert_eq!((b.closed(1).await, a.connections()), (Vec::new(), 0), "one connection, no byte");
}

// PLC-4
#[tokio::test]
async fn plc_4_table_row_3_a_candidate_that_is_missing_or_unregistered_is_passed_over() {
    let (gone, there) = (Backend::start().await, Backend::start().await);
    let registry = Registry::new();
    let handle = registry.register(name("gone"), gone.text());
    registry.register(name("there"), there.text());
    assert!(handle.unregister());
    let placed = placed(&registry, &LoginRoute::new(list(&["never was", "gone", "there"]))).await;
    assert_eq!(placed.registration.name.as_str(), "there");
    let missing = AttemptEnd::Absent(Absence::Missing);
    assert_eq!(ends(&placed.passed), [("never was", &missing), ("gone", &missing)]);
    assert_eq!(gone.connections(), 0);
}

// PLC-4: every way in which a candidate cannot be reached, before one that can.
#[tokio::test]
async fn plc_4_table_row_4_bad_addresses_and_failures_of_dns_and_tcp_lead_to_the_next() {
    let (closed, good) = (Closed::new(), Backend::start().await);
    let registry = Registry::new();
    let unresolved = format!("missing.invalid:{}", good.addr.port());
    registry.set_static([
        (name("bad"), "no address".to_owned()),
        (name("dns"), unresolved),
        (name("nobody"), "nobody.example:1".to_owned()),
        (name("boom"), "boom.example:1".to_owned()),
        (name("tcp"), closed.addr.to_string()),
        (name("named"), "good.example:1".to_owned()),
    ]);
    let addr = good.addr;
    let names = Names::new(move |host: String| {
        std::future::ready(match host.as_str() {
            "good.example" => Ok(vec![addr]),
            "nobody.example" => Ok(Vec::new()),
            "boom.example" => panic!("the table is broken"),
            _ => Err(io::Error::new(io::ErrorKind::NotFound, "no such host")),
        })
    });
    let route = LoginRoute::new(list(&["bad", "dns", "nobody", "boom", "tcp", "named"])).with_resolver(names.clone());
    let placed = placed(&registry, &route).await;
    assert_eq!(placed.registration.name.as_str(), "named");
    let said: Vec<String> = placed.passed.iter().map(ToString::to_string).collect();
    for (line, parts) in said.iter().zip([
        ["\"bad\" at \"no address\" (static 1)", "no host:port"],
        ["\"dns\"", "not resolved: no such host"],
        ["\"nobody\"", "not resolved: no address"],
        ["\"boom\"", "not resolved: the resolver panicked: the table is broken"],
        ["\"tcp\"", "not connected: 127.0.0.1:"],
    ]) {
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
    }
    assert_eq!(said.len(), 5);
    assert_eq!(names.asked(), ["missing.invalid", "nobody.example", "boom.example", "good.example"], "no IP address");
}

// PLC-4: by the system's own resolver; the name is reserved for never being there.
#[tokio::test]
async fn plc_4_table_row_4_the_system_resolver_finds_localhost_and_no_invalid_name() {
    let good = Backend::start().await;
    let registry = Registry::new();
    registry.set_static([
        (name("dns"), format!("maitred-test.invalid:{}", good.addr.port())),
        (name("local"), format!("localhost:{}", good.addr.port())),
    ]);
    let placed = placed(&registry, &LoginRoute::new(list(&["dns", "local"]))).await;
    assert_eq!(placed.registration.name.as_str(), "local");
    assert!(matches!(ends(&placed.passed)[..], [("dns", AttemptEnd::Dns { .. })]), "{:?}", placed.passed);
}

// PLC-3, PLC-4: a host that swallows every packet takes its share, not the time of those after it.
#[tokio::test]
async fn plc_3_table_row_4_a_candidate_that_hangs_leaves_time_for_the_next() {
    let (hole, good) = (Blackhole::start().await, Backend::start().await);
    let registry = Registry::new();
    registry.set_static([(name("hole"), hole.addr.to_string()), (name("good"), good.text())]);
    let route = LoginRoute::new(list(&["hole", "good"]));
    let placed = try_place(&registry, &route, Duration::from_secs(3)).await.expect("placed");
    assert_eq!(ends(&placed.passed), [("hole", &AttemptEnd::TimedOut)]);
    assert_eq!(placed.registration.name.as_str(), "good");
    if let Some(connecting) = hole.connecting() {
        assert_eq!(connecting, 0, "the try that was given up is closed");
    }
}

// PLC-3: several addresses of one name, inside the same time: a refusal leads on at once, silence after a moment.
#[tokio::test]
async fn plc_3_several_addresses_of_one_name_are_tried_inside_the_same_time() {
    let (hole, closed, good) = (Blackhole::start().await, Closed::new(), Backend::start().await);
    let registry = Registry::new();
    registry.set_static([(name("many"), "many.example:1".to_owned())]);
    let addresses = vec![closed.addr, hole.addr, good.addr];
    let names = Names::new(move |_| std::future::ready(Ok(addresses.clone())));
    let reached = placed(&registry, &LoginRoute::new(list(&["many"])).with_resolver(names)).await;
    assert_eq!(reached.stream.peer_addr().expect("connected"), good.addr);
    if let Some(connecting) = hole.connecting() {
        assert_eq!(connecting, 0, "the slower address is closed");
    }
    // None of them: each says why.
    let other = Closed::new();
    let addresses: Vec<SocketAddr> = vec![closed.addr, other.addr];
    let names = Names::new(move |_| std::future::ready(Ok(addresses.clone())));
    let refused = unplaced(&registry, &LoginRoute::new(list(&["many"])).with_resolver(names), PATIENT).await;
    let said = refused.to_string();
    assert!(said.contains(&closed.addr.to_string()) && said.contains(&other.addr.to_string()), "{said}");
}

/// Places over `moving`, whose registration `change` changes while it is connected to, then `next`.
async fn changed(change: impl Fn(&Registry) + Send + Sync + 'static) -> (AttemptEnd, Vec<u8>) {
    let (moving, next) = (Backend::start().await, Backend::start().await);
    let registry = Registry::new();
    registry.set_static([(name("moving"), "moving.example:1".to_owned()), (name("next"), next.text())]);
    let (addr, known) = (moving.addr, registry.clone());
    let names = Names::new(move |_| {
        change(&known);
        std::future::ready(Ok(vec![addr]))
    });
    let placed = placed(&registry, &LoginRoute::new(list(&["moving", "next"])).with_resolver(names)).await;
    assert_eq!(placed.registration.name.as_str(), "next");
    assert_eq!(placed.passed.len(), 1);
    (placed.passed[0].end.clone(), moving.closed(1).await)
}

// PLC-5: whoever has the name now is not who was connected to, and would read a stranger's login.
#[tokio::test]
async fn plc_5_table_row_5_a_registration_that_changed_while_connecting_gets_no_byte() {
    let again = |registry: &Registry| {
        registry.register(name("moving"), "moving.example:1");
    };
    let moved = |registry: &Registry| {
        let next = registry.resolve(&name("next")).expect("there").addr;
        registry.set_static([(name("moving"), "elsewhere.example:1".to_owned()), (name("next"), next)]);
    };
    let removed = |registry: &Registry| {
        let next = registry.resolve(&name("next")).expect("there").addr;
        registry.set_static([(name("next"), next)]);
    };
    let (end, bytes) = changed(again).await;
    let AttemptEnd::Changed { now: Ok(now) } = &end else { panic!("{end}") };
    assert_eq!((now.origin, now.addr.as_str()), (Origin::Registered, "moving.example:1"), "another generation");
    assert_eq!(bytes, b"");
    let (end, bytes) = changed(moved).await;
    assert!(matches!(&end, AttemptEnd::Changed { now: Ok(now) } if now.addr == "elsewhere.example:1"), "{end}");
    assert_eq!(bytes, b"");
    let (end, bytes) = changed(removed).await;
    assert_eq!((end, bytes.as_slice()), (AttemptEnd::Changed { now: Err(Absence::Missing) }, &b""[..]));
}

#[tokio::test]
async fn plc_4_table_row_6_where_all_failed_each_says_why() {
    let closed = Closed::new();
    let registry = Registry::new();
    registry.set_static([(name("bad"), "x".to_owned()), (name("tcp"), closed.addr.to_string())]);
    let refused = unplaced(&registry, &LoginRoute::new(list(&["not there", "bad", "tcp"])), PATIENT).await;
    assert_eq!(refused.why, Why::AllFailed);
    let found = ends(&refused.attempts);
    assert_eq!(found[..2], [("not there", &AttemptEnd::Absent(Absence::Missing)), ("bad", &AttemptEnd::BadAddress)]);
    assert!(matches!(found[2..], [("tcp", AttemptEnd::Tcp { .. })]), "{found:?}");
}

// PLC-3: one deadline for all candidates together, not one for each.
#[tokio::test]
async fn plc_3_table_row_6_one_deadline_ends_it_whatever_is_under_way() {
    let hole = Blackhole::start().await;
    let registry = Registry::new();
    registry.set_static([(name("slow"), "slow.example:1".to_owned()), (name("hole"), hole.addr.to_string())]);
    let names = Names::new(|_| std::future::pending());
    let route = LoginRoute::new(list(&["slow", "hole"])).with_resolver(names);
    let begin = Instant::now();
    let refused = unplaced(&registry, &route, Duration::from_secs(1)).await;
    assert!(begin.elapsed() >= Duration::from_secs(1));
    assert_eq!(refused.why, Why::DeadlineOver);
    assert_eq!(ends(&refused.attempts), [("slow", &AttemptEnd::TimedOut), ("hole", &AttemptEnd::Abandoned)]);
    // A deadline that is over already: nobody is connected to, however near.
    let near = Backend::start().await;
    registry.set_static([(name("near"), near.text())]);
    let refused = unplaced(&registry, &LoginRoute::new(list(&["near", "other"])), Duration::ZERO).await;
    assert_eq!(refused.why, Why::DeadlineOver);
    assert_eq!(ends(&refused.attempts), [("near", &AttemptEnd::NotTried), ("other", &AttemptEnd::NotTried)]);
    assert_eq!(near.connections(), 0);
    if let Some(connecting) = hole.connecting() {
        assert_eq!(connecting, 0);
    }
}

// PLC-6: what is handed over is a connection; nothing is left that could try another backend with the same bytes.
#[tokio::test]
async fn plc_6_table_row_7_after_the_first_byte_no_other_backend_hears_of_the_player() {
    let (rude, other) = (Backend::rude().await, Backend::start().await);
    let registry = Registry::new();
    registry.set_static([(name("rude"), rude.text()), (name("other"), other.text())]);
    let mut placed = placed(&registry, &LoginRoute::new(list(&["rude", "other"]))).await;
    assert_eq!(rude.bytes(), b"", "the library writes nothing");
    placed.stream.write_all(b"login").await.expect("written");
    let mut answer = Vec::new();
    // The end of the stream or a reset: the backend hung up in the middle of the login.
    let _ = placed.stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty());
    assert_eq!(rude.closed(1).await, b"login");
    drop(placed);
    // Whoever comes later reaches the other one, which has seen nobody before.
    let after = LoginRoute::new(list(&["other"]));
    let later = try_place(&registry, &after, PATIENT).await.expect("placed");
    eventually("the later player is there", PATIENT, async || other.connections() == 1).await;
    drop(later);
    assert_eq!((other.closed(1).await, rude.connections()), (Vec::new(), 1));
}
