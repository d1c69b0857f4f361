//! Lines: order, places that are kept, failures, arrivals. If these fail, people lose the place that they waited for.

mod admit;
mod intervals;
mod lanes;
mod leave;
mod pass;
mod places;
mod removed_lanes;
mod upkeep;
mod wait;
