//! Login lines with agents in this process and a real store. If one of these fails, a player loses the place in the line,
//! waits for ever, is let in twice, or the fleet takes in more than it can hold.

mod agents_common;
mod support;

#[path = "lines/admission.rs"]
mod admission;
#[path = "lines/entering.rs"]
mod entering;
#[path = "lines/estimates.rs"]
mod estimates;
#[path = "lines/gate.rs"]
mod gate;
#[path = "lines/leaving.rs"]
mod leaving;
#[path = "lines/outages.rs"]
mod outages;
#[path = "lines/passes.rs"]
mod passes;
#[path = "lines/places.rs"]
mod places;
#[path = "lines/transfers.rs"]
mod transfers;
#[path = "lines/world.rs"]
mod world;
