//! Drain (NOD-13), the kill switch of one node (POL-4) and nodes that are expected (NOD-12), as two proxies see them. When
//! one of these fails, players are sent to a server that an operator is emptying, or the drain is forgotten by a restart
//! of whatever.

mod agents;
mod fleet;
mod peers;
