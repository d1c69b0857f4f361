use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::ids::{NodeId, ObjectKey};
use crate::message::CallError;

use super::record::RouteVersion;

/// When a message that changed an object is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ack {
    /// At once, from memory. A crash loses what was not saved yet.
    #[default]
    Memory,
    /// After the change was saved under the fence: what was acknowledged outlives a crash.
    Saved,
}

/// Who keeps an object's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Storage {
    /// The built-in object store; writes are fenced and guarded by a [`Cas`](super::Cas).
    #[default]
    BuiltIn,
    /// The application, by [`ObjectType::load`] and [`ObjectType::save`].
    Own {
        /// True where its save refuses a route version below the last one it saw. Only then may an object be taken over
        /// as soon as its owner's lease is gone; else the lock timeout has to pass.
        fenced: bool,
    },
}

/// How the objects of a kind are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KindOptions {
    /// Whether a message may make a node take an object that nobody owns. Default true.
    pub on_demand: bool,
    /// When messages are answered.
    pub ack: Ack,
    /// Who keeps the bytes.
    pub storage: Storage,
    /// Time between two saves of an object that changed, and at the latest between two renewals of its record, in ms;
    /// `None`, the default, for the node's own ([`KeepTimes`]).
    pub save_ms: Option<u64>,
    /// How long an object stays that nobody uses, in ms; `None`, the default, for the node's own.
    pub idle_ms: Option<u64>,
}

/// How long objects are kept as they are, in ms, where their kind says nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepTimes {
    /// Time between two saves of an object that changed. Default 600,000.
    pub save_ms: u64,
    /// How long an object stays that nobody uses. Default 1,500,000.
    pub idle_ms: u64,
}

impl Default for KeepTimes {
    fn default() -> Self {
        Self { save_ms: 600_000, idle_ms: 1_500_000 }
    }
}

impl Default for KindOptions {
    fn default() -> Self {
        Self { on_demand: true, ack: Ack::Memory, storage: Storage::BuiltIn, save_ms: None, idle_ms: None }
    }
}

/// A message to an object, as its handler gets it.
#[derive(Debug)]
pub struct ObjectCall {
    /// The method.
    pub method: String,
    /// JSON, byte for byte as it was sent.
    pub body: Box<RawValue>,
    /// Who sent it.
    pub origin: NodeId,
    /// How often it was forwarded.
    pub hops: u32,
    /// When the sender stops waiting, on this process's clock.
    pub deadline: Instant,
}

impl ObjectCall {
    /// The body as a `T`. Errors with code `bad_request`.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_str(self.body.get()).map_err(|error| CallError::new("bad_request", error.to_string()))
    }

    /// There is no such method: code `unknown_method`.
    pub fn unknown_method(&self) -> CallError {
        CallError::new("unknown_method", format!("there is no method {}", self.method))
    }
}

/// What a handler did.
#[derive(Debug)]
pub struct Handled {
    /// The answer.
    pub body: Box<RawValue>,
    /// True where the object is not what it was.
    pub changed: bool,
}

impl Handled {
    /// The object changed. Errors with code `bad_answer` where `answer` is no JSON.
    pub fn changed(answer: &(impl Serialize + ?Sized)) -> Result<Self, CallError> {
        Ok(Self { body: json(answer)?, changed: true })
    }

    /// The object is what it was. Errors with code `bad_answer` where `answer` is no JSON.
    pub fn unchanged(answer: &(impl Serialize + ?Sized)) -> Result<Self, CallError> {
        Ok(Self { body: json(answer)?, changed: false })
    }
}

fn json(answer: &(impl Serialize + ?Sized)) -> Result<Box<RawValue>, CallError> {
    to_raw_value(answer).map_err(|error| CallError::new("bad_answer", error.to_string()))
}

/// Why an object left this node's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// Saved and given up: it was idle, or the node shuts down.
    Released,
    /// Saved and handed to another node.
    Moved(NodeId),
    /// Given up with its bytes.
    Deleted,
    /// Another node owns it (`None`: nobody does). What was not saved before is not in the store.
    Lost(Option<NodeId>),
    /// Its bytes in the store are not those it was loaded from. What was not saved before is not in the store.
    Conflict,
    /// Its handler panicked; it is loaded anew when it is used next.
    Panicked,
}

/// What an application says about a kind of objects.
///
/// All calls about one object come one after the other, each with the object to itself; different objects run side by
/// side. None of the futures is dropped half-way. A callback that waits for a call of its own object, or of the
/// [`Keeper`](super::Keeper) about it, would wait for itself: it is refused with [`Error::OutOfBounds`]. A task of its own may.
pub trait ObjectType: Send + Sync + 'static {
    /// An object in memory.
    type Object: Send + 'static;

    /// How its objects are kept. Asked once.
    fn options(&self) -> KindOptions {
        KindOptions::default()
    }

    /// Handles a message. An error says that the object is what it was.
    fn handle(
        &self,
        key: &ObjectKey,
        object: &mut Self::Object,
        call: ObjectCall,
    ) -> impl Future<Output = Result<Handled, CallError>> + Send;

    /// A new object, where none is in storage; `None` where it is not created on demand.
    fn create(&self, key: &ObjectKey) -> Option<Self::Object> {
        let _ = key;
        None
    }

    /// The object as a text for the built-in store, at most 1 MiB.
    fn encode(&self, object: &Self::Object) -> Result<String> {
        let _ = object;
        Err(missing("encode"))
    }

    /// An object of the built-in store.
    fn decode(&self, key: &ObjectKey, text: &str) -> Result<Self::Object> {
        let _ = (key, text);
        Err(missing("decode"))
    }

    /// Loads an object of the application's own storage; `None` where it has none.
    fn load(&self, key: &ObjectKey) -> impl Future<Output = Result<Option<Self::Object>>> + Send {
        let _ = key;
        async { Err(missing("load")) }
    }

    /// Saves an object to the application's own storage. One that is fenced refuses a `version` below the last one that
    /// it saw for the object, with [`Error::NotOwner`]. Repeated where its outcome was not known.
    fn save(
        &self,
        key: &ObjectKey,
        object: &Self::Object,
        version: RouteVersion,
    ) -> impl Future<Output = Result<()>> + Send {
        let _ = (key, object, version);
        async { Err(missing("save")) }
    }

    /// The object is this node's and in memory: loaded, created, or kept because a removal did not come about.
    fn promoted(&self, key: &ObjectKey, object: &mut Self::Object) -> impl Future<Output = ()> + Send {
        let _ = (key, object);
        async {}
    }

    /// The object is about to be given up or handed over in order. Answers whether it changed it.
    fn removing(&self, key: &ObjectKey, object: &mut Self::Object) -> impl Future<Output = bool> + Send {
        let _ = (key, object);
        async { false }
    }

    /// The object is not this node's any more.
    fn removed(&self, key: &ObjectKey, object: Self::Object, why: &Removal) -> impl Future<Output = ()> + Send {
        let _ = (key, object, why);
        async {}
    }
}

fn missing(what: &str) -> Error {
    Error::OutOfBounds { what: "object type", problem: format!("its storage needs `{what}`, which it does not have") }
}
