//! Messages between members of a fleet, over a real store: what a caller and a handler may rely on, each error by its
//! real cause, and what is not believed.

mod support;

#[path = "messages/calls.rs"]
mod calls;
#[path = "messages/errors.rs"]
mod errors;
#[path = "messages/limits.rs"]
mod limits;
#[path = "messages/member.rs"]
mod member;
#[path = "messages/verifier.rs"]
mod verifier;
