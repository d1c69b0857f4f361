//! Limits a player (POL-6). When one of these fails, a cooldown is worth nothing to somebody who asks at two proxies, or
//! a player is made to wait for what they never got.

mod agents;
mod model;
