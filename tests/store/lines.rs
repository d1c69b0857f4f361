//! Login lines with agents in this process and a real store. If one of these fails, a player loses the place in the line,
//! waits for ever, is let in twice, or the fleet takes in more than it can hold.

mod admission;
mod entering;
mod estimates;
mod gate;
mod judging;
mod leaving;
mod outages;
mod passes;
mod places;
mod transfers;
mod world;
