use indicatif::ProgressBar;

use crate::Failure;
use maitred::ids::{NodeEpoch, ObjectId, ObjectKey, ObjectKind, OperationId};
use maitred::route::{Held, RouteBook, RouteVersion};
use maitred::store::{BareCall, Invocation};

use super::bare;
use super::figure::Figure;
use super::server::{Rounds, bare_micros, script_micros, server};
use super::stage::Stage;

/// Server time of acquire, save (without bytes) and release of objects without a record.
pub(super) async fn measure(
    stage: &mut Stage,
    objects: usize,
    rounds: usize,
    bar: &ProgressBar,
) -> Result<Vec<Figure>, Failure> {
    let (book, owner) = stage.routes().await?;
    let store = stage.store.clone();
    let mut floors = Vec::new();
    for source in [bare::ACQUIRE, bare::RENEW, bare::RELEASE] {
        floors.push(store.load_bare(source).await?);
    }
    let mut figures: [Rounds; 3] = Default::default();
    for round in 0..rounds {
        // An owner that owns something else has an index that does not come and go with each object.
        for floor_now in [round % 2 == 1, round % 2 == 0] {
            let held = fresh(&book, &owner, objects)?;
            for (kind, (sha, figure)) in floors.iter().zip(&mut figures).enumerate() {
                let calls: Vec<Invocation> = held.iter().map(|held| call(&book, held, kind)).collect();
                if floor_now {
                    let calls: Vec<BareCall> = calls.iter().map(|call| call.bare(sha)).collect();
                    figure.floor.extend(bare_micros(&store, &calls).await?);
                } else {
                    figure.ours.extend(script_micros(&store, &calls).await?);
                }
            }
        }
        bar.inc(1);
    }
    let keys = store.keys();
    for key in [keys.owned(&owner.id), keys.owners()] {
        store.bare_command(&["DEL", &key.to_string()]).await?;
    }
    let names = ["acquire", "save (route only)", "release (route)"];
    let figures = names.into_iter().zip(&figures);
    Ok(figures.filter_map(|(name, figure)| Figure::of(server(name), "us", &figure.ours, &figure.floor)).collect())
}

/// Objects that nobody owns, as they are once they were taken.
fn fresh(book: &RouteBook, owner: &NodeEpoch, objects: usize) -> Result<Vec<Held>, Failure> {
    let kind = ObjectKind::new("bench")?;
    let version = RouteVersion(book.store().clock().past_ms());
    let keys = (0..objects).map(|_| ObjectId::new(OperationId::fresh()).map(|id| ObjectKey::new(&kind, &id)));
    let keys = keys.collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(keys.iter().map(|key| Held::new(book.verifier(), key, owner.clone(), version)).collect())
}

/// The calls of one object's life, by number.
fn call(book: &RouteBook, held: &Held, kind: usize) -> Invocation {
    match kind {
        0 => book.acquire_call(held, None, true),
        1 => book.renew_call(held),
        _ => {
            let now = book.store().clock().past_ms();
            book.release_call(held, RouteVersion(now.max(held.version.0.saturating_add(1))), false)
        }
    }
}
