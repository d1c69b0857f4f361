use std::fmt;

use tokio::net::TcpStream;

use crate::ids::BackendName;

use super::registry::{Absence, RegisteredBackend};

/// How one candidate's try ended without a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptEnd {
    /// It could not be addressed.
    Absent(Absence),
    /// Its address is no `host:port`.
    BadAddress,
    /// Its host's name was not resolved.
    Dns {
        /// What the resolver said.
        error: String,
    },
    /// No address of it could be connected to.
    Tcp {
        /// What each address said.
        error: String,
    },
    /// Its share of the time was over.
    TimedOut,
    /// It was connected to, and was not the same any more; the socket was closed with no byte sent.
    Changed {
        /// What the name was then.
        now: Result<RegisteredBackend, Absence>,
    },
    /// It was under way when the placement ended.
    Abandoned,
    /// Its turn did not come.
    NotTried,
}

impl fmt::Display for AttemptEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(absence) => f.write_str(absence.as_str()),
            Self::BadAddress => f.write_str("its address is no host:port"),
            Self::Dns { error } => write!(f, "not resolved: {error}"),
            Self::Tcp { error } => write!(f, "not connected: {error}"),
            Self::TimedOut => f.write_str("its share of the time was over"),
            Self::Changed { now: Ok(now) } => write!(f, "became {now} while connecting"),
            Self::Changed { now: Err(absence) } => write!(f, "was {} once connected", absence.as_str()),
            Self::Abandoned => f.write_str("given up while under way"),
            Self::NotTried => f.write_str("not tried"),
        }
    }
}

/// What happened to one candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// Its name.
    pub name: BackendName,
    /// The registration that was tried, if there was one.
    pub registration: Option<RegisteredBackend>,
    /// How it ended.
    pub end: AttemptEnd,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.registration {
            Some(registration) => write!(f, "{registration}: {}", self.end),
            None => write!(f, "{:?}: {}", self.name, self.end),
        }
    }
}

/// A backend for the player: connected to, and no byte sent. The first byte is the caller's, and from then on there is
/// no other candidate.
#[derive(Debug)]
pub struct Placed {
    /// The connection.
    pub stream: TcpStream,
    /// The registration that stood when the connection did.
    pub registration: RegisteredBackend,
    /// The candidates before it, in order.
    pub passed: Vec<Attempt>,
}

/// Why a player was not placed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// Neither a handler nor a configured server.
    #[error("no entry server is configured")]
    NoServers,
    /// The handler refused.
    #[error("the placement handler refused: {reason:?}")]
    Rejected {
        /// For the player, at most 512 characters.
        reason: String,
    },
    /// The handler ended with an error.
    #[error("the placement handler failed: {error}")]
    HandlerFailed {
        /// Its own text.
        error: String,
    },
    /// The handler panicked.
    #[error("the placement handler panicked: {panic}")]
    HandlerPanicked {
        /// The panic's text.
        panic: String,
    },
    /// The handler named no backend.
    #[error("the placement handler named no backend")]
    EmptyAnswer,
    /// The handler's list is beyond the limits.
    #[error("the placement handler's list cannot be used: {problem}")]
    BadAnswer {
        /// What is wrong with it.
        problem: String,
    },
    /// The handler did not answer before the deadline.
    #[error("the placement handler did not answer in time")]
    HandlerTimeout,
    /// No candidate could be connected to.
    #[error("no candidate could be connected to")]
    AllFailed,
    /// The deadline was over before a candidate was connected to.
    #[error("the time was over before a candidate was connected to")]
    DeadlineOver,
    /// The kill switch is on for this proxy or the fleet.
    #[error("the kill switch is on")]
    KillSwitch,
    /// The player went away.
    #[error("the player went away")]
    PlayerGone,
    /// The proxy stops.
    #[error("the proxy is shutting down")]
    ShuttingDown,
}

impl Why {
    /// The outcome in metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::NoServers => "no_servers",
            Self::Rejected { .. } => "rejected",
            Self::HandlerFailed { .. } => "handler_failed",
            Self::HandlerPanicked { .. } => "handler_panicked",
            Self::EmptyAnswer => "empty_answer",
            Self::BadAnswer { .. } => "bad_answer",
            Self::HandlerTimeout => "handler_timeout",
            Self::AllFailed => "all_failed",
            Self::DeadlineOver => "deadline_over",
            Self::KillSwitch => "kill_switch",
            Self::PlayerGone => "player_gone",
            Self::ShuttingDown => "shutting_down",
        }
    }
}

/// A player who was not placed: why, and what happened to each candidate. No byte went to any of them, and every socket
/// that was opened is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unplaced {
    /// Why.
    pub why: Why,
    /// All candidates, in order; none where the selection failed.
    pub attempts: Vec<Attempt>,
}

impl fmt::Display for Unplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.why)?;
        self.attempts.iter().try_for_each(|attempt| write!(f, "; {attempt}"))
    }
}

impl std::error::Error for Unplaced {}
