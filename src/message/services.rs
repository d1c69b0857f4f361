use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::{Error, Result};
use crate::ids::ServiceName;

use super::handler::{DynHandler, Handler, Routed, RoutedHandler};

/// Longest name of a local service, and of a method, in bytes.
pub const SERVICE_MAX_BYTES: usize = 128;

/// True for what may name a local service or a method: 1 to 128 bytes of `[A-Za-z0-9._:-]`.
pub(super) fn is_service_text(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= SERVICE_MAX_BYTES
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b':'))
}

/// The names this node answers to, each with its handler. Only this process puts names in; those of other nodes stay in
/// the directory. Cheap to clone; clones are one registry.
#[derive(Debug, Clone, Default)]
pub struct Services {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_name: RwLock<HashMap<String, Entry>>,
    registrations: AtomicU64,
}

#[derive(Debug)]
struct Entry {
    registration: u64,
    handler: Arc<dyn DynHandler>,
    /// Heartbeats do not name it.
    withdrawn: bool,
}

impl Services {
    /// Without any name.
    pub fn new() -> Self {
        Self::default()
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<String, Entry>> {
        self.inner.by_name.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<String, Entry>> {
        self.inner.by_name.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers `name` with `handler` until the registration is dropped. A name that is registered already changes its
    /// handler. `name` is 1 to 128 bytes of `[A-Za-z0-9._:-]`; one with a `:` or of more than 64 bytes is for this
    /// process only: it is not published, and no other node can call it.
    ///
    /// Errors with [`Error::OutOfBounds`].
    pub fn register(&self, name: impl Into<String>, handler: impl Handler) -> Result<ServiceRegistration> {
        self.enter(name.into(), Arc::new(handler))
    }

    /// [`register`](Self::register) for messages that go by a route.
    pub fn register_routed(&self, name: impl Into<String>, handler: impl RoutedHandler) -> Result<ServiceRegistration> {
        self.enter(name.into(), Arc::new(Routed(handler)))
    }

    fn enter(&self, name: String, handler: Arc<dyn DynHandler>) -> Result<ServiceRegistration> {
        if !is_service_text(&name) {
            return Err(Error::OutOfBounds {
                what: "service",
                problem: format!("{name:?} is not 1 to {SERVICE_MAX_BYTES} characters of A-Z a-z 0-9 . _ : -"),
            });
        }
        let registration = self.inner.registrations.fetch_add(1, Ordering::Relaxed);
        self.write().insert(name.clone(), Entry { registration, handler, withdrawn: false });
        Ok(ServiceRegistration { services: self.clone(), name, registration })
    }

    /// The names that heartbeats publish, sorted.
    pub fn published(&self) -> Vec<ServiceName> {
        let by_name = self.read();
        let offered = by_name.iter().filter(|(_, entry)| !entry.withdrawn);
        let mut names: Vec<ServiceName> = offered.filter_map(|(name, _)| ServiceName::new(name).ok()).collect();
        names.sort_unstable();
        names
    }

    /// Heartbeats do not name it any more, until it is registered again; whoever calls it all the same is answered.
    pub fn withdraw(&self, name: &str) {
        if let Some(entry) = self.write().get_mut(name) {
            entry.withdrawn = true;
        }
    }

    /// Whether this node answers to a name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.read().contains_key(name)
    }

    /// The handler of a name of this node.
    pub(super) fn local(&self, name: &str) -> Option<Arc<dyn DynHandler>> {
        self.read().get(name).map(|entry| Arc::clone(&entry.handler))
    }

    /// The handler of a name that other nodes may call.
    pub(super) fn published_handler(&self, name: &str) -> Option<Arc<dyn DynHandler>> {
        ServiceName::new(name).ok().and_then(|name| self.local(name.as_str()))
    }
}

/// A registered name. Dropping it takes the name away, unless somebody registered it again meanwhile; handlers that run
/// go on.
#[derive(Debug)]
#[must_use = "the service is gone when its registration is dropped"]
pub struct ServiceRegistration {
    services: Services,
    name: String,
    registration: u64,
}

impl ServiceRegistration {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes the name away, as dropping does.
    pub fn unregister(self) {}
}

impl Drop for ServiceRegistration {
    fn drop(&mut self) {
        let mut by_name = self.services.write();
        if by_name.get(&self.name).is_some_and(|entry| entry.registration == self.registration) {
            by_name.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::handler::handler_fn;
    use super::*;

    fn any() -> impl Handler {
        handler_fn(|call| async move { Ok(call.body) })
    }

    // NOD-10: a name for this process only must never be offered to the fleet.
    #[test]
    fn nod_10_only_names_that_others_may_call_are_published() {
        let services = Services::new();
        let long = "x".repeat(65);
        let _kept: Vec<_> = ["places", "b1:places", "a.b-c_9", &long]
            .into_iter()
            .map(|name| services.register(name, any()).expect("a name"))
            .collect();
        let published: Vec<String> = services.published().iter().map(ToString::to_string).collect();
        assert_eq!(published, ["a.b-c_9", "places"]);
        assert!(services.local("b1:places").is_some() && services.published_handler("b1:places").is_none());
        assert!(services.published_handler("places").is_some());
        for bad in ["", "a b", "ä", "{a}", &"x".repeat(129)] {
            assert!(services.register(bad, any()).is_err(), "{bad:?}");
        }
    }

    // RTE-6: what a node gives up one by one is still called there, and nothing more is to be brought to it.
    #[test]
    fn nod_10_a_name_that_was_withdrawn_is_answered_and_not_published() {
        let services = Services::new();
        let first = services.register("places", any()).expect("a name");
        services.withdraw("places");
        services.withdraw("other");
        assert!(services.published().is_empty() && services.published_handler("places").is_some());
        let _second = services.register("places", any()).expect("a name");
        assert_eq!(services.published().len(), 1);
        drop(first);
        assert_eq!(services.published().len(), 1);
    }

    #[test]
    fn msg_2_a_registration_takes_away_only_what_it_put_there() {
        let services = Services::new();
        let first = services.register("places", any()).expect("a name");
        let second = services.register("places", any()).expect("a name");
        first.unregister();
        assert!(services.local("places").is_some(), "the second one answers now");
        drop(second);
        assert!(services.local("places").is_none());
    }
}
