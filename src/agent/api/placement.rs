//! Initial placement: fresh logins through a proxy, and players who are moved by connecting for them.

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::agent::model::Transfer;
use crate::error::{Error, Result};
use crate::ids::{BackendName, Player};
use crate::place::{LoginRoute, LoginSource, Placed, PlacementHandler, Registry, Resolver, Unplaced, Why, place};

use super::proxy::ProxyAgent;

impl ProxyAgent {
    /// The backends that fresh logins can be sent to: the nodes of the directory, the `peers` of the config as static
    /// entries, and what the application adds as static or registered. Works from the start, member or not, and through an outage of the store.
    pub fn registry(&self) -> &Registry {
        &self.placement().registry
    }

    /// Lets `handler` decide where fresh logins go, alone: `initialRouting.servers` counts for nothing any more.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] where a handler is set already: a proxy has one, for as long as it runs.
    pub fn set_placement_handler(&self, handler: impl PlacementHandler) -> Result<()> {
        self.placement().handler.set(LoginSource::handler(handler)).map_err(|_| Error::OutOfBounds {
            what: "placement handler",
            problem: "this proxy has one already".to_owned(),
        })
    }

    /// Asks `resolver` for the addresses of backends instead of the operating system.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`] where a resolver is set already.
    pub fn set_resolver(&self, resolver: impl Resolver) -> Result<()> {
        // The source is put in at each placement.
        let route = LoginRoute::new(LoginSource::list(Vec::new())?).with_resolver(resolver);
        self.placement()
            .route
            .set(route)
            .map_err(|_| Error::OutOfBounds { what: "resolver", problem: "this proxy has one already".to_owned() })
    }

    /// Finds a backend for a fresh login and connects to it, within `initialRouting.timeoutSeconds` from now. Sends no
    /// byte. `gone` says that the player went away; dropping the future does the same without an answer.
    ///
    /// # Errors
    /// [`Unplaced`], with what happened to each candidate; [`refusal_text`](Self::refusal_text) is what the player reads.
    pub async fn place(&self, player: &Player, gone: &CancellationToken) -> std::result::Result<Placed, Unplaced> {
        let core = self.agent().core();
        if core.control.is_killed(&core.identity.id) {
            return Err(Unplaced { why: Why::KillSwitch, attempts: Vec::new() });
        }
        let config = core.config();
        let routing = &config.initial_routing;
        let deadline = Instant::now() + routing.timeout();
        let source = match self.placement().handler.get() {
            Some(handler) => handler.clone(),
            // The config was checked when the agent was set up.
            None => LoginSource::list(routing.servers.clone()).map_err(|error| Unplaced {
                why: Why::BadAnswer { problem: error.to_string() },
                attempts: Vec::new(),
            })?,
        };
        let route = self.placement().route(core, source);
        place(player, self.registry(), &route, deadline, gone).await
    }

    /// Connects to the backend of a transfer, for an application that moves players by connecting for them. The same
    /// way as [`place`](Self::place) with one candidate, except that neither drain nor kill switch holds back who has a
    /// place already. After an error the transfer [`failed`](Self::failed).
    ///
    /// # Errors
    /// [`Unplaced`], also where the token would end before `initialRouting.timeoutSeconds`.
    pub async fn connect(
        &self,
        transfer: &Transfer,
        gone: &CancellationToken,
    ) -> std::result::Result<Placed, Unplaced> {
        let core = self.agent().core();
        let left = std::time::Duration::from_millis(transfer.left_ms());
        let deadline = Instant::now() + core.config().initial_routing.timeout().min(left);
        let source = LoginSource::promised(BackendName::from(&transfer.server));
        place(&transfer.player, self.registry(), &self.placement().route(core, source), deadline, gone).await
    }

    /// What the player reads: the handler's own reason, or a text of the config.
    pub fn refusal_text(&self, unplaced: &Unplaced) -> String {
        let config = self.agent().core().config();
        let texts = &config.texts;
        match &unplaced.why {
            Why::Rejected { reason } => reason,
            Why::NoServers => &texts.no_entry,
            Why::KillSwitch => &texts.kill_switch,
            _ => &texts.not_placed,
        }
        .clone()
    }
}
