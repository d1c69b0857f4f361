//! Routes as an application has them: through agents, which are made from a config and a secret.

mod agents_common;
#[path = "messages/member.rs"]
mod member;
mod routes_common;
mod support;

#[path = "route_agents/placement.rs"]
mod placement;
#[path = "route_agents/rotation.rs"]
mod rotation;
