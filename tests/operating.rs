//! OBS-2: what `docs/operating.md` and the pages beside it tell people to type is real: the redis-cli commands run on a live
//! fleet, and the three users of the store can do what the document says of them and nothing else. When one of these fails,
//! somebody at three in the morning types a command that does not exist, or a fleet with narrow rights stands still.

mod agents_common;
#[path = "messages/member.rs"]
mod member;
mod routes_common;
mod support;

#[allow(dead_code, reason = "shared with the tests of the commands; a part of it is used here")]
#[path = "cli/scene.rs"]
mod scene;

#[path = "operating/document.rs"]
mod document;
#[path = "operating/fleet.rs"]
mod fleet;
#[path = "operating/rights.rs"]
mod rights;
#[path = "operating/typed.rs"]
mod typed;
