//! The real store and the naive map side by side.

use std::collections::{BTreeMap, BTreeSet};

use maitred::Error;
use maitred::ids::{Epoch, NodeEpoch, NodeId, ObjectKey, OperationId};
use maitred::node::Membership;
use maitred::route::{
    AcquireOutcome, Cas, Held, RouteBook, RouteReleaseOutcome, RouteTimes, SweepOptions, TransferOutcome, sweep,
};
use maitred::store::Store;
use redis::aio::MultiplexedConnection;

use super::Op;
use crate::fixtures::nodes::{LONG_MS, ask, blank, key, membership, verifier};

pub const NODES: usize = 3;
pub const OBJECTS: usize = 2;

/// What a child would write down about one object.
#[derive(Debug, Clone, Default)]
struct Entry {
    owner: Option<(usize, Epoch)>,
    version: u64,
    silent: bool,
    /// The number and text of its bytes.
    bytes: Option<(u64, String)>,
    last_op: String,
}

/// The real side of one node.
struct Node {
    id: NodeId,
    membership: Membership,
    book: RouteBook,
    alive: bool,
    /// What it once held, and may have lost since.
    held: BTreeMap<usize, Held>,
    /// Its last save of an object.
    saved: BTreeMap<usize, (Held, u64, String, OperationId)>,
}

impl Node {
    fn epoch(&self) -> Epoch {
        self.membership.lease().epoch()
    }
}

/// Nodes, the store, and what the naive map says of the objects in it.
pub struct World {
    store: Store,
    conn: MultiplexedConnection,
    nodes: Vec<Node>,
    keys: Vec<ObjectKey>,
    entries: Vec<Entry>,
    writes: u64,
}

pub type Step = Result<(), String>;

fn same<T: PartialEq + std::fmt::Debug>(what: &str, real: T, naive: T) -> Step {
    if real == naive { Ok(()) } else { Err(format!("{what}: the store says {real:?}, the naive map {naive:?}")) }
}

/// An outcome as both sides say it.
fn say<T>(outcome: Result<T, Error>, ok: impl FnOnce(T) -> String) -> String {
    match outcome {
        Ok(value) => ok(value),
        Err(Error::NotOwner { owner, .. }) => format!("lost to {}", owner.map_or("nobody".into(), |id| id.to_string())),
        Err(Error::CasMismatch { found, .. }) => format!("cas {found}"),
        Err(Error::LeaseLost { .. }) => "no lease".into(),
        Err(Error::Fenced { .. }) => "fenced".into(),
        Err(other) => format!("{other:?}"),
    }
}

impl World {
    async fn new(store: &Store, conn: &MultiplexedConnection) -> Self {
        let mut conn = conn.clone();
        let _: String = ask(&mut conn, &["FLUSHALL"]).await;
        let mut nodes = Vec::new();
        for n in 0..NODES {
            nodes.push(Self::start(store, n, None).await);
        }
        let keys = (0..OBJECTS).map(|n| ObjectKey::read(&format!("island:{n}")).unwrap()).collect();
        let entries = vec![Entry::default(); OBJECTS];
        Self { store: store.clone(), conn, nodes, keys, entries, writes: 0 }
    }

    async fn start(store: &Store, n: usize, before: Option<Node>) -> Node {
        let name = format!("b{n}");
        let mut joining = membership(store, &name, "backend", LONG_MS);
        let (held, saved) = match before {
            Some(old) => {
                joining = joining.replacing(old.membership.incarnation().clone());
                (old.held, old.saved)
            }
            None => Default::default(),
        };
        joining.join(blank()).await.unwrap();
        let book = RouteBook::new(store.clone(), verifier(), joining.lease().clone(), RouteTimes::default());
        Node { id: NodeId::new(&name).unwrap(), membership: joining, book, alive: true, held, saved }
    }

    fn name(owner: Option<(usize, Epoch)>) -> String {
        owner.map_or("nobody".into(), |(node, _)| format!("b{node}"))
    }

    /// What a write under `held` meets first: `None` where it may go on.
    fn fence(&self, object: usize, held: &Held) -> Option<String> {
        let entry = &self.entries[object];
        let owner = entry.owner.map(|(node, epoch)| (self.nodes[node].id.clone(), epoch));
        let fits = owner == Some((held.owner.id.clone(), held.owner.epoch)) && entry.version == held.version.0;
        (!fits).then(|| format!("lost to {}", Self::name(entry.owner)))
    }

    fn lease(&self, node: usize, held: &Held) -> Option<String> {
        if !self.nodes[node].alive {
            return Some("no lease".into());
        }
        (self.nodes[node].epoch() != held.owner.epoch).then(|| "fenced".into())
    }

    async fn happen(&mut self, op: &Op) -> Step {
        match *op {
            Op::Acquire { node, object, fenced } => self.acquire(node, object, fenced).await,
            Op::Renew { node, object } => {
                let Some(held) = self.nodes[node].held.get(&object).cloned() else { return Ok(()) };
                let real = say(self.nodes[node].book.renew(&held).await, |()| "renewed".into());
                let naive = self.lease(node, &held).or_else(|| self.fence(object, &held));
                if naive.is_none() {
                    self.entries[object].silent = false;
                }
                same("renew", real, naive.unwrap_or_else(|| "renewed".into()))
            }
            Op::Save { node, object, stale } => {
                let Some(held) = self.nodes[node].held.get(&object).cloned() else { return Ok(()) };
                let cas = self.entries[object].bytes.as_ref().map_or(0, |(cas, _)| *cas);
                let read = if stale { cas.saturating_sub(1) } else { cas };
                self.writes += 1;
                let (data, op) = (format!("write {}", self.writes), OperationId::fresh());
                self.nodes[node].saved.insert(object, (held.clone(), read, data.clone(), op.clone()));
                self.save(node, object, &held, read, &data, &op).await
            }
            Op::SaveAgain { node, object } => {
                let Some((held, read, data, op)) = self.nodes[node].saved.get(&object).cloned() else { return Ok(()) };
                self.save(node, object, &held, read, &data, &op).await
            }
            Op::Release { node, object, delete } => {
                let Some(held) = self.nodes[node].held.get(&object).cloned() else { return Ok(()) };
                let outcome = self.nodes[node].book.release(&held, delete).await;
                let mut version = None;
                let real = say(outcome, |outcome| match outcome {
                    RouteReleaseOutcome::Released(freed) => {
                        version = Some(freed.0);
                        "released".into()
                    }
                    RouteReleaseOutcome::Lost(owner) => {
                        format!("lost to {}", owner.map_or("nobody".into(), |id| id.to_string()))
                    }
                });
                let naive = self.fence(object, &held);
                same("release", real, naive.unwrap_or_else(|| "released".into()))?;
                if let Some(version) = version {
                    self.grow(object, version)?;
                    self.entries[object].owner = None;
                    if delete {
                        self.entries[object].bytes = None;
                        self.entries[object].last_op.clear();
                    }
                }
                Ok(())
            }
            Op::Transfer { node, object, target } => self.transfer(node, object, target).await,
            Op::Lapse { node } => {
                let row = key(&format!("node:b{node}"));
                let _: i64 = ask(&mut self.conn, &["DEL", &row]).await;
                self.nodes[node].alive = false;
                Ok(())
            }
            Op::Resume { node } => {
                if self.nodes[node].alive {
                    return Ok(());
                }
                let before = self.nodes[node].epoch();
                self.nodes[node].membership.join(blank()).await.unwrap();
                self.nodes[node].alive = true;
                same("the epoch of the same process", self.nodes[node].epoch(), before)
            }
            Op::Restart { node } => {
                let old = self.nodes.remove(node);
                let before = old.epoch();
                let new = Self::start(&self.store, node, Some(old)).await;
                let grows = new.epoch() > before;
                self.nodes.insert(node, new);
                same("a new process has a higher epoch", grows, true)
            }
            Op::Silent { object } => {
                if self.entries[object].owner.is_some() {
                    let row = key(&format!("route:island:{object}"));
                    let _: i64 = ask(&mut self.conn, &["HSET", &row, "saved_at", "1000"]).await;
                    self.entries[object].silent = true;
                }
                Ok(())
            }
            Op::Sweep => {
                let report = sweep(&self.nodes[0].book, SweepOptions::default()).await.map_err(|e| e.to_string())?;
                let mut released = 0;
                for object in 0..OBJECTS {
                    let entry = self.entries[object].clone();
                    let Some((node, epoch)) = entry.owner else { continue };
                    let gone = !self.nodes[node].alive || self.nodes[node].epoch() != epoch;
                    if gone && entry.silent {
                        released += 1;
                        let route = self.nodes[0].book.read(&self.keys[object]).await.unwrap().expect("a free record");
                        self.grow(object, route.version.0)?;
                        self.entries[object].owner = None;
                    }
                }
                same("sweep", (report.released, report.healed), (released, 0))
            }
        }
    }

    /// Versions grow with every change of owner.
    fn grow(&mut self, object: usize, version: u64) -> Step {
        let last = std::mem::replace(&mut self.entries[object].version, version);
        if version > last { Ok(()) } else { Err(format!("version {version} after {last}")) }
    }

    async fn acquire(&mut self, node: usize, object: usize, fenced: bool) -> Step {
        let known = self.nodes[node].book.read(&self.keys[object]).await.map_err(|error| error.to_string())?;
        let outcome = self.nodes[node].book.acquire(&self.keys[object], known.as_ref(), fenced).await;
        let mut got = None;
        let real = say(outcome, |outcome| match outcome {
            AcquireOutcome::Acquired(held) => {
                got = Some(held);
                "acquired".into()
            }
            AcquireOutcome::Owned { owner, .. } => format!("owned by {}", owner.id),
        });
        let entry = &self.entries[object];
        let me = (node, self.nodes[node].epoch());
        let free = match entry.owner {
            None => true,
            Some((other, epoch)) => {
                let gone = !self.nodes[other].alive || self.nodes[other].epoch() != epoch;
                entry.silent || (gone && fenced)
            }
        };
        let naive = match entry.owner {
            _ if !self.nodes[node].alive => "no lease".into(),
            Some(owner) if owner == me => "acquired".into(),
            _ if free => "acquired".into(),
            owner => format!("owned by {}", Self::name(owner)),
        };
        same("acquire", real, naive)?;
        if let Some(held) = got {
            if entry.owner == Some(me) {
                same("the version that stands", held.version.0, entry.version)?;
            } else {
                self.grow(object, held.version.0)?;
            }
            let entry = &mut self.entries[object];
            (entry.owner, entry.silent) = (Some(me), false);
            self.nodes[node].held.insert(object, held);
        }
        Ok(())
    }

    async fn save(&mut self, node: usize, object: usize, held: &Held, read: u64, data: &str, op: &OperationId) -> Step {
        let real = say(self.nodes[node].book.save(held, Cas(read), data, op).await, |cas| format!("saved {cas}"));
        let entry = &self.entries[object];
        let cas = entry.bytes.as_ref().map_or(0, |(cas, _)| *cas);
        let naive = self.fence(object, held);
        let done = naive.is_none() && entry.last_op == op.as_str();
        let naive = naive
            .or_else(|| done.then(|| format!("saved {}", read + 1)))
            .or_else(|| self.lease(node, held))
            .or_else(|| (read != cas).then(|| format!("cas {cas}")));
        let writes = naive.is_none();
        same("save", real, naive.unwrap_or_else(|| format!("saved {}", read + 1)))?;
        if writes {
            let entry = &mut self.entries[object];
            (entry.bytes, entry.silent) = (Some((read + 1, data.to_owned())), false);
            op.as_str().clone_into(&mut entry.last_op);
        }
        Ok(())
    }

    async fn transfer(&mut self, node: usize, object: usize, target: usize) -> Step {
        let Some(held) = self.nodes[node].held.get(&object).cloned() else { return Ok(()) };
        if target == node {
            return Ok(());
        }
        let to = NodeEpoch { id: self.nodes[target].id.clone(), epoch: self.nodes[target].epoch() };
        let outcome = self.nodes[node].book.transfer(&held, &to).await;
        let mut version = None;
        let real = say(outcome, |outcome| match outcome {
            TransferOutcome::Moved(route) => {
                version = Some(route.version.0);
                "moved".into()
            }
            TransferOutcome::Lost(owner) => format!("lost to {}", owner.map_or("nobody".into(), |id| id.to_string())),
            TransferOutcome::TargetGone => "target gone".into(),
        });
        let gone = (!self.nodes[target].alive).then(|| "target gone".to_owned());
        let naive = self.fence(object, &held).or(gone);
        same("transfer", real, naive.unwrap_or_else(|| "moved".into()))?;
        if let Some(version) = version {
            self.grow(object, version)?;
            let entry = &mut self.entries[object];
            (entry.owner, entry.silent) = (Some((target, to.epoch)), false);
        }
        Ok(())
    }

    /// Records, bytes and indexes are as the naive map says.
    async fn compare(&mut self) -> Step {
        let mut owned: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for object in 0..OBJECTS {
            let (key, entry) = (&self.keys[object], &self.entries[object]);
            let route = self.nodes[0].book.read(key).await.map_err(|error| error.to_string())?;
            let owner = route.as_ref().and_then(|route| route.owner.clone());
            let naive = entry.owner.map(|(node, epoch)| NodeEpoch { id: self.nodes[node].id.clone(), epoch });
            same("owner", owner, naive)?;
            same("version", route.map_or(0, |route| route.version.0), entry.version)?;
            let stored = self.nodes[0].book.load(key).await.map_err(|error| error.to_string())?;
            same("bytes", stored.map(|stored| (stored.cas.0, stored.data)), entry.bytes.clone())?;
            if let Some((node, _)) = entry.owner {
                owned.entry(format!("b{node}")).or_default().insert(key.to_string());
            }
        }
        let list: BTreeSet<String> = ask(&mut self.conn, &["SMEMBERS", &key("owned")]).await;
        same("STO-16: the nodes that own something", list, owned.keys().cloned().collect())?;
        for (node, objects) in owned {
            let real: BTreeSet<String> = ask(&mut self.conn, &["SMEMBERS", &key(&format!("owned:{node}"))]).await;
            same("STO-16: what a node owns", real, objects)?;
        }
        Ok(())
    }

    /// Does all of `list` and compares after each step.
    pub async fn live_through(store: &Store, conn: &MultiplexedConnection, list: &[Op]) -> Step {
        let mut world = Self::new(store, conn).await;
        for (step, op) in list.iter().enumerate() {
            let lived = match world.happen(op).await {
                Ok(()) => world.compare().await,
                failed => failed,
            };
            lived.map_err(|why| format!("step {step}, {op:?}: {why}"))?;
        }
        Ok(())
    }
}
