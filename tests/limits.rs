//! Limits a player (POL-6). When one of these fails, a cooldown is worth nothing to somebody who asks at two proxies, or
//! a player is made to wait for what they never got.

mod agents_common;
mod support;

#[path = "limits/agents.rs"]
mod agents;
#[path = "script_bridge/interpreter.rs"]
#[allow(dead_code, reason = "script_bridge looks at the calls as well")]
mod interpreter;
#[path = "limits/model.rs"]
mod model;
#[path = "script_bridge/reply.rs"]
#[allow(dead_code, reason = "script_bridge talks to a server as well")]
mod reply;
