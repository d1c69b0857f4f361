//! When a claim is taken from its claimant, to the moment: not before, and not much later.

use maitred::ids::{Epoch, NodeEpoch, NodeId, OperationId, Role};
use maitred::token::{BookOptions, ReapOptions, TokenState, reap};

use crate::fixtures::tokens::{Bench, Member, player, request, say};
use maitred_testkit::store::TestStore;

/// Between any two moments that these tests tell apart lies more than a slow machine takes.
const STEP_MS: u64 = 60_000;
const LEASE_MS: u64 = 10 * STEP_MS;
const TIMES: BookOptions =
    BookOptions { ttl_ms: 30 * STEP_MS, claim_reanimate_ms: 4 * STEP_MS, audit_ms: 60 * STEP_MS };

struct LeasedZone {
    bench: Bench,
    b1: Member,
    a: Member,
    b: Member,
}

impl LeasedZone {
    /// A backend that lives for ever, and proxies whose leases end.
    async fn new(server: &TestStore, zone: &str) -> Self {
        let mut bench = Bench::with_times(server, zone, TIMES).await;
        let b1 = bench.join("b1", Role::backend()).await;
        bench.lease_ms = LEASE_MS;
        let a = bench.join("A", Role::proxy()).await;
        let b = bench.join("B", Role::proxy()).await;
        Self { bench, b1, a, b }
    }

    async fn sweep(&self) {
        let dry = reap(&self.b.book, None, ReapOptions { dry_run: true, ..ReapOptions::default() }).await.unwrap();
        assert_eq!(reap(&self.b.book, None, ReapOptions::default()).await.unwrap(), dry);
    }

    async fn state(&self) -> TokenState {
        self.b.book.find(&player("alice")).await.unwrap().expect("it is there").state
    }

    /// Lets time pass a step at a time, a sweep after each, and tells after how many steps the token was `wanted`.
    async fn steps_until(&self, wanted: TokenState, at_most: u64) -> u64 {
        for step in 0..=at_most {
            self.sweep().await;
            if self.state().await == wanted {
                return step;
            }
            self.bench.age(STEP_MS).await;
        }
        panic!("it is not {wanted} after {at_most} steps but {}", self.state().await);
    }

    async fn due_in_steps(&self) -> u64 {
        let due = self.bench.due_at(&self.b1.who.id, &player("alice")).await.expect("in the index");
        (due.saturating_sub(self.bench.now().await) + STEP_MS / 2) / STEP_MS
    }
}

// TOK-6: the claim's age decides where the lease ended before.
#[tokio::test]
async fn tok_6_a_dead_claimants_claim_is_reopened_at_claim_plus_reanimate() {
    let server = TestStore::start();
    let fixture = LeasedZone::new(&server, "age").await;
    let token = fixture.b1.issued(&player("alice"), &request("r"), 1).await;
    // The claim falls between two looks at the token, and the lease ends a step after it.
    fixture.bench.age(9 * STEP_MS).await;
    assert_eq!(say(&fixture.a.claim(&token).await), "Claimed");
    assert_eq!(fixture.steps_until(TokenState::Pending, 30).await, 4);
}

// TOK-6: the end of the lease decides where it comes later.
#[tokio::test]
async fn tok_6_a_claim_is_not_reopened_before_the_end_of_its_claimants_lease() {
    let server = TestStore::start();
    let fixture = LeasedZone::new(&server, "lease").await;
    let token = fixture.b1.issued(&player("alice"), &request("r"), 1).await;
    fixture.bench.age(2 * STEP_MS).await;
    assert_eq!(say(&fixture.a.claim(&token).await), "Claimed");
    let mut ear = fixture.bench.listen().await;
    assert_eq!(fixture.steps_until(TokenState::Pending, 30).await, 8, "ten after the last beat");
    assert_eq!(ear.heard().await, [format!("reopened alice {} b1", token.id)]);
    // What happened is still told, and verified.
    let row = fixture.b.book.find(&player("alice")).await.unwrap().unwrap();
    assert!(row.claim.is_none());
    assert_eq!(row.last_claim.unwrap().claimant, fixture.a.who.id);
}

// TOK-6, R-16: slow is not dead. The claim stands until the token's own end, and is looked at once a lease.
#[tokio::test]
async fn tok_6_a_live_but_slow_claimant_keeps_its_claim_until_the_tokens_end() {
    let server = TestStore::start();
    let mut fixture = LeasedZone::new(&server, "slow").await;
    let token = fixture.b1.issued(&player("alice"), &request("r"), 1).await;
    assert_eq!(say(&fixture.a.claim(&token).await), "Claimed");
    for step in 1..30 {
        fixture.bench.age(STEP_MS).await;
        if step % 5 == 0 {
            fixture.a.beat().await;
        }
        fixture.sweep().await;
        assert_eq!(fixture.state().await, TokenState::Claimed, "step {step}");
        let due = fixture.due_in_steps().await;
        assert!(due <= (30 - step).min(10), "step {step}: looked at again in {due} steps");
    }
    fixture.bench.age(STEP_MS).await;
    fixture.sweep().await;
    assert_eq!(fixture.state().await, TokenState::Expired);
}

// R-16: a live claim is looked at again at its claimant's last beat plus the lease.
#[tokio::test]
async fn r_16_a_live_claim_is_looked_at_again_at_the_end_of_its_claimants_lease() {
    let server = TestStore::start();
    let mut fixture = LeasedZone::new(&server, "look").await;
    let token = fixture.b1.issued(&player("alice"), &request("r"), 1).await;
    assert_eq!(fixture.due_in_steps().await, 4);
    assert_eq!(say(&fixture.a.claim(&token).await), "Claimed");
    fixture.bench.age(3 * STEP_MS).await;
    fixture.a.beat().await;
    fixture.bench.age(2 * STEP_MS).await;
    fixture.sweep().await;
    assert_eq!(fixture.due_in_steps().await, 8);
}

// TOK-6: a router has no lease that anybody could look at.
#[tokio::test]
async fn tok_6_a_claim_of_epoch_0_is_reopened_by_its_age_alone() {
    let server = TestStore::start();
    let fixture = LeasedZone::new(&server, "router").await;
    let token = fixture.b1.issued(&player("alice"), &request("r"), 1).await;
    // A member of the same name that is alive says nothing about the router.
    let router = NodeEpoch { id: fixture.a.who.id.clone(), epoch: Epoch::NONE };
    assert_eq!(say(&fixture.b.book.claim(&token, &router, &OperationId::fresh()).await), "Claimed");
    assert_eq!(fixture.steps_until(TokenState::Pending, 30).await, 4);
}

// TOK-6: another incarnation under the same id is not the claimant.
#[tokio::test]
async fn tok_6_a_claim_of_an_earlier_incarnation_is_reopened() {
    let server = TestStore::start();
    let mut fixture = LeasedZone::new(&server, "epoch").await;
    let token = fixture.b1.issued(&player("alice"), &request("r"), 1).await;
    assert_eq!(say(&fixture.a.claim(&token).await), "Claimed");
    fixture.bench.age(STEP_MS).await;
    let new = fixture.bench.replace(&mut fixture.a).await;
    assert_ne!(new.who.epoch, fixture.a.who.epoch);
    assert_eq!(fixture.steps_until(TokenState::Pending, 30).await, 3, "at its age, for the new one is alive");
}

// TOK-3: reanimation gives nobody more time.
#[tokio::test]
async fn tok_3_reopening_never_extends_a_tokens_time() {
    let server = TestStore::start();
    let mut fixture = LeasedZone::new(&server, "never-longer").await;
    let token = fixture.b1.issued(&player("alice"), &request("r"), 1).await;
    fixture.bench.age(25 * STEP_MS).await;
    let router = NodeEpoch { id: NodeId::new("router").unwrap(), epoch: Epoch::NONE };
    assert_eq!(say(&fixture.b.book.claim(&token, &router, &OperationId::fresh()).await), "Claimed");
    let before = fixture.b.book.find(&player("alice")).await.unwrap().unwrap();
    let kept = fixture.bench.ttl("token:alice").await;
    assert_eq!(fixture.steps_until(TokenState::Pending, 10).await, 4);
    let after = fixture.b.book.find(&player("alice")).await.unwrap().unwrap();
    let step = u64::try_from(kept).unwrap() - u64::try_from(fixture.bench.ttl("token:alice").await).unwrap();
    assert!(step >= 4 * STEP_MS, "the row lives as long as before");
    assert_eq!(before.token.expires_at_ms - after.token.expires_at_ms, 4 * STEP_MS, "it only became older");
    assert_eq!(fixture.due_in_steps().await, 1, "looked at again at its end, and not a whole reanimation later");
    fixture.bench.age(STEP_MS).await;
    fixture.b.rejoin().await;
    assert_eq!(say(&fixture.b.claim(&token).await), "Expired");
    fixture.sweep().await;
    assert_eq!(fixture.state().await, TokenState::Expired);
}

// R-13: the player of a slow proxy lands with the place that was reserved for him, reopened or claimed by another.
#[tokio::test]
async fn r_13_arrival_decides_over_a_claim_that_was_reopened() {
    let server = TestStore::start();
    let mut fixture = LeasedZone::new(&server, "arrival").await;
    for claimed_again in [false, true] {
        fixture.bench.clear_tokens().await;
        fixture.a.rejoin().await;
        fixture.b.rejoin().await;
        let token = fixture.b1.issued(&player("alice"), &request("r"), 1).await;
        assert_eq!(say(&fixture.b1.consume(&token).await), "NotClaimed");
        assert_eq!(say(&fixture.a.claim(&token).await), "Claimed");
        fixture.steps_until(TokenState::Pending, 30).await;
        fixture.a.rejoin().await;
        fixture.b.rejoin().await;
        if claimed_again {
            assert_eq!(say(&fixture.b.claim(&token).await), "Claimed");
        }
        let op = OperationId::fresh();
        let consumed = fixture.b1.book.consume(&token.id, &token.player, &fixture.b1.who, &op).await;
        assert_eq!(say(&consumed), "Consumed");
        for proxy in [&fixture.a, &fixture.b] {
            assert_eq!(say(&proxy.book.release_claim(&token, &proxy.who, None, "late").await), "Landed");
        }
    }
}
