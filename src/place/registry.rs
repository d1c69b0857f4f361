use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use serde::Serialize;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::watch;

use crate::ids::{BackendName, NodeId};
use crate::node::{Control, Directory, Liveness, NodeState, NodeView, Snapshot};

/// Where a registration comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Written down by the operator.
    Static,
    /// Registered by the application in this process.
    Registered,
    /// A node of the directory.
    Discovered,
}

impl Origin {
    /// The text in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::Registered => "registered",
            Self::Discovered => "discovered",
        }
    }
}

/// One registration of one backend. Two are the same only where all of it is: a name that is registered again is another
/// registration, also at the same address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RegisteredBackend {
    /// The backend.
    pub name: BackendName,
    /// Where it listens, `host:port`. Looked at when it is tried; one that makes no sense fails then.
    pub addr: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Tells registrations of one name apart: the epoch of a discovered node, a number that grows otherwise.
    pub generation: u64,
}

impl fmt::Display for RegisteredBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?} ({} {})", self.name, self.addr, self.origin.as_str(), self.generation)
    }
}

/// Why a name is not tried now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Absence {
    /// Nobody has the name, or not any more.
    Missing,
    /// An operator drains it.
    Draining,
    /// A kill switch is on for it, or for the fleet.
    Killed,
    /// It is on its way out.
    ShuttingDown,
}

impl Absence {
    /// The text in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Draining => "draining",
            Self::Killed => "killed",
            Self::ShuttingDown => "shutting down",
        }
    }
}

/// What a placement handler decides by: the backends at the moment it was called. Never changes.
#[derive(Debug, Clone, Default)]
pub struct ServerView {
    /// Those that would be tried, by name.
    pub servers: Vec<RegisteredBackend>,
    /// The nodes behind the discovered ones, with their load.
    pub nodes: Arc<Snapshot>,
}

impl ServerView {
    /// The backend of this name.
    pub fn get(&self, name: &str) -> Option<&RegisteredBackend> {
        let index = self.servers.binary_search_by(|server| server.name.as_str().cmp(name)).ok()?;
        self.servers.get(index)
    }
}

#[derive(Debug, Default)]
struct Entries {
    fixed: HashMap<BackendName, RegisteredBackend>,
    registered: HashMap<BackendName, RegisteredBackend>,
    last_generation: u64,
}

impl Entries {
    fn make(&mut self, name: BackendName, addr: String, origin: Origin) -> RegisteredBackend {
        self.last_generation += 1;
        RegisteredBackend { name, addr, origin, generation: self.last_generation }
    }
}

#[derive(Debug, Default)]
struct Inner {
    discovery: Option<(Directory, Control)>,
    entries: RwLock<Entries>,
    changes: watch::Sender<()>,
}

/// The backends that can be addressed, by name: static entries, registrations of the application, nodes of the directory.
/// Cheap to clone; all clones are one registry. Asking it does no I/O.
///
/// Where a name is taken more than once the nearer word counts: the application's registration goes before the node,
/// the node before the static entry. A node has its name while its lease holds; without the store the view stands still,
/// so an outage takes nobody's name. A drain or kill entry of the store is about the name, whoever holds it. What a node
/// says of its load, also that it is not accepting, plays no part.
#[derive(Debug, Clone, Default)]
pub struct Registry {
    inner: Arc<Inner>,
}

impl Registry {
    /// A registry of static and registered backends only.
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry that also finds the nodes of a directory, and obeys the control entries.
    pub fn with_directory(directory: Directory, control: Control) -> Self {
        Self { inner: Arc::new(Inner { discovery: Some((directory, control)), ..Inner::default() }) }
    }

    fn read(&self) -> RwLockReadGuard<'_, Entries> {
        self.inner.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Entries> {
        self.inner.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces all static entries: name and `host:port`. An entry that stays as it is keeps its generation.
    pub fn set_static(&self, entries: impl IntoIterator<Item = (BackendName, String)>) {
        let mut known = self.write();
        let mut old = std::mem::take(&mut known.fixed);
        for (name, addr) in entries {
            let kept = old.remove(&name).filter(|old| old.addr == addr);
            let entry = kept.unwrap_or_else(|| known.make(name.clone(), addr, Origin::Static));
            known.fixed.insert(name, entry);
        }
        drop(known);
        self.inner.changes.send_replace(());
    }

    /// Adds a static entry beside those that are there, in place of one of the same name.
    pub fn add_static(&self, name: BackendName, addr: impl Into<String>) {
        let addr = addr.into();
        let mut known = self.write();
        if known.fixed.get(&name).is_none_or(|old| old.addr != addr) {
            let entry = known.make(name.clone(), addr, Origin::Static);
            known.fixed.insert(name, entry);
        }
        drop(known);
        self.inner.changes.send_replace(());
    }

    /// Registers a backend at `addr` (`host:port`). A name that is registered already gets a new generation, and the
    /// older registration is over. It stands until it is unregistered; dropping the handle does nothing.
    pub fn register(&self, name: BackendName, addr: impl Into<String>) -> RegistrationHandle {
        let mut entries = self.write();
        let registration = entries.make(name.clone(), addr.into(), Origin::Registered);
        entries.registered.insert(name, registration.clone());
        drop(entries);
        self.inner.changes.send_replace(());
        RegistrationHandle { registry: self.clone(), registration }
    }

    /// The registration that `name` has now, or why it is not tried.
    pub fn resolve(&self, name: &BackendName) -> Result<RegisteredBackend, Absence> {
        let id = NodeId::new(name.as_str()).ok();
        self.willing(name, id.as_ref(), self.view_of(id.as_ref()).as_ref())
    }

    /// The registration that `name` has now, drained or not: for a player whose place there is promised already.
    pub fn registration(&self, name: &BackendName) -> Option<RegisteredBackend> {
        let id = NodeId::new(name.as_str()).ok();
        self.holder(name, self.view_of(id.as_ref()).as_ref())
    }

    /// Waits until `name` can be tried. For handlers that have an instance started. Cancel safe; waits without a bound,
    /// which a handler's deadline gives it.
    pub async fn appears(&self, name: &BackendName) -> RegisteredBackend {
        let mut changes = self.inner.changes.subscribe();
        let mut events = self.inner.discovery.as_ref().map(|(directory, _)| directory.events());
        let mut entries = self.inner.discovery.as_ref().map(|(_, control)| control.changes());
        loop {
            changes.mark_unchanged();
            if let Ok(registration) = self.resolve(name) {
                return registration;
            }
            let heard = async {
                // Who lags has missed something: look again.
                if let Some(events) = &mut events
                    && events.recv().await != Err(RecvError::Closed)
                {
                    return;
                }
                std::future::pending().await
            };
            let lifted = async {
                if let Some(entries) = &mut entries
                    && entries.changed().await.is_ok()
                {
                    return;
                }
                std::future::pending().await
            };
            tokio::select! {
                // The sender lives as long as this registry.
                _ = changes.changed() => {}
                () = heard => {}
                () = lifted => {}
            }
        }
    }

    /// All backends that would be tried now, and the nodes behind them.
    pub fn view(&self) -> ServerView {
        let nodes = self.inner.discovery.as_ref().map_or_else(Arc::default, |(directory, _)| directory.snapshot());
        let found: BTreeMap<BackendName, &NodeView> =
            nodes.nodes.iter().filter(|view| is_held(view)).map(|view| ((&view.record.id).into(), view)).collect();
        let mut names: BTreeSet<BackendName> = found.keys().cloned().collect();
        {
            let entries = self.read();
            names.extend(entries.fixed.keys().chain(entries.registered.keys()).cloned());
        }
        let servers = names.iter().filter_map(|name| {
            let id = NodeId::new(name.as_str()).ok();
            self.willing(name, id.as_ref(), found.get(name).copied()).ok()
        });
        ServerView { servers: servers.collect(), nodes }
    }

    /// The node of this id, while it holds its name.
    fn view_of(&self, id: Option<&NodeId>) -> Option<NodeView> {
        let (directory, _) = self.inner.discovery.as_ref()?;
        directory.view_of(id?).filter(is_held)
    }

    /// Whose the name is.
    fn holder(&self, name: &BackendName, node: Option<&NodeView>) -> Option<RegisteredBackend> {
        let entries = self.read();
        if let Some(registered) = entries.registered.get(name) {
            return Some(registered.clone());
        }
        match node {
            Some(view) => Some(RegisteredBackend {
                name: name.clone(),
                addr: view.record.addr.clone(),
                origin: Origin::Discovered,
                generation: view.record.epoch.0,
            }),
            None => entries.fixed.get(name).cloned(),
        }
    }

    fn willing(
        &self,
        name: &BackendName,
        id: Option<&NodeId>,
        node: Option<&NodeView>,
    ) -> Result<RegisteredBackend, Absence> {
        let registration = self.holder(name, node).ok_or(Absence::Missing)?;
        let switches = self.inner.discovery.as_ref().map(|(_, control)| control.switches()).unwrap_or_default();
        if id.map_or(switches.fleet, |id| switches.is_killed(id)) {
            return Err(Absence::Killed);
        }
        if id.is_some_and(|id| switches.is_draining(id)) {
            return Err(Absence::Draining);
        }
        match node.filter(|_| registration.origin == Origin::Discovered).map(|view| &view.record) {
            Some(record) if switches.stops(record) => Err(Absence::Killed),
            Some(record) if record.state == NodeState::ShuttingDown => Err(Absence::ShuttingDown),
            _ => Ok(registration),
        }
    }

    fn unregister(&self, registration: &RegisteredBackend) -> bool {
        let mut entries = self.write();
        let present = entries.registered.get(&registration.name) == Some(registration);
        if present {
            entries.registered.remove(&registration.name);
        }
        present
    }
}

/// True for a node that players land on and whose lease holds. A late beat takes nobody's name.
fn is_held(view: &NodeView) -> bool {
    matches!(view.liveness, Liveness::Online | Liveness::Suspect) && view.record.role.takes_players()
}

/// One registration by the application, and the right to take it back.
#[derive(Debug)]
pub struct RegistrationHandle {
    registry: Registry,
    registration: RegisteredBackend,
}

impl RegistrationHandle {
    /// What was registered.
    pub fn registration(&self) -> &RegisteredBackend {
        &self.registration
    }

    /// Takes the registration back. False where it was over already: a newer one of the name stays.
    pub fn unregister(self) -> bool {
        self.registry.unregister(&self.registration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> BackendName {
        BackendName::new(text).expect("valid")
    }

    // PLC-8: a plugin that restarts its instance and only then cleans up would take the new instance off the list.
    #[test]
    fn plc_8_an_old_handle_never_removes_a_newer_registration() {
        let registry = Registry::new();
        let first = registry.register(name("a"), "h:1");
        let second = registry.register(name("a"), "h:1");
        assert_ne!(first.registration(), second.registration(), "the same address, and yet another registration");
        assert!(first.registration().generation < second.registration().generation);
        assert!(!first.unregister());
        assert_eq!(registry.resolve(&name("a")).as_ref(), Ok(second.registration()));
        assert!(second.unregister());
        assert_eq!(registry.resolve(&name("a")), Err(Absence::Missing));
    }

    #[test]
    fn plc_8_static_entries_keep_their_generation_until_they_change() {
        let registry = Registry::new();
        registry.set_static([(name("a"), "h:1".to_owned()), (name("b"), "h:2".to_owned())]);
        let (a, b) = (registry.resolve(&name("a")).expect("a"), registry.resolve(&name("b")).expect("b"));
        registry.set_static([(name("a"), "h:1".to_owned()), (name("b"), "h:3".to_owned())]);
        assert_eq!(registry.resolve(&name("a")), Ok(a));
        let moved = registry.resolve(&name("b")).expect("b");
        assert!(moved.generation > b.generation && moved.addr == "h:3");
        registry.set_static([]);
        assert_eq!(registry.resolve(&name("a")), Err(Absence::Missing));
    }

    #[test]
    fn plc_4_the_application_s_word_goes_before_the_static_entry() {
        let registry = Registry::new();
        registry.set_static([(name("b"), "static:1".to_owned()), (name("a"), "static:2".to_owned())]);
        let handle = registry.register(name("a"), "mine:1");
        assert_eq!(registry.resolve(&name("a")).map(|found| found.addr), Ok("mine:1".to_owned()));
        let view = registry.view();
        assert_eq!(view.servers.iter().map(|server| server.addr.as_str()).collect::<Vec<_>>(), ["mine:1", "static:1"]);
        assert!(handle.unregister());
        assert_eq!(registry.resolve(&name("a")).map(|found| found.origin), Ok(Origin::Static));
        assert_eq!(view.get("a").map(|found| found.origin), Some(Origin::Registered), "a view stays as it was");
        assert!(view.get("c").is_none());
    }
}
