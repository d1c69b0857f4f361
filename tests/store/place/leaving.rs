//! Row 8: the player goes away, or the proxy stops, at whatever step the placement is.

use std::time::Duration;

use maitred::place::{AttemptEnd, Decision, LoginRoute, LoginSource, Registry, Unplaced, Why, place};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Names, PATIENT, Plugin, ends, list, name};
use crate::fixtures::agents::player;
use crate::fixtures::listener::{Backend, Blackhole};
use maitred_testkit::wait::eventually;

/// How a placement ends early.
#[derive(Debug, Clone, Copy)]
enum Way {
    PlayerGone,
    ShuttingDown,
    Dropped,
}

const WAYS: [Way; 3] = [Way::PlayerGone, Way::ShuttingDown, Way::Dropped];

/// Starts a placement, waits until `reached`, and ends it.
async fn ended(registry: &Registry, route: &LoginRoute, way: Way, reached: &CancellationToken) -> Option<Unplaced> {
    let (gone, stop) = (CancellationToken::new(), CancellationToken::new());
    let (route, alice) = (route.clone().until(stop.clone()), player("alice"));
    let placing = place(&alice, registry, &route, Instant::now() + PATIENT, &gone);
    tokio::pin!(placing);
    tokio::select! {
        end = &mut placing => panic!("it ended by itself: {end:?}"),
        () = reached.cancelled() => {}
    }
    match way {
        Way::PlayerGone => gone.cancel(),
        Way::ShuttingDown => stop.cancel(),
        Way::Dropped => return None,
    }
    let unplaced = placing.await.expect_err("nobody to place");
    match way {
        Way::PlayerGone => assert_eq!(unplaced.why, Why::PlayerGone),
        _ => assert_eq!(unplaced.why, Why::ShuttingDown),
    }
    Some(unplaced)
}

struct Flag(CancellationToken);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

// PLC-7: a handler that nobody waits for any more must not go on starting instances.
#[tokio::test]
async fn plc_7_table_row_8_a_player_who_leaves_ends_the_handler() {
    for way in WAYS {
        let registry = Registry::new();
        let (reached, ended_flag) = (CancellationToken::new(), CancellationToken::new());
        let (at, flag) = (reached.clone(), ended_flag.clone());
        let route = LoginRoute::new(LoginSource::handler(Plugin(move |_| {
            let (at, flag) = (at.clone(), Flag(flag.clone()));
            async move {
                at.cancel();
                std::future::pending::<()>().await;
                drop(flag);
                Ok(Decision::select("lobby"))
            }
        })));
        let end = ended(&registry, &route, way, &reached).await;
        assert!(end.is_none_or(|unplaced| unplaced.attempts.is_empty()));
        eventually("the handler is ended", PATIENT, async || ended_flag.is_cancelled()).await;
    }
}

// PLC-7: at the resolver: its late answer connects to nobody.
#[tokio::test]
async fn plc_7_table_row_8_a_player_who_leaves_ends_the_look_up_of_a_name() {
    for way in WAYS {
        let lobby = Backend::start().await;
        let registry = Registry::new();
        registry.set_static([(name("lobby"), "lobby.example:1".to_owned())]);
        let (reached, gate, addr) = (CancellationToken::new(), CancellationToken::new(), lobby.addr);
        let (at, opened) = (reached.clone(), gate.clone());
        let names = Names::new(move |_| {
            let (at, opened) = (at.clone(), opened.clone());
            async move {
                at.cancel();
                opened.cancelled().await;
                Ok(vec![addr])
            }
        });
        let route = LoginRoute::new(list(&["lobby", "later"])).with_resolver(names);
        if let Some(unplaced) = ended(&registry, &route, way, &reached).await {
            assert_eq!(ends(&unplaced.attempts), [("lobby", &AttemptEnd::Abandoned), ("later", &AttemptEnd::NotTried)]);
        }
        gate.cancel();
        tokio::task::yield_now().await;
        assert_eq!(lobby.connections(), 0);
    }
}

// PLC-7: while it connects: sockets that nobody needs would pile up at every backend that is slow.
#[tokio::test]
async fn plc_7_table_row_8_a_player_who_leaves_closes_the_sockets() {
    let hole = Blackhole::start().await;
    if hole.connecting().is_none() {
        return eprintln!("skipped: this system does not list its sockets");
    }
    for way in WAYS {
        let registry = Registry::new();
        registry.set_static([(name("hole"), hole.addr.to_string())]);
        let (reached, route) = (CancellationToken::new(), LoginRoute::new(list(&["hole"])));
        let connecting = async {
            eventually("it connects", PATIENT, async || hole.connecting() == Some(1)).await;
            reached.cancel();
            std::future::pending::<()>().await
        };
        tokio::select! {
            end = ended(&registry, &route, way, &reached) => {
                assert!(end.is_none_or(|unplaced| ends(&unplaced.attempts) == [("hole", &AttemptEnd::Abandoned)]));
            }
            () = connecting => {}
        }
        eventually("the socket is closed", Duration::from_secs(5), async || hole.connecting() == Some(0)).await;
    }
}
