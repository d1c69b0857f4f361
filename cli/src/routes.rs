//! `maitred routes`: who owns what; `maitred route <kind> <object>`: one object's record.

use clap::Args;
use serde::Serialize;

use maitred::error::{Error, StoreRefusal};
use maitred::ids::{Epoch, NodeId, ObjectId, ObjectKey, ObjectKind};
use maitred::node::Lease;
use maitred::route::{Cas, Route, RouteBook, RouteState, RouteVersion};
use maitred::store::{Key, Store};

use super::Failure;
use super::context::Context;
use super::view::{self, Grid, Tone};

/// Routes shown unless another number is given.
const LIMIT: usize = 50;

const LIST_HELP: &str = "\
Objects that somebody owns, by owner and name. A record that does not verify is not shown; it is counted.

With --json one object: zone, as_of, total, routes (object, owner, owner_epoch, version, state, saved_at, age_ms), stray (index \
entries whose record is gone or another's), not_believed, unreadable (owners whose index is of another type). age_ms is the time since the object was last saved.";

const ONE_HELP: &str = "\
With --json one object: object, as_of, route (null, or owner, owner_epoch, version, state, saved_at, age_ms), owner_alive, stored \
(null, or cas, route_version, bytes). age_ms is the time since the object was last saved; an owner that saved nothing for the \
lock timeout loses the object to whoever wants it.";

/// Options of `routes`.
#[derive(Debug, Args)]
#[command(after_help = LIST_HELP)]
pub(super) struct ListOptions {
    /// Only objects of this owner
    #[arg(long, value_name = "ID")]
    owner: Option<NodeId>,
    /// Only objects of this kind
    #[arg(long, value_name = "KIND")]
    kind: Option<ObjectKind>,
    /// Most routes shown
    #[arg(long, value_name = "N", default_value_t = LIMIT)]
    limit: usize,
}

/// Options of `route`.
#[derive(Debug, Args)]
#[command(after_help = ONE_HELP)]
pub(super) struct OneOptions {
    /// The object's kind
    kind: ObjectKind,
    /// The object
    object: ObjectId,
}

#[derive(Debug, Serialize)]
struct Listed {
    zone: String,
    as_of: u64,
    /// Index entries that fit the options.
    total: usize,
    routes: Vec<Shown>,
    stray: usize,
    not_believed: usize,
    unreadable: Vec<NodeId>,
}

#[derive(Debug, Serialize)]
struct Shown {
    object: ObjectKey,
    owner: Option<NodeId>,
    owner_epoch: Epoch,
    version: RouteVersion,
    state: RouteState,
    saved_at: u64,
    age_ms: u64,
}

#[derive(Debug, Serialize)]
struct One {
    object: ObjectKey,
    as_of: u64,
    route: Option<Shown>,
    owner_alive: Option<bool>,
    stored: Option<Stored>,
}

#[derive(Debug, Serialize)]
struct Stored {
    cas: Cas,
    route_version: RouteVersion,
    bytes: usize,
}

impl Shown {
    fn new(route: Route, now_ms: u64) -> Self {
        let (owner, owner_epoch) = route.owner.map_or((None, Epoch::NONE), |owner| (Some(owner.id), owner.epoch));
        Self {
            object: route.key,
            owner,
            owner_epoch,
            version: route.version,
            state: route.state,
            saved_at: route.saved_at_ms,
            age_ms: now_ms.saturating_sub(route.saved_at_ms),
        }
    }

    fn owner_text(&self) -> String {
        self.owner.as_ref().map_or_else(|| "nobody".to_owned(), ToString::to_string)
    }

    fn state_text(&self) -> (&'static str, Tone) {
        match self.state {
            RouteState::Owned => ("owned", Tone::Good),
            RouteState::Moved => ("moved, not confirmed yet", Tone::Warn),
            RouteState::Free => ("free", Tone::Dim),
        }
    }
}

/// The routes of the zone, read by somebody who owns nothing.
async fn book(context: &Context) -> Result<RouteBook, Failure> {
    let (store, verifier) = context.fleet_to_read().await?;
    let nobody = Lease::new(NodeId::new("cli")?, 1);
    Ok(RouteBook::new(store, verifier, nobody, context.config.routes.times()))
}

/// The index: which node owns which objects, as far as the options want to know.
struct Index {
    objects: Vec<(NodeId, ObjectKey)>,
    /// Owners whose index is of another type: somebody wrote it by hand.
    unreadable: Vec<NodeId>,
}

async fn indexed(store: &Store, options: &ListOptions) -> Result<Index, Failure> {
    let owners = match &options.owner {
        Some(owner) => vec![owner.clone()],
        None => {
            let names = store.members(store.keys().owners()).await?;
            names.iter().filter_map(|name| NodeId::new(name).ok()).collect()
        }
    };
    let mut found = Index { objects: Vec::new(), unreadable: Vec::new() };
    for owner in owners {
        let objects = match store.members(store.keys().owned(&owner)).await {
            Err(Error::Refused { refusal: StoreRefusal::WrongType, .. }) => {
                found.unreadable.push(owner);
                continue;
            }
            objects => objects?,
        };
        let objects = objects.iter().filter_map(|object| ObjectKey::read(object).ok());
        let wanted = |object: &ObjectKey| options.kind.as_ref().is_none_or(|kind| kind.as_str() == object.kind());
        found.objects.extend(objects.filter(wanted).map(|object| (owner.clone(), object)));
    }
    Ok(found)
}

pub(super) async fn list(context: &Context, options: ListOptions) -> Result<(), Failure> {
    let book = book(context).await?;
    let store = book.store();
    let Index { objects: indexed, unreadable } = indexed(store, &options).await?;
    let shown: Vec<&(NodeId, ObjectKey)> = indexed.iter().take(options.limit).collect();
    let keys: Vec<Key<'_>> = shown.iter().map(|(_, object)| store.keys().route(object)).collect();
    let rows = store.rows_each(&keys).await?;
    let now = store.clock().now_ms();
    let (mut routes, mut stray, mut not_believed) = (Vec::new(), 0, 0);
    for ((owner, object), row) in shown.iter().zip(rows) {
        match row.and_then(|row| Route::from_row(book.verifier(), object, &row)) {
            Ok(Some(route)) if route.owner.as_ref().is_some_and(|found| found.id == *owner) => {
                routes.push(Shown::new(route, now));
            }
            Ok(_) => stray += 1,
            Err(_) => not_believed += 1,
        }
    }
    let (zone, total) = (store.keys().zone().to_string(), indexed.len());
    let listed = Listed { zone, as_of: now, total, routes, stray, not_believed, unreadable };
    if context.json {
        view::json(&listed);
    } else {
        listed.print();
    }
    Ok(())
}

impl Listed {
    fn print(&self) {
        if !self.routes.is_empty() {
            let mut grid = Grid::new(&["OBJECT", "OWNER", "SAVED", "STATE", "VERSION", "EPOCH"]).optional(2);
            for route in &self.routes {
                let (state, tone) = route.state_text();
                grid.row([
                    (route.object.to_string(), Tone::Plain),
                    (route.owner_text(), Tone::Plain),
                    (format!("{} ago", view::ago(route.age_ms)), Tone::Plain),
                    (state.to_owned(), tone),
                    (route.version.to_string(), Tone::Dim),
                    (route.owner_epoch.to_string(), Tone::Dim),
                ]);
            }
            grid.print();
        }
        let mut text = format!("{} owned in zone {}", view::counted(self.total, "object"), self.zone);
        let seen = self.routes.len() + self.stray + self.not_believed;
        if seen < self.total {
            text.push_str(&format!(", {seen} looked at (--limit)"));
        }
        if self.stray > 0 {
            text.push_str(&format!(", {} without a record of that owner", self.stray));
        }
        if self.not_believed > 0 {
            text.push_str(&format!(", {} not believed", self.not_believed));
        }
        for owner in &self.unreadable {
            text.push_str(&format!(", owned:{owner} is of another type: look at it and DEL it by hand"));
        }
        view::line(&text);
    }
}

pub(super) async fn one(context: &Context, options: OneOptions) -> Result<(), Failure> {
    let book = book(context).await?;
    let store = book.store();
    let object = ObjectKey::new(&options.kind, &options.object);
    let advised = |error: Error, key: Key<'_>| match error {
        Error::Refused { refusal: StoreRefusal::WrongType, .. } => {
            Failure::Io(format!("{key} is of another type; no member wrote it: look at it and DEL it by hand"))
        }
        Error::Untrusted { .. } => Failure::Io(format!(
            "{error}; no member wrote it, so nothing acts on it: look at {key} in the store and DEL it by hand"
        )),
        other => Failure::Error(other),
    };
    let route = book.read(&object).await.map_err(|error| advised(error, store.keys().route(&object)))?;
    let stored = book.load(&object).await.map_err(|error| advised(error, store.keys().object(&object)))?;
    let owner_alive = match route.as_ref().and_then(|route| route.owner.as_ref()) {
        Some(owner) => {
            let row = store.row(store.keys().node(&owner.id)).await?;
            Some(row.number("epoch") == Some(owner.epoch.0))
        }
        None => None,
    };
    let now = store.clock().now_ms();
    let one = One {
        object,
        as_of: now,
        route: route.map(|route| Shown::new(route, now)),
        owner_alive,
        stored: stored.map(|stored| Stored {
            cas: stored.cas,
            route_version: stored.route_version,
            bytes: stored.data.len(),
        }),
    };
    if context.json {
        view::json(&one);
    } else {
        one.print();
    }
    Ok(())
}

impl One {
    fn print(&self) {
        let Some(route) = &self.route else {
            view::line(&format!("nobody owns {}", view::plain(self.object.as_str())));
            return self.print_stored();
        };
        let mut grid = Grid::new(&["ROUTE OF", self.object.as_str()]);
        let mut row = |name: &str, text: String, tone: Tone| grid.row([(name.to_owned(), Tone::Dim), (text, tone)]);
        match (&route.owner, self.owner_alive) {
            (Some(owner), Some(true)) => row("owner", format!("{owner} (epoch {})", route.owner_epoch), Tone::Good),
            (Some(owner), _) => {
                let text = format!("{owner} (epoch {}), which holds no lease", route.owner_epoch);
                row("owner", text, Tone::Warn);
                row(
                    "taken over",
                    "by the next that asks where writes are fenced, else after the lock timeout".to_owned(),
                    Tone::Plain,
                );
            }
            (None, _) => row("owner", "nobody".to_owned(), Tone::Plain),
        }
        let (state, tone) = route.state_text();
        row("state", state.to_owned(), tone);
        row("version", route.version.to_string(), Tone::Plain);
        row("saved", format!("{} ago", view::ago(route.age_ms)), Tone::Plain);
        grid.print();
        self.print_stored();
    }

    fn print_stored(&self) {
        if let Some(stored) = &self.stored {
            let text = format!(
                "{} in the built-in store: write number {}, under version {}",
                view::counted(stored.bytes, "byte"),
                stored.cas,
                stored.route_version
            );
            view::line(&text);
        }
    }
}
