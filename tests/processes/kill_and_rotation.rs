//! The kill switch and the rotation of the secret under load (POL-4, R-29, R-32, ENV-4). When one of these fails, a fleet
//! that was stopped goes on, one that goes on loses its players, or a changed secret takes the network down.

mod client;
mod kill;
mod rotation;
