//! Lines: order, places that are kept, failures, arrivals. If these fail, people lose the place that they waited for.

mod admit;
mod lanes;
mod leave;
mod pass;
mod upkeep;
mod wait;
