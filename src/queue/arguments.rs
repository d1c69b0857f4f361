//! The groups of arguments that several scripts of a line take, as their headers name them.

use crate::envelope::SCHEMA_VERSION_TEXT;
use crate::ids::NodeId;
use crate::store::Invocation;

use super::admission::TargetNode;
use super::options::GateOptions;
use super::ticket::Ticket;

impl Invocation {
    /// Adds what a proxy signs of a ticket, and the signature: lane to attributes.
    pub(super) fn ticket(self, ticket: &Ticket) -> Self {
        self.arg(ticket.lane)
            .member(&ticket.holder)
            .arg(ticket.session.as_str())
            .arg(ticket.joined_at_ms)
            .arg(SCHEMA_VERSION_TEXT)
            .arg(&ticket.sig)
            .arg(ticket.attributes.as_str())
    }

    /// Adds fixed rate, rate a backend, burst.
    pub(super) fn gate(self, gate: &GateOptions) -> Self {
        self.arg(gate.fixed_per_second.unwrap_or(0)).arg(gate.per_backend).arg(gate.burst.unwrap_or(0))
    }

    /// Adds where a player is to go: id and epoch, empty and 0 for nowhere.
    pub(super) fn target(self, target: Option<&TargetNode>) -> Self {
        self.arg(target.map(|target| &target.id)).arg(target.map_or(0, |target| target.epoch.0))
    }

    /// Adds the backend and the link that hold a place.
    pub(super) fn places(self, server: Option<&NodeId>, link: Option<&NodeId>) -> Self {
        self.arg(server).arg(link)
    }
}
