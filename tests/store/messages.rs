//! Messages between members of a fleet, over a real store: what a caller and a handler may rely on, each error by its
//! real cause, and what is not believed.

mod calls;
mod errors;
mod limits;
mod verifier;
