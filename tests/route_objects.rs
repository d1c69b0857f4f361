//! Objects in memory: taken, saved, given up, and reached by messages from wherever they are sent.

#[path = "messages/member.rs"]
mod member;
mod routes_common;
mod support;

#[path = "route_objects/faults.rs"]
mod faults;
#[path = "route_objects/hangs.rs"]
mod hangs;
#[path = "route_objects/keeping.rs"]
mod keeping;
#[path = "route_objects/leaving.rs"]
mod leaving;
#[path = "route_objects/moving.rs"]
mod moving;
#[path = "route_objects/restart.rs"]
mod restart;
#[path = "route_objects/rules.rs"]
mod rules;
#[path = "route_objects/table.rs"]
mod table;
