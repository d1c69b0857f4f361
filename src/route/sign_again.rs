//! A change of the fleet's secret: records and objects that only an old secret verifies are signed again, so that the
//! old one can be dropped.

use crate::error::{Error, Result};
use crate::ids::ObjectKey;
use crate::store::{Invocation, Key, Row, Store, Verifier, scripts};

use super::book::RouteBook;
use super::record::{Route, StoredObject, sign_object, sign_route};

/// Rows that are read whole at a time: an object has up to 1 MiB.
const BATCH: usize = 16;

/// What carries a signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Signed {
    /// Who owns an object.
    Route(ObjectKey),
    /// An object's bytes.
    Object(ObjectKey),
}

impl Signed {
    /// Reads what stands behind the zone in a key; `None` for a key of anything else.
    pub(super) fn read(name: &str) -> Option<Self> {
        match name.split_once(':')? {
            ("route", object) => ObjectKey::read(object).ok().map(Self::Route),
            ("object", object) => ObjectKey::read(object).ok().map(Self::Object),
            _ => None,
        }
    }

    fn key<'a>(&'a self, store: &'a Store) -> Key<'a> {
        match self {
            Self::Route(object) => store.keys().route(object),
            Self::Object(object) => store.keys().object(object),
        }
    }

    /// The call that signs a row again which was read and verified; `None` where it is gone.
    fn call(&self, store: &Store, verifier: &Verifier, row: &Row) -> Result<Option<Invocation>> {
        let (field, number, sig) = match self {
            Self::Route(object) => {
                let Some(route) = Route::from_row(verifier, object, row)? else { return Ok(None) };
                let sig = sign_route(verifier, object, route.owner.as_ref(), route.version);
                ("version", route.version.0, sig)
            }
            Self::Object(object) => {
                let Some(stored) = StoredObject::from_row(verifier, object, row)? else { return Ok(None) };
                let sig = sign_object(verifier, object, stored.cas, stored.route_version, &stored.data);
                ("cas", stored.cas.0, sig)
            }
        };
        let call = Invocation::new(&scripts::ROUTE_SIGN, &[self.key(store)]);
        Ok(Some(call.arg(field).arg(number).arg(row.text("sig")).arg(&sig)))
    }
}

/// Those of `all` that were signed with another secret than the present one.
async fn of_another_secret<'a>(
    store: &Store,
    verifier: &Verifier,
    all: &'a [Signed],
) -> Result<Vec<(&'a Signed, String)>> {
    let keys: Vec<Key<'_>> = all.iter().map(|signed| signed.key(store)).collect();
    let rows = store.fields(&keys, &["sig"]).await?;
    let present = verifier.keyring().kid().as_str();
    let kid = |row: &Row| row.text("sig").split('.').next().unwrap_or("").to_owned();
    let old = all.iter().zip(&rows).map(|(signed, row)| (signed, kid(row)));
    Ok(old.filter(|(_, kid)| !kid.is_empty() && kid != present).collect())
}

/// Signs those of `all` again that were signed with an old secret which is accepted still, each by compare-and-set, so that
/// what is written meanwhile stands. Answers how many. Any number may do it at once. Runs `route/sign`.
pub(super) async fn sign_again(book: &RouteBook, all: &[Signed]) -> Result<u64> {
    let (store, verifier) = (book.store(), book.verifier());
    let accepted = verifier.keyring().accepted_kids();
    let old: Vec<&Signed> = of_another_secret(store, verifier, all)
        .await?
        .into_iter()
        .filter(|(_, kid)| accepted.iter().any(|accepted| accepted.as_str() == kid))
        .map(|(signed, _)| signed)
        .collect();
    let mut signed = 0;
    for batch in old.chunks(BATCH) {
        let keys: Vec<Key<'_>> = batch.iter().map(|signed| signed.key(store)).collect();
        let rows = store.rows_each(&keys).await?;
        // A row that does not verify was audited, and stays as it is.
        let calls = batch.iter().zip(rows).filter_map(|(signed, row)| signed.call(store, verifier, &row.ok()?).ok()?);
        let calls: Vec<Invocation> = calls.collect();
        for answer in store.run_many(&calls).await? {
            signed += u64::from(answer?.word() == "SIGNED");
        }
    }
    metrics::counter!("maitred_routes_signed_again_total").increment(signed);
    Ok(signed)
}

/// What a scan for old signatures found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SignedBefore {
    /// Routes and objects looked at.
    pub looked_at: u64,
    /// Those that were signed with another secret than the present one.
    pub old: u64,
    /// Those of them whose key is not accepted either: of a secret that was dropped, or written by a stranger. Nobody acts on
    /// them, and nobody signs them again.
    pub strange: u64,
    /// False where the walk ended at its limit.
    pub whole: bool,
}

/// Counts the routes and objects that were signed with another secret than the present one: what has to be signed again
/// before the old secret is dropped. Walks over the keys of the whole store (`SCAN`), at most `steps` times about 1,000.
pub async fn signed_before(store: &Store, verifier: &Verifier, steps: usize) -> Result<SignedBefore> {
    let (mut found, accepted) = (SignedBefore::default(), verifier.keyring().accepted_kids());
    let mut cursor = 0;
    for _ in 0..steps {
        let names;
        (cursor, names) = store.names_from("", cursor).await?;
        let all: Vec<Signed> = names.iter().filter_map(|name| Signed::read(name)).collect();
        found.looked_at = found.looked_at.saturating_add(u64::try_from(all.len()).unwrap_or(u64::MAX));
        for (_, kid) in of_another_secret(store, verifier, &all).await? {
            found.old = found.old.saturating_add(1);
            found.strange =
                found.strange.saturating_add(u64::from(!accepted.iter().any(|known| known.as_str() == kid)));
        }
        if cursor == 0 {
            found.whole = true;
            break;
        }
    }
    Ok(found)
}

/// True where the store refuses a command to this user.
pub(super) fn is_denied(error: &Error) -> bool {
    matches!(error, Error::Refused { refusal: crate::error::StoreRefusal::Denied, .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    // what is not recognised keeps the old secret's signature and is lost with it.
    #[test]
    fn r_29_keys_of_records_and_objects_are_told_from_all_others() {
        let object = ObjectKey::read("island:a:b").expect("a key");
        assert_eq!(Signed::read("route:island:a:b"), Some(Signed::Route(object.clone())));
        assert_eq!(Signed::read("object:island:a:b"), Some(Signed::Object(object)));
        for other in ["token:alice", "route", "route:island", "owned", "owned:route:island:a", "routes:island:a", ""] {
            assert_eq!(Signed::read(other), None, "{other}");
        }
    }
}
