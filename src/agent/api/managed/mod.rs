//! An agent for an application that must not go down with it: started from a source, tried again, reloaded.
//!
//! [`source`] is where the config comes from, [`turn`] what the present agent was started from, [`kept`] what has to be
//! known of an agent, [`state`] what the application sees, [`agent`] the loop.

mod agent;
mod kept;
mod source;
mod state;
mod turn;

pub use agent::{Kept, Managed};
pub use source::ConfigSource;
pub use state::{ManagedState, Reloaded};
