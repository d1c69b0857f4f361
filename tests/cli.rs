//! The operator's commands, run as an operator runs them: the binary against a real store (CLI-1). When one of these
//! fails, somebody at three in the morning is shown the wrong picture of the fleet, or none.

mod support;

#[path = "cli/config.rs"]
mod config;
#[path = "cli/faults.rs"]
mod faults;
#[path = "cli/nodes.rs"]
mod nodes;
#[path = "cli/queues.rs"]
mod queues;
#[path = "cli/reap.rs"]
mod reap;
#[path = "cli/routes.rs"]
mod routes;
#[path = "cli/scene.rs"]
mod scene;
#[path = "cli/scripts.rs"]
mod scripts;
#[path = "cli/tokens.rs"]
mod tokens;
