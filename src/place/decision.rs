use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio_util::task::AbortOnDropHandle;

use crate::error::{Error, Result};
use crate::ids::{BackendName, Player};

use super::outcome::Why;
use super::registry::{Registry, ServerView};

/// Most backends of one placement.
pub const SERVERS_MAX: usize = 16;
/// Longest reason of a refusal that is passed on to the player, in characters.
const REASON_MAX_CHARS: usize = 512;

/// What a placement handler decided.
#[derive(Debug, Clone)]
pub struct Decision(Verdict);

#[derive(Debug, Clone)]
enum Verdict {
    Select(Vec<String>),
    Reject(String),
}

impl Decision {
    /// This backend and no other.
    pub fn select(name: impl Into<String>) -> Self {
        Self::select_many([name])
    }

    /// These backends, in the order to try them: at most 16, each once. None, too many or names that cannot
    /// be refuse the login.
    pub fn select_many(names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        // One more than allowed is enough to refuse, and an endless list must not be read to its end.
        Self(Verdict::Select(names.into_iter().take(SERVERS_MAX + 1).map(Into::into).collect()))
    }

    /// No login. The player reads the reason.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self(Verdict::Reject(reason.into()))
    }
}

/// Chooses the backends of a fresh login, alone: where there is a handler, the configured list counts for nothing. An
/// error, a panic, an empty answer and an answer after the deadline refuse the login.
///
/// It runs on a task of its own that is aborted when the player goes away, the deadline is over or the proxy stops. It
/// must not block its thread.
pub trait PlacementHandler: Send + Sync + 'static {
    /// Decides for one player. `view` shows the backends as they are now; the names in the answer are looked up again
    /// when they are tried, so a backend that registers meanwhile counts ([`Registry::appears`] waits for one). An error
    /// is for the log; what the player is to read goes into [`Decision::reject`].
    fn place(
        &self,
        player: &Player,
        view: &ServerView,
    ) -> impl Future<Output = std::result::Result<Decision, String>> + Send;
}

/// A handler whose type is forgotten.
trait Ask: Send + Sync {
    fn ask(
        self: Arc<Self>,
        player: Player,
        view: ServerView,
    ) -> BoxFuture<'static, std::result::Result<Decision, String>>;
}

impl<H: PlacementHandler> Ask for H {
    fn ask(
        self: Arc<Self>,
        player: Player,
        view: ServerView,
    ) -> BoxFuture<'static, std::result::Result<Decision, String>> {
        Box::pin(async move { self.place(&player, &view).await })
    }
}

/// Who says where a login goes: one handler, or one list. Cheap to clone.
#[derive(Clone)]
pub struct LoginSource(Kind);

#[derive(Clone)]
enum Kind {
    List(Arc<[BackendName]>),
    Handler(Arc<dyn Ask>),
    Promised(BackendName),
}

impl LoginSource {
    /// An ordered list. An empty one refuses every login.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] for more than [`SERVERS_MAX`] names, or one that stands in it twice.
    pub fn list(names: Vec<BackendName>) -> Result<Self> {
        match fault_of(&names) {
            Some(problem) => Err(Error::OutOfBounds { what: "initial servers", problem }),
            None => Ok(Self(Kind::List(names.into()))),
        }
    }

    /// A handler.
    pub fn handler(handler: impl PlacementHandler) -> Self {
        Self(Kind::Handler(Arc::new(handler)))
    }

    /// The backend that holds a place for the player already. Neither drain nor kill switch holds the player back: those
    /// are for players who have no place yet.
    pub fn promised(name: BackendName) -> Self {
        Self(Kind::Promised(name))
    }

    pub(super) fn is_handler(&self) -> bool {
        matches!(self.0, Kind::Handler(_))
    }

    pub(super) fn is_promised(&self) -> bool {
        matches!(self.0, Kind::Promised(_))
    }

    /// The backends to try, in order; never none. Waits for a handler without a bound of its own; dropped, it ends the
    /// handler.
    pub(super) async fn select(
        &self,
        player: &Player,
        registry: &Registry,
    ) -> std::result::Result<Vec<BackendName>, Why> {
        let handler = match &self.0 {
            Kind::List(names) if names.is_empty() => return Err(Why::NoServers),
            Kind::List(names) => return Ok(names.to_vec()),
            Kind::Promised(name) => return Ok(vec![name.clone()]),
            Kind::Handler(handler) => Arc::clone(handler),
        };
        // The application's code: on a task of its own its panic ends nothing else, and what blocks there does not keep
        // the deadline from being noticed here.
        let task = AbortOnDropHandle::new(tokio::spawn(handler.ask(player.clone(), registry.view())));
        match task.await {
            Ok(Ok(Decision(Verdict::Select(names)))) => checked(names),
            Ok(Ok(Decision(Verdict::Reject(reason)))) => {
                Err(Why::Rejected { reason: reason.chars().take(REASON_MAX_CHARS).collect() })
            }
            Ok(Err(error)) => Err(Why::HandlerFailed { error }),
            Err(end) => Err(match end.try_into_panic() {
                Ok(panic) => Why::HandlerPanicked { panic: words_of(&*panic) },
                Err(_) => Why::HandlerFailed { error: "its task was ended".to_owned() },
            }),
        }
    }
}

impl fmt::Debug for LoginSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::List(names) => write!(f, "LoginSource::list({names:?})"),
            Kind::Handler(_) => f.write_str("LoginSource::handler(..)"),
            Kind::Promised(name) => write!(f, "LoginSource::promised({name:?})"),
        }
    }
}

/// The names of a handler, by the limits of the configured list.
fn checked(names: Vec<String>) -> std::result::Result<Vec<BackendName>, Why> {
    if names.is_empty() {
        return Err(Why::EmptyAnswer);
    }
    let valid: std::result::Result<Vec<BackendName>, _> = names.iter().map(BackendName::new).collect();
    let names = valid.map_err(|error| Why::BadAnswer { problem: error.to_string() })?;
    match fault_of(&names) {
        Some(problem) => Err(Why::BadAnswer { problem }),
        None => Ok(names),
    }
}

/// What is wrong with a list of names that are valid by themselves.
fn fault_of(names: &[BackendName]) -> Option<String> {
    if names.len() > SERVERS_MAX {
        return Some(format!("more than {SERVERS_MAX} names"));
    }
    let mut seen = HashSet::new();
    names.iter().find(|name| !seen.insert(*name)).map(|name| format!("{name:?} stands in the list twice"))
}

/// The text of a panic, where it has one.
pub(super) fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no words").chars().take(REASON_MAX_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // PLC-2: the limits of the configured list hold for a handler's answer.
    #[test]
    fn plc_2_a_handler_s_list_has_the_limits_of_the_configured_one() {
        let names = |count: usize| (0..count).map(|n| format!("s{n}")).collect::<Vec<_>>();
        let taken = |decision: Decision| match decision.0 {
            Verdict::Select(names) => checked(names),
            Verdict::Reject(_) => panic!("no list"),
        };
        assert_eq!(taken(Decision::select_many(names(16))).map(|names| names.len()), Ok(16));
        assert_eq!(taken(Decision::select_many(Vec::<String>::new())), Err(Why::EmptyAnswer));
        let long = "x".repeat(129);
        for bad in [names(17), vec!["a".into(), "a".into()], vec![String::new()], vec![" a".into()], vec![long]] {
            assert!(matches!(taken(Decision::select_many(bad.clone())), Err(Why::BadAnswer { .. })), "{bad:?}");
        }
        assert!(matches!(taken(Decision::select_many(std::iter::repeat("a"))), Err(Why::BadAnswer { .. })), "endless");

        let valid = |names: Vec<String>| names.iter().map(|name| BackendName::new(name).expect("valid")).collect();
        assert!(LoginSource::list(valid(names(16))).is_ok() && LoginSource::list(Vec::new()).is_ok());
        assert!(LoginSource::list(valid(names(17))).is_err());
        assert!(LoginSource::list(valid(vec!["a".into(), "b".into(), "a".into()])).is_err());
    }
}
