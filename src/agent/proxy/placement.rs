//! What one proxy needs for initial placement: the one handler, and the registry over the agent's directory.

use std::sync::OnceLock;

use crate::agent::core::Core;
use crate::ids::BackendName;
use crate::place::{LoginRoute, LoginSource, Registry};

/// What one proxy places fresh logins with.
pub(in crate::agent) struct Placement {
    pub registry: Registry,
    pub handler: OnceLock<LoginSource>,
    pub route: OnceLock<LoginRoute>,
}

impl Placement {
    pub fn new(core: &Core) -> Self {
        let registry = Registry::with_directory(core.directory.clone(), core.control.clone());
        let config = core.config();
        let peers = config.peers.iter().filter(|(_, peer)| peer.role.takes_players());
        registry.set_static(peers.map(|(id, peer)| (BackendName::from(id), peer.addr.clone())));
        Self { registry, handler: OnceLock::new(), route: OnceLock::new() }
    }

    pub fn route(&self, core: &Core, source: LoginSource) -> LoginRoute {
        let route = self.route.get().cloned().map(|route| route.with_source(source.clone()));
        route.unwrap_or_else(|| LoginRoute::new(source)).until(core.stop.clone())
    }
}
