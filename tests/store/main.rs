//! Tests against a real store, with agents and members of this process.

#[path = "../fixtures/mod.rs"]
mod fixtures;

mod beats;
mod bill;
mod control;
mod directory;
mod dispatch;
mod limits;
mod lines;
mod managed;
mod messages;
mod nodes;
mod orphans;
mod outages;
mod place;
mod queue_line;
mod queue_model;
mod queue_rush;
mod rosters;
mod route_agents;
mod route_book;
mod route_model;
mod route_objects;
mod script_bridge;
mod scripts_store;
mod token_model;
mod token_race;
mod token_reap;
mod token_table;
mod verifier;
mod wait;
mod waiting;
