//! PLC-1 to PLC-7 as players meet them: the example edge proxy in front of real Minecraft servers, with real clients. If
//! this fails, a network that builds its proxy like the example logs players in twice, or nowhere, or shows them nothing.
//!
//! `real` needs Node.js and what `make minecraft` installs; without them it says that it was skipped.

mod edge;
mod ends;
#[path = "../../examples/minecraft_proxy/frame.rs"]
#[allow(dead_code, reason = "the proxy uses the rest")]
mod frame;
#[path = "../../examples/minecraft_proxy/hello.rs"]
mod hello;
mod packets;
#[path = "../../examples/minecraft_proxy/pass.rs"]
mod pass;
mod real;
#[path = "../../examples/minecraft_proxy/slots.rs"]
mod slots;
#[path = "../../examples/minecraft_proxy/status.rs"]
#[allow(dead_code, reason = "the proxy uses the rest")]
mod status;
mod wire;
