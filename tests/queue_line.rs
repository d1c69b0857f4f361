//! Lines: order, places that are kept, failures, arrivals. If these fail, people lose the place that they waited for.

mod queue_common;
mod support;

#[path = "queue_line/admit.rs"]
mod admit;
#[path = "queue_line/intervals.rs"]
mod intervals;
#[path = "queue_line/lanes.rs"]
mod lanes;
#[path = "queue_line/leave.rs"]
mod leave;
#[path = "queue_line/pass.rs"]
mod pass;
#[path = "queue_line/places.rs"]
mod places;
#[path = "queue_line/removed_lanes.rs"]
mod removed_lanes;
#[path = "queue_line/upkeep.rs"]
mod upkeep;
#[path = "queue_line/wait.rs"]
mod wait;
