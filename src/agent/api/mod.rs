//! What an application holds: the agents, what starts them, and the handles of players who wait.

mod agent;
mod backend;
mod limits;
mod lines;
mod managed;
mod outcome;
mod pass;
mod placement;
mod proxy;
mod router;
mod routes;
mod setup;
mod waiting;

pub use agent::Agent;
pub use backend::BackendAgent;
pub use managed::{ConfigSource, Kept, Managed, ManagedState, Reloaded};
pub use outcome::Outcome;
pub use proxy::{Mover, ProxyAgent};
pub use router::RouterAgent;
pub use setup::Setup;
pub use waiting::Waiting;
