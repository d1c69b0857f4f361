//! The way of one login over its candidates.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::Span;
use tracing::field::Empty;

use crate::ids::{BackendName, Player};

use super::connect::{Resolve, Resolver, connect};
use super::decision::LoginSource;
use super::outcome::{Attempt, AttemptEnd, Placed, Unplaced, Why};
use super::registry::{Absence, RegisteredBackend, Registry};
use super::resolve::SystemResolver;

/// Least time of one candidate, where so much is left.
const SHARE_MIN: Duration = Duration::from_millis(250);

/// What the placements of one proxy have in common. Cheap to clone.
#[derive(Clone)]
pub struct LoginRoute {
    source: LoginSource,
    resolver: Arc<dyn Resolve>,
    stop: CancellationToken,
}

impl LoginRoute {
    /// By the system's resolver, until dropped.
    pub fn new(source: LoginSource) -> Self {
        Self { source, resolver: Arc::new(SystemResolver), stop: CancellationToken::new() }
    }

    /// Asks `resolver` instead of the system's.
    #[must_use]
    pub fn with_resolver(mut self, resolver: impl Resolver) -> Self {
        self.resolver = Arc::new(resolver);
        self
    }

    /// The same route for another source.
    #[must_use]
    pub fn with_source(mut self, source: LoginSource) -> Self {
        self.source = source;
        self
    }

    /// Ends all placements when `stop` is cancelled.
    #[must_use]
    pub fn until(mut self, stop: CancellationToken) -> Self {
        self.stop = stop;
        self
    }
}

impl fmt::Debug for LoginRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoginRoute({:?})", self.source)
    }
}

/// Finds a backend for a fresh login and connects to it. Sends no byte.
///
/// `deadline` covers everything from here on: the handler, the names, the connections of all candidates. A candidate that
/// is not the last one gets an equal share of what is left, so that one host that swallows every packet does not take
/// the time of those after it. `gone` says that the player went away.
///
/// Cancel safe: dropped, it ends the handler and closes every socket.
///
/// # Errors
/// [`Unplaced`], with what happened to each candidate.
#[tracing::instrument(skip_all, fields(player = %player, outcome = Empty))]
pub async fn place(
    player: &Player,
    registry: &Registry,
    route: &LoginRoute,
    deadline: Instant,
    gone: &CancellationToken,
) -> Result<Placed, Unplaced> {
    let mut walk = Walk { registry, route, deadline, selected: false, waiting: Vec::new(), attempts: Vec::new() };
    let end = tokio::select! {
        biased;
        () = gone.cancelled() => Err(Why::PlayerGone),
        () = route.stop.cancelled() => Err(Why::ShuttingDown),
        () = sleep_until(deadline) => Err(Why::DeadlineOver),
        end = walk.run(player) => end,
    };
    let outcome = match end {
        Ok((stream, registration)) => Ok(Placed { stream, registration, passed: walk.attempts }),
        Err(Why::DeadlineOver) if route.source.is_handler() && !walk.selected => {
            Err(Unplaced { why: Why::HandlerTimeout, attempts: Vec::new() })
        }
        Err(why) => Err(Unplaced { why, attempts: walk.all_attempts() }),
    };
    let word = outcome.as_ref().map_or_else(|unplaced| unplaced.why.as_str(), |_| "placed");
    Span::current().record("outcome", word);
    metrics::counter!("maitred_placements_total", "outcome" => word).increment(1);
    match &outcome {
        Ok(placed) => tracing::debug!(%player, registration = %placed.registration, "placed"),
        Err(unplaced) => tracing::info!(%player, %unplaced, "not placed"),
    }
    outcome
}

/// One login on its way.
struct Walk<'a> {
    registry: &'a Registry,
    route: &'a LoginRoute,
    deadline: Instant,
    /// The selection is over.
    selected: bool,
    /// Candidates that are not over, the next one last.
    waiting: Vec<Attempt>,
    /// Candidates that failed, in order.
    attempts: Vec<Attempt>,
}

impl Walk<'_> {
    async fn run(&mut self, player: &Player) -> Result<(tokio::net::TcpStream, RegisteredBackend), Why> {
        let names = self.route.source.select(player, self.registry).await?;
        self.selected = true;
        self.waiting = names
            .into_iter()
            .rev()
            .map(|name| Attempt { name, registration: None, end: AttemptEnd::NotTried })
            .collect();
        while let Some(left) = u32::try_from(self.waiting.len()).ok().filter(|left| *left > 0) {
            let whole = self.deadline.saturating_duration_since(Instant::now());
            if whole.is_zero() {
                // Timers are coarser than a connection to the same host takes.
                return Err(Why::DeadlineOver);
            }
            // The last one gets all that is left; the deadline itself ends it.
            let share = if left == 1 { Duration::MAX } else { (whole / left).max(SHARE_MIN) };
            let end = match timeout(share, self.attempt()).await {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(end)) => end,
                Err(_) => AttemptEnd::TimedOut,
            };
            if let Some(attempt) = self.waiting.pop() {
                let attempt = Attempt { end, ..attempt };
                tracing::debug!(%attempt, "next candidate");
                self.attempts.push(attempt);
            }
        }
        Err(Why::AllFailed)
    }

    /// Tries the next candidate.
    async fn attempt(&mut self) -> Result<(tokio::net::TcpStream, RegisteredBackend), AttemptEnd> {
        let (registry, route) = (self.registry, self.route);
        let resolve = |name: &BackendName| match route.source.is_promised() {
            true => registry.registration(name).ok_or(Absence::Missing),
            false => registry.resolve(name),
        };
        let Some(next) = self.waiting.last_mut() else { return Err(AttemptEnd::NotTried) };
        next.end = AttemptEnd::Abandoned;
        let registration = resolve(&next.name).map_err(AttemptEnd::Absent)?;
        next.registration = Some(registration.clone());
        let stream = connect(&registration.addr, &route.resolver).await?;
        // Between the lookup and the connection the name may have gone to somebody else, or to nobody.
        let now = resolve(&next.name);
        if now.as_ref() == Ok(&registration) {
            return Ok((stream, registration));
        }
        drop(stream);
        Err(AttemptEnd::Changed { now })
    }

    /// What happened to every candidate, those included whose turn did not come to its end.
    fn all_attempts(mut self) -> Vec<Attempt> {
        self.attempts.extend(self.waiting.into_iter().rev());
        self.attempts
    }
}
