use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::value::RawValue;

use maitred::error::{Error, Result};
use maitred::ids::{Incarnation, NodeEpoch, NodeId, OperationId, Player, RequestId, Role, TokenId};
use maitred::node::{Control, Identity, Lease, Membership, NodeRecord, roster};
use maitred::store::{Store, Verifier};
use maitred::token::{Book, BookOptions, IssueOrder, IssueOutcome, ReapOptions, TokenState, reap_servers};

use super::super::context::Context;
use super::Finding;

/// How long the scratch node holds its lease, in ms: long enough for a slow store.
const LEASE_MS: u64 = 10_000;
/// Life of a scratch token, in ms, and how long it stays readable after its end.
const TTL_MS: u64 = 5_000;
const SHORT_TTL_MS: u64 = 200;
const AUDIT_MS: u64 = 1;

/// One step of the probe.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Step {
    pub step: &'static str,
    pub answer: String,
    pub good: bool,
    pub micros: u64,
}

/// Real round trips on a scratch node and player. What goes wrong is a finding; everything is taken away again.
pub(super) async fn run(
    context: &Context,
    store: &Store,
    verifier: &Verifier,
    findings: &mut Vec<Finding>,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let outcome = walk(context, store, verifier, &mut steps).await;
    match outcome {
        Ok(()) if steps.iter().all(|step| step.good) => {
            findings.push(Finding::ok("probe", format!("{} steps, nothing left behind", steps.len())));
        }
        Ok(()) => {
            findings.push(Finding::fail("probe", "a step was answered otherwise than it should", "see the steps"))
        }
        Err(Error::KillSwitch { scope }) => {
            let detail = format!("stopped at the kill switch ({scope})");
            findings.push(Finding::warn("probe", detail, "probe again when it is off"));
        }
        Err(error) => findings.push(Finding::error("probe", &error)),
    }
    steps
}

struct Timer<'a> {
    steps: &'a mut Vec<Step>,
}

impl Timer<'_> {
    async fn step<T>(
        &mut self,
        step: &'static str,
        wanted: impl FnOnce(&T) -> bool,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T>
    where
        T: std::fmt::Debug,
    {
        let started = Instant::now();
        let outcome = work.await;
        let micros = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let (answer, good) = match &outcome {
            Ok(value) if wanted(value) => ("ok".to_owned(), true),
            Ok(value) => (format!("{value:?}").chars().take(60).collect(), false),
            Err(error) => (error.to_string(), false),
        };
        self.steps.push(Step { step, answer, good, micros });
        outcome
    }
}

async fn walk(context: &Context, store: &Store, verifier: &Verifier, steps: &mut Vec<Step>) -> Result<()> {
    let scratch = Incarnation::fresh();
    let id = NodeId::new(format!("doctor-{scratch}"))?;
    let player = Player::new(format!("doctor-{scratch}"))?;
    let control = Control::default();
    control.refresh(store, verifier).await?;
    let identity = Identity { id: id.clone(), role: Role::new("doctor")?, addr: "127.0.0.1:1".to_owned() };
    let lease = Lease::new(id.clone(), LEASE_MS);
    let mut member = Membership::new(store.clone(), verifier.clone(), identity, lease.clone());
    let mut timer = Timer { steps };
    let walked = tokens(context, store, verifier, &control, &mut member, &player, &mut timer).await;

    // Whatever happened above, nothing stays: an open token goes, the row and roster entry, then the scratch id's epoch.
    let book = Book::new(
        store.clone(),
        verifier.clone(),
        control,
        BookOptions { audit_ms: AUDIT_MS, ..BookOptions::default() },
    );
    let released = match book.find(&player).await {
        Ok(Some(row)) if row.state.is_open() => {
            let me = NodeEpoch { id: id.clone(), epoch: lease.epoch() };
            book.release_own(&row.token.id, &player, &me, "probe").await.map(|_| ())
        }
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    let left = timer.step("leave", |()| true, member.leave()).await;
    let forgotten = timer.step("forget", |n| *n == 1, roster::forget_one(store, &id)).await;
    walked.and(released).and(left).and(forgotten.map(|_| ()))
}

async fn tokens(
    context: &Context,
    store: &Store,
    verifier: &Verifier,
    control: &Control,
    member: &mut Membership,
    player: &Player,
    timer: &mut Timer<'_>,
) -> Result<()> {
    let record = NodeRecord::blank(member.identity());
    timer.step("join", |_| true, member.join(record.clone())).await?;
    timer.step("beat", |_| true, member.beat(record, control)).await?;
    let me = NodeEpoch { id: member.lease().id().clone(), epoch: member.lease().epoch() };
    let times = maitred::agent::Setup::book_options(&context.config);
    let book = |ttl_ms, audit_ms| {
        Book::new(store.clone(), verifier.clone(), control.clone(), BookOptions { ttl_ms, audit_ms, ..times })
    };
    let order = || IssueOrder {
        id: TokenId::fresh(),
        player: player.clone(),
        request: RequestId::fresh(),
        attempt: 1,
        payload: RawValue::NULL.to_owned(),
        deadline_ms: store.clock().now_ms().saturating_add(TTL_MS),
        earlier: Vec::new(),
        issued_at_ms: store.clock().now_ms(),
    };
    let issued = |outcome: &IssueOutcome| matches!(outcome, IssueOutcome::Issued(_));

    let long = book(TTL_MS, AUDIT_MS);
    let mut first = order();
    let token = timer.step("issue", issued, long.issue(&me, &mut first)).await?;
    if let IssueOutcome::Issued(token) = token {
        let claimed =
            |outcome: &maitred::token::ClaimOutcome| matches!(outcome, maitred::token::ClaimOutcome::Claimed(_));
        timer.step("claim", claimed, long.claim(&token, &me, &OperationId::fresh())).await?;
        let consumed = |outcome: &maitred::token::ConsumeOutcome| *outcome == maitred::token::ConsumeOutcome::Consumed;
        let op = OperationId::fresh();
        timer.step("consume", consumed, long.consume(&token.id, player, &me, &op)).await?;
    }
    tokio::time::sleep(Duration::from_millis(AUDIT_MS + 20)).await;

    // The row has to outlive its expiry to be seen, and goes right after.
    let (short, sweeper) = (book(SHORT_TTL_MS, TTL_MS), book(SHORT_TTL_MS, AUDIT_MS));
    let mut second = order();
    timer.step("issue for expiry", issued, short.issue(&me, &mut second)).await?;
    tokio::time::sleep(Duration::from_millis(SHORT_TTL_MS + 50)).await;
    let own = [me.id.clone()];
    let reaped = async {
        let report = reap_servers(&sweeper, &own, ReapOptions::default()).await?;
        if report.expired == 1 {
            return Ok(None);
        }
        // On a live fleet an agent may have swept it first; its row then stays for the fleet's audit time.
        let left = sweeper.find(player).await?.map(|row| row.state);
        Ok(left.filter(|state| *state != TokenState::Expired))
    };
    timer.step("expire", Option::is_none, reaped).await?;
    tokio::time::sleep(Duration::from_millis(AUDIT_MS + 20)).await;

    let inbox = store.keys().inbox(&me.id);
    timer.step("publish and hear", |_| true, store.publish_to_self(inbox, "doctor")).await?;
    Ok(())
}
