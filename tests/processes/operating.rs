//! OBS-2: what `docs/operating.md` and the pages beside it tell people to type is real: the redis-cli commands run on a live
//! fleet, and the three users of the store can do what the document says of them and nothing else. When one of these fails,
//! somebody at three in the morning types a command that does not exist, or a fleet with narrow rights stands still.

mod document;
mod fleet;
mod rights;
mod typed;
