//! PLC-1 to PLC-8: initial placement, against real TCP listeners. Each row of the failure table is a test with the row's
//! number in its name:
//!
//! 1. neither a handler nor a list; 2. the handler refuses, fails, answers nothing or too late; 3. a candidate that is not
//!    registered, or not any more; 4. a bad address, or DNS or TCP fails; 5. the registration changed while connecting;
//!    6. all failed, or the time is over; 7. failure after the first byte; 8. the player goes away.
//!
//! If one of these fails, players are logged in twice, on a server that nobody chose, or not at all although one is there.

mod fleet;
mod handler;
mod leaving;
mod list;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::fixtures::agents::player;
use maitred::ids::BackendName;
use maitred::place::{
    AttemptEnd, Decision, LoginRoute, LoginSource, Placed, PlacementHandler, Registry, Resolver, ServerView, Unplaced,
    place,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A deadline that a busy machine does not reach.
const PATIENT: Duration = Duration::from_secs(20);

fn name(text: &str) -> BackendName {
    BackendName::new(text).expect("a name")
}

fn list(names: &[&str]) -> LoginSource {
    LoginSource::list(names.iter().map(|text| name(text)).collect()).expect("a list within the limits")
}

/// Places alice, who stays.
async fn try_place(registry: &Registry, route: &LoginRoute, time: Duration) -> Result<Placed, Unplaced> {
    place(&player("alice"), registry, route, Instant::now() + time, &CancellationToken::new()).await
}

async fn placed(registry: &Registry, route: &LoginRoute) -> Placed {
    try_place(registry, route, PATIENT).await.unwrap_or_else(|unplaced| panic!("{unplaced}"))
}

async fn unplaced(registry: &Registry, route: &LoginRoute, time: Duration) -> Unplaced {
    match try_place(registry, route, time).await {
        Ok(placed) => panic!("placed at {}", placed.registration),
        Err(unplaced) => unplaced,
    }
}

fn ends(attempts: &[maitred::place::Attempt]) -> Vec<(&str, &AttemptEnd)> {
    attempts.iter().map(|attempt| (attempt.name.as_str(), &attempt.end)).collect()
}

/// A handler that is a closure.
struct Plugin<F>(F);

impl<F, A> PlacementHandler for Plugin<F>
where
    F: Fn(ServerView) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Decision, String>> + Send,
{
    async fn place(&self, player: &maitred::ids::Player, view: &ServerView) -> Result<Decision, String> {
        assert_eq!(player.as_str(), "alice");
        (self.0)(view.clone()).await
    }
}

/// A resolver that is a closure, called with each host that is no IP address.
#[derive(Clone)]
struct Names<F>(Arc<F>, Arc<Mutex<Vec<String>>>);

impl<F> Names<F> {
    fn new(answer: F) -> Self {
        Self(Arc::new(answer), Arc::default())
    }

    fn asked(&self) -> Vec<String> {
        self.1.lock().expect("not poisoned").clone()
    }
}

impl<F, A> Resolver for Names<F>
where
    F: Fn(String) -> A + Send + Sync + 'static,
    A: Future<Output = io::Result<Vec<SocketAddr>>> + Send,
{
    async fn resolve(&self, host: &str, _port: u16) -> io::Result<Vec<SocketAddr>> {
        self.1.lock().expect("not poisoned").push(host.to_owned());
        (self.0)(host.to_owned()).await
    }
}
