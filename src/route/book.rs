use crate::envelope::{AuditReason, SCHEMA_VERSION_TEXT};
use crate::error::{Error, Result};
use crate::ids::{Epoch, NodeEpoch, NodeId, ObjectKey, OperationId};
use crate::node::{Lease, MemberConversation};
use crate::store::{Answer, Conversation, Invocation, Store, Verifier, scripts};

use super::record::{Cas, Held, Route, RouteState, RouteVersion, StoredObject, sign_object, sign_route};

/// Longest text of an object in the built-in store, in bytes.
pub const OBJECT_MAX_BYTES: usize = 1_048_576;

/// Times of routes, in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RouteTimes {
    /// How long an owner that saves nothing keeps an object. Default 1,500,000. The same in the whole fleet.
    pub lock_timeout_ms: u64,
    /// How long the record of an object that nobody owns stays. Default 60,000.
    pub free_ms: u64,
}

impl Default for RouteTimes {
    fn default() -> Self {
        Self { lock_timeout_ms: 1_500_000, free_ms: 60_000 }
    }
}

/// How an acquire ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// This node owns the object.
    Acquired(Held),
    /// Another node does, as the store says; the record itself was not read.
    Owned {
        /// Who.
        owner: NodeEpoch,
        /// In which version.
        version: RouteVersion,
    },
}

/// How a release ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteReleaseOutcome {
    /// Nobody owns the object; the version of the free record.
    Released(RouteVersion),
    /// It was not this node's any more; whose it is, `None` for nobody's.
    Lost(Option<NodeId>),
}

/// How a transfer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransferOutcome {
    /// The target owns the object.
    Moved(Route),
    /// It was not this node's any more; whose it is, `None` for nobody's.
    Lost(Option<NodeId>),
    /// The target's lease or epoch is gone. Nothing was changed.
    TargetGone,
}

/// The routes of a zone and the built-in object store, as one node writes them. Cheap to clone. Every operation is
/// repeated while the store does not answer, for the store's operation time; after [`Error::Unreachable`] its outcome is
/// not known, and the same call gives the definite answer later.
#[derive(Debug, Clone)]
pub struct RouteBook {
    store: Store,
    verifier: Verifier,
    lease: Lease,
    times: RouteTimes,
}

impl RouteBook {
    /// The routes behind `store`, for the node that `lease` is of.
    pub fn new(store: Store, verifier: Verifier, lease: Lease, times: RouteTimes) -> Self {
        Self { store, verifier, lease, times }
    }

    /// The times.
    pub fn times(&self) -> &RouteTimes {
        &self.times
    }

    /// The store behind it.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The fleet's keys and the audit.
    pub fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// The lease that it writes under.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// This node in its present epoch. Errors with [`Error::LeaseLost`].
    pub fn acting(&self) -> Result<NodeEpoch> {
        Ok(NodeEpoch { id: self.lease.id().clone(), epoch: self.lease.require()? })
    }

    /// The record of an object, verified. One read, no script.
    pub async fn read(&self, key: &ObjectKey) -> Result<Option<Route>> {
        let row = self.store.row(self.store.keys().route(key)).await?;
        Route::from_row(&self.verifier, key, &row)
    }

    /// The bytes of an object, verified. One read, no script.
    pub async fn load(&self, key: &ObjectKey) -> Result<Option<StoredObject>> {
        let row = self.store.row(self.store.keys().object(key)).await?;
        StoredObject::from_row(&self.verifier, key, &row)
    }

    /// The version that a write after `known` proposes.
    fn next_version(&self, known: RouteVersion) -> RouteVersion {
        RouteVersion(self.store.clock().past_ms().max(known.0.saturating_add(1)))
    }

    /// Makes this node the owner, or answers who is. `known` is the record last seen, which saves a round where another
    /// node owns the object. `fenced` says that a writer without ownership is refused by whoever keeps the bytes: only
    /// then does a gone lease of the owner suffice to take over. Runs `route/acquire`.
    ///
    /// Errors besides those of the store: [`Error::LeaseLost`], [`Error::Fenced`].
    pub async fn acquire(&self, key: &ObjectKey, known: Option<&Route>, fenced: bool) -> Result<AcquireOutcome> {
        let me = self.acting()?;
        let mut other = known.and_then(|route| route.owner.as_ref()).map(|owner| owner.id.clone());
        let mut version = self.next_version(known.map_or(RouteVersion::NONE, |route| route.version));
        let mut asked = self.conversation_of(&me, "acquiring an object", "acquire");
        loop {
            let mut held = None;
            let call = || {
                let held = held.insert(Held::new(&self.verifier, key, me.clone(), version));
                self.acquire_call(held, other.as_ref(), fenced)
            };
            let answer = asked.ask(call).await?;
            match answer.word() {
                "ACQUIRED" => {
                    let standing = RouteVersion(answer.number(0)?);
                    if let Some(held) = held.filter(|held| held.version == standing) {
                        return Ok(AcquireOutcome::Acquired(held));
                    }
                    // Another wrote that record, by a transfer or before a restart, and the script verifies nothing.
                    let route = self.read(key).await?;
                    if route.as_ref().is_some_and(|it| it.is_of(&me.id, me.epoch) && it.version == standing) {
                        return Ok(AcquireOutcome::Acquired(Held::new(&self.verifier, key, me.clone(), standing)));
                    }
                    version = self.next_version(route.map_or(RouteVersion::NONE, |route| route.version));
                }
                "OWNED" => {
                    let node = NodeId::new(answer.text(0)?).map_err(|_| self.forged(key))?;
                    let owner = NodeEpoch { id: node, epoch: Epoch(answer.number(1)?) };
                    return Ok(AcquireOutcome::Owned { owner, version: RouteVersion(answer.number(2)?) });
                }
                "VERSION" => version = RouteVersion(answer.number(0)?),
                "NEED" => other = Some(NodeId::new(answer.text(0)?).map_err(|_| self.forged(key))?),
                _ => return Err(answer.unexpected()),
            }
        }
    }

    /// Says that the object was saved elsewhere. Runs `route/renew`.
    ///
    /// Errors besides those of the store: [`Error::NotOwner`], [`Error::LeaseLost`], [`Error::Fenced`].
    pub async fn renew(&self, held: &Held) -> Result<()> {
        self.lease.require()?;
        let mut asked = self.conversation_of(&held.owner, "renewing a route", "renew");
        let answer = asked.ask(|| self.renew_call(held)).await?;
        match answer.word() {
            "RENEWED" => Ok(()),
            "LOST" => Err(lost(&answer, &held.key)),
            _ => Err(answer.unexpected()),
        }
    }

    /// Writes the object's bytes over those with the number `read`, if this node still owns the object. `op` is the
    /// operation. Answers the number of what was written. Runs `route/save`.
    ///
    /// Errors besides those of the store: [`Error::NotOwner`] and [`Error::CasMismatch`] (nothing was written),
    /// [`Error::LeaseLost`], [`Error::Fenced`], [`Error::OutOfBounds`] for more than 1 MiB.
    pub async fn save(&self, held: &Held, read: Cas, data: &str, op: &OperationId) -> Result<Cas> {
        if data.len() > OBJECT_MAX_BYTES {
            return Err(Error::OutOfBounds {
                what: "object",
                problem: format!("it has {} bytes, allowed are {OBJECT_MAX_BYTES}", data.len()),
            });
        }
        self.lease.require()?;
        let keys = self.store.keys();
        let written = read.next();
        let sig = sign_object(&self.verifier, &held.key, written, held.version, data);
        let key_list = [keys.route(&held.key), keys.object(&held.key), keys.node(&held.owner.id)];
        let call = || {
            Invocation::new(&scripts::ROUTE_SAVE, &key_list)
                .fence(held)
                .arg(self.store.clock().now_ms())
                .arg(read.0)
                .arg(written.0)
                .arg(data)
                .arg(op.as_str())
                .arg(SCHEMA_VERSION_TEXT)
                .arg(&sig)
        };
        let answer = self.conversation_of(&held.owner, "saving an object", "save").ask(call).await?;
        match answer.word() {
            "SAVED" => Ok(written),
            "LOST" => Err(lost(&answer, &held.key)),
            "CAS" => Err(Error::CasMismatch { object: held.key.clone(), found: answer.number(0)? }),
            _ => Err(answer.unexpected()),
        }
    }

    /// Gives the object up; with `delete` its bytes go as well. Runs `route/release`.
    pub async fn release(&self, held: &Held, delete: bool) -> Result<RouteReleaseOutcome> {
        let mut version = self.next_version(held.version);
        let mut asked = self.conversation("releasing an object", "release");
        loop {
            let answer = asked.ask(|| self.release_call(held, version, delete)).await?;
            match answer.word() {
                "RELEASED" => return Ok(RouteReleaseOutcome::Released(version)),
                "LOST" => return Ok(RouteReleaseOutcome::Lost(NodeId::new(answer.text(0)?).ok())),
                "VERSION" => version = RouteVersion(answer.number(0)?),
                _ => return Err(answer.unexpected()),
            }
        }
    }

    /// Makes `target` the owner, whose lease the script checks. Runs `route/transfer`.
    pub async fn transfer(&self, held: &Held, target: &NodeEpoch) -> Result<TransferOutcome> {
        self.lease.require()?;
        let mut version = self.next_version(held.version);
        let keys = self.store.keys();
        let key_list = [
            keys.route(&held.key),
            keys.owned(&held.owner.id),
            keys.owners(),
            keys.node(&target.id),
            keys.owned(&target.id),
        ];
        let mut asked = self.conversation("transferring an object", "transfer");
        loop {
            let call = || {
                let sig = sign_route(&self.verifier, &held.key, Some(target), version);
                Invocation::new(&scripts::ROUTE_TRANSFER, &key_list)
                    .arg(held.key.as_str())
                    .fence(held)
                    .member(target)
                    .record(version, &sig)
            };
            let answer = asked.ask(call).await?;
            match answer.word() {
                "MOVED" => {
                    return Ok(TransferOutcome::Moved(Route {
                        key: held.key.clone(),
                        owner: Some(target.clone()),
                        version,
                        saved_at_ms: self.store.clock().now_ms(),
                        state: RouteState::Moved,
                    }));
                }
                "LOST" => return Ok(TransferOutcome::Lost(NodeId::new(answer.text(0)?).ok())),
                "TARGET_GONE" => return Ok(TransferOutcome::TargetGone),
                "VERSION" => version = RouteVersion(answer.number(0)?),
                _ => return Err(answer.unexpected()),
            }
        }
    }

    /// `other` is the owner whose keys are passed along.
    #[doc(hidden)]
    pub fn acquire_call(&self, held: &Held, other: Option<&NodeId>, fenced: bool) -> Invocation {
        let (keys, me) = (self.store.keys(), &held.owner);
        let owner = other.filter(|other| **other != me.id);
        let behind = owner.unwrap_or(&me.id);
        let key_list = [
            keys.route(&held.key),
            keys.node(&me.id),
            keys.owned(&me.id),
            keys.owners(),
            keys.node(behind),
            keys.owned(behind),
        ];
        Invocation::new(&scripts::ROUTE_ACQUIRE, &key_list)
            .arg(held.key.as_str())
            .member(me)
            .record(held.version, &held.sig)
            .arg(self.times.lock_timeout_ms)
            .arg(fenced)
            .arg(owner)
    }

    #[doc(hidden)]
    pub fn renew_call(&self, held: &Held) -> Invocation {
        let keys = self.store.keys();
        Invocation::new(&scripts::ROUTE_RENEW, &[keys.route(&held.key), keys.node(&held.owner.id)])
            .fence(held)
            .arg(self.store.clock().now_ms())
    }

    #[doc(hidden)]
    pub fn release_call(&self, held: &Held, version: RouteVersion, delete: bool) -> Invocation {
        let keys = self.store.keys();
        let sig = sign_route(&self.verifier, &held.key, None, version);
        let key_list = [keys.route(&held.key), keys.owned(&held.owner.id), keys.owners(), keys.object(&held.key)];
        Invocation::new(&scripts::ROUTE_RELEASE, &key_list)
            .arg(held.key.as_str())
            .fence(held)
            .record(version, &sig)
            .arg(self.times.free_ms)
            .arg(delete)
    }

    fn forged(&self, key: &ObjectKey) -> Error {
        let place = format!("route:{key}");
        self.verifier.refuse(AuditReason::Malformed, &place, &place)
    }

    /// Talks to a script that checks nobody's lease. `verb` names it in the count of answers.
    fn conversation(&self, during: &'static str, verb: &'static str) -> Conversation<'_, impl Fn(&Answer) + use<>> {
        Conversation::new(&self.store, during, move |answer| count(verb, answer))
    }

    /// Talks to a script that checks the lease of `who`.
    fn conversation_of<'a>(
        &'a self,
        who: &'a NodeEpoch,
        during: &'static str,
        verb: &'static str,
    ) -> MemberConversation<'a, impl Fn(&Answer) + use<>> {
        MemberConversation::new(&self.store, &self.verifier, who, during, move |answer| count(verb, answer))
    }
}

impl Invocation {
    /// Adds what a writer holds of a record, which has to stand: owner, epoch, version, signature.
    fn fence(self, held: &Held) -> Self {
        self.member(&held.owner).arg(held.version.0).arg(&held.sig)
    }

    /// Adds what is new in a record: version, schema version, signature.
    fn record(self, version: RouteVersion, sig: &str) -> Self {
        self.arg(version.0).arg(SCHEMA_VERSION_TEXT).arg(sig)
    }
}

fn lost(answer: &Answer, key: &ObjectKey) -> Error {
    let owner = answer.values().first().and_then(|owner| NodeId::new(owner).ok());
    Error::NotOwner { object: key.clone(), owner }
}

fn count(verb: &'static str, answer: &Answer) {
    metrics::counter!("maitred_routes_total", "verb" => verb, "answer" => answer.word()).increment(1);
}
