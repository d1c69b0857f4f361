//! What the doctor says of routes and objects.

use maitred::error::{Error, Result, StoreRefusal};
use maitred::route::signed_before;
use maitred::store::{Store, Verifier};

use super::{Finding, STRANGER};

/// Longest walk over the keys, in thousands of them.
const WALK_STEPS: usize = 200;

/// Whether all of them are signed with the present secret.
pub(super) async fn check(store: &Store, verifier: &Verifier) -> Result<Finding> {
    let found = match signed_before(store, verifier, WALK_STEPS).await {
        Err(Error::Refused { refusal: StoreRefusal::Denied, .. }) => {
            return Ok(Finding::ok("routes", "the store does not let this user SCAN: signatures not looked at"));
        }
        found => found?,
    };
    let mut detail = format!("{} routes and objects", found.looked_at);
    if !found.whole {
        detail.push_str(&format!(" among about {} keys, the others not looked at", WALK_STEPS * 1_000));
    }
    let old = found.old.saturating_sub(found.strange);
    if old > 0 {
        detail.push_str(&format!("; {old} still signed with an old secret"));
    }
    if found.strange > 0 {
        let detail = format!("{detail}; {} not signed with any secret that is accepted here", found.strange);
        return Ok(Finding::fail("routes", detail, STRANGER));
    }
    if old == 0 {
        return Ok(Finding::ok("routes", detail));
    }
    let advice = "wait until the nodes that use routes signed them again before the old secret is dropped";
    Ok(Finding::warn("routes", detail, advice))
}
