//! DSP-8, R-39: what meets a request at the moment when it gets its place. Every pair of what is under way and what comes
//! between: what the caller is told is so, and nothing is left behind.

use std::time::Duration;

use maitred::agent::{BackendAgent, Outcome, ProxyAgent, Reason, Request, WaitUpdate};
use maitred::ids::RequestId;
use maitred::store::scripts;
use maitred::token::CancelOutcome;
use tokio::time::{sleep, timeout};

use super::kinds::{End, Fleet, Kind, Waits};
use crate::fixtures::agents::stock::Stock;
use crate::fixtures::agents::{LIMIT, key, pending, player, sees, state};
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::wait::eventually;

/// How far the request of the player is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It asks for a place, and the backend's token is being claimed.
    Dispatch,
    /// It enters the line.
    Enter,
    /// Its ticket is a token, and the proxy has not heard of it.
    Turn,
    /// That token is being claimed.
    Claim,
}

/// What comes between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meets {
    /// The player goes away for good.
    Cancel,
    /// The connection drops.
    Drop,
    /// The application lets go of the request.
    HangUp,
    /// Another request of the player.
    Again,
    /// The proxy's lease is over, and it joins again.
    Lapse,
    /// The proxy leaves, as for a reload.
    Leave,
}

struct Crossing {
    fleet: Fleet,
    wire: FaultProxy,
    p1: ProxyAgent,
    b1: BackendAgent<Stock>,
}

const CLAIM_TAKES: Duration = Duration::from_millis(250);

impl Crossing {
    async fn new() -> Self {
        let fleet = Fleet::new(Kind::Token);
        let wire = FaultProxy::start(&fleet.store);
        let mut config = fleet.config("p1", &wire.url());
        config.store.command_timeout_ms = 1_000;
        let p1 = crate::fixtures::agents::proxy(config).await;
        let b1 = fleet.backend("b1", 0).await;
        sees(&p1, &[&b1]).await;
        Self { fleet, wire, p1, b1 }
    }

    fn label(script: &maitred::store::scripts::Script) -> String {
        format!("EVALSHA {}", script.pinned())
    }

    /// A place comes in.
    fn restock(&self) {
        self.b1.inventory().restock(1);
        self.b1.restocked();
    }

    /// One pair. `Ok` with the end of the request where somebody is there to hear it.
    async fn run(&self, step: Step, meets: Meets, name: &str) -> Option<End> {
        let (wire, request) = (&self.wire, Request::new(player(name)));
        let id = request.id.clone();
        let script = match step {
            Step::Dispatch | Step::Claim => &scripts::TOKEN_CLAIM,
            Step::Enter => &scripts::QUEUE_ENTER,
            Step::Turn => &scripts::QUEUE_DRAIN,
        };
        let label = Self::label(script);
        match step {
            // A place that is there, and a request that gets it at once.
            Step::Dispatch => {
                self.b1.inventory().restock(1);
                self.idle().await;
            }
            Step::Enter => {}
            Step::Turn | Step::Claim => {
                let waits = self.fleet_waits(request).await;
                if step == Step::Turn {
                    wire.hold();
                } else {
                    wire.delay_replies_of(&label, CLAIM_TAKES);
                }
                let claims = wire.count(&label);
                self.restock();
                if step == Step::Turn {
                    let mut conn = self.fleet.conn().await;
                    eventually("the turn comes", LIMIT, async || state(&mut conn, name).await == "PENDING").await;
                } else {
                    eventually("the claim is under way", LIMIT, async || wire.count(&label) > claims).await;
                }
                return self.meet(step, meets, name, &id, waits).await;
            }
        }
        wire.delay_replies_of(&label, CLAIM_TAKES);
        let sent = wire.count(&label);
        let dispatching = self.p1.dispatch(request);
        tokio::pin!(dispatching);
        let under_way = async {
            eventually("it is under way", LIMIT, async || wire.count(&label) > sent).await;
            // The store has done it, and its answer is on the way.
            let mut conn = self.fleet.conn().await;
            eventually("it is done", LIMIT, async || match step {
                Step::Dispatch => state(&mut conn, name).await == "CLAIMED",
                _ => self.has_ticket(name).await,
            })
            .await;
        };
        tokio::select! {
            outcome = &mut dispatching => panic!("it was to take longer: {outcome:?}"),
            () = under_way => {}
        }
        if meets == Meets::HangUp {
            // Dropped on its way.
            return None;
        }
        let (outcome, ()) = tokio::join!(dispatching, self.disturb(step, meets, name, &id));
        wire.pass();
        match outcome {
            Outcome::Waiting(waiting) => {
                let mut waits = Waits::Token(waiting);
                if meets == Meets::Lapse {
                    self.restock();
                }
                Some(waits.end().await)
            }
            Outcome::Transfer(_) => Some(End::Served),
            Outcome::Refused(refusal) if matches!(refusal.reason, Reason::Replaced | Reason::Lost) => {
                Some(End::Elsewhere)
            }
            Outcome::Refused(refusal) => Some(End::Refused(refusal.reason.to_string())),
            other => panic!("{other:?}"),
        }
    }

    /// Nobody waits at the backend: a fresh request may have its place.
    async fn idle(&self) {
        let p1 = &self.p1;
        eventually("a fresh request has a place", LIMIT, async || {
            let request = Request::new(player("probe"));
            match p1.dispatch(request.clone()).await {
                Outcome::Transfer(_) => p1.cancel(&request.player, &request.id).await.is_ok(),
                _ => false,
            }
        })
        .await;
        self.b1.inventory().all_home().await;
    }

    async fn fleet_waits(&self, request: Request) -> Waits {
        match self.p1.dispatch(request).await {
            Outcome::Waiting(waiting) => Waits::Token(waiting),
            other => panic!("does not wait: {other:?}"),
        }
    }

    async fn has_ticket(&self, name: &str) -> bool {
        self.fleet.session(name).await.is_some()
    }

    async fn meet(&self, step: Step, meets: Meets, name: &str, id: &RequestId, mut waits: Waits) -> Option<End> {
        if meets == Meets::HangUp {
            drop(waits);
            self.wire.resume();
            return None;
        }
        self.disturb(step, meets, name, id).await;
        self.wire.pass();
        Some(waits.end().await)
    }

    async fn disturb(&self, step: Step, meets: Meets, name: &str, id: &RequestId) {
        let (p1, wire, who) = (&self.p1, &self.wire, player(name));
        let heard_again = async {
            if step == Step::Turn {
                sleep(Duration::from_millis(50)).await;
                wire.resume();
            }
        };
        match meets {
            Meets::Cancel => {
                let (told, ()) = tokio::join!(p1.cancel(&who, id), heard_again);
                let told = told.expect("the store answers");
                assert!(
                    matches!(told, CancelOutcome::Marked | CancelOutcome::Released),
                    "{step:?}: only its own request holds the claim, and it is told {told:?}"
                );
            }
            Meets::Drop => {
                let (told, ()) = tokio::join!(p1.away(&who, id), heard_again);
                told.expect("the store answers");
            }
            Meets::Again => {
                let (outcome, ()) = tokio::join!(p1.dispatch(Request::new(who.clone())), heard_again);
                match outcome {
                    Outcome::Transfer(transfer) => {
                        p1.cancel(&who, &transfer.request).await.expect("the store answers");
                    }
                    Outcome::Waiting(waiting) => drop(waiting),
                    Outcome::Refused(_) => {}
                    other => panic!("{other:?}"),
                }
            }
            Meets::Lapse => {
                wire.hold();
                let mut conn = self.fleet.conn().await;
                eventually("the lease is over", LIMIT, async || {
                    let row: bool =
                        redis::cmd("EXISTS").arg(key("node:p1")).query_async(&mut conn).await.expect("EXISTS");
                    !row && !p1.agent().lease().is_valid()
                })
                .await;
                wire.cut_all();
                wire.pass();
                eventually("it is a member again", LIMIT, async || p1.agent().lease().is_valid()).await;
            }
            Meets::Leave => {
                tokio::join!(p1.leave(), heard_again);
            }
            Meets::HangUp => {}
        }
    }

    /// Nothing is left: neither ticket nor live token, and every place is home within a moment.
    async fn nothing_is_left(&self, what: &str, name: &str, may_be_kept: bool) {
        let mut conn = self.fleet.conn().await;
        let settled = async {
            loop {
                let is_live = matches!(state(&mut conn, name).await.as_str(), "PENDING" | "CLAIMED");
                let waits = self.fleet.order().await.iter().any(|member| member == name);
                let has_ticket = !may_be_kept && self.has_ticket(name).await;
                if !is_live && !waits && !has_ticket && self.b1.inventory().out() == 0 {
                    return;
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        if timeout(Duration::from_secs(8), settled).await.is_err() {
            panic!(
                "{what}: a token {:?}, a ticket {:?}, {} places out",
                state(&mut conn, name).await,
                self.fleet.session(name).await,
                self.b1.inventory().out()
            );
        }
        self.b1.inventory().check();
    }
}

async fn pair(step: Step, meets: Meets) {
    let crossing = Crossing::new().await;
    let name = "alice";
    let end = crossing.run(step, meets, name).await;
    crossing.wire.pass();
    let what = format!("{step:?} meets {meets:?}");
    match (meets, &end) {
        (Meets::Cancel, Some(End::Refused(reason))) => assert_eq!(reason, "cancelled", "{what}"),
        (Meets::Drop, Some(End::Refused(reason))) => assert_eq!(reason, "cancelled", "{what}"),
        // The request that came first may have had its place before the other one came.
        (Meets::Again, Some(End::Elsewhere | End::Served)) | (Meets::HangUp, None) => {}
        (Meets::Drop, Some(End::Served)) => {}
        // Whoever waits stands there again, and has the next place; the claim may have been too late.
        (Meets::Lapse, Some(End::Served)) => {}
        (Meets::Lapse, Some(End::Refused(reason))) if matches!(step, Step::Dispatch | Step::Enter) => {
            assert!(matches!(reason.as_str(), "lease_lost" | "store_down" | "refused"), "{what}: {reason}");
        }
        (Meets::Leave, Some(End::Refused(_) | End::Silent | End::Served)) => {}
        _ => panic!("{what} ended {end:?}"),
    }
    if end == Some(End::Served) {
        // The application hands the player back: nobody redeems here.
        crossing.p1.cancel(&player(name), &RequestId::fresh()).await.ok();
        return;
    }
    let may_be_kept = matches!(meets, Meets::Drop | Meets::Leave);
    // A proxy that has left can release nothing: what it had claimed is its backend's after the claim's time.
    if meets != Meets::Leave {
        crossing.nothing_is_left(&what, name, may_be_kept).await;
    }
}

macro_rules! pairs {
    ($($test:ident: $step:ident $meets:ident;)*) => {
        $(
            // DSP-8, R-2: a place that nobody has and nobody can get, or a player who is told what is not so.
            #[tokio::test]
            async fn $test() {
                pair(Step::$step, Meets::$meets).await;
            }
        )*
    };
}

pairs! {
    dsp_8_a_dispatch_meets_a_cancel: Dispatch Cancel;
    dsp_8_a_dispatch_meets_a_hang_up: Dispatch HangUp;
    dsp_8_a_dispatch_meets_another_request: Dispatch Again;
    dsp_8_a_dispatch_meets_a_lapse: Dispatch Lapse;
    dsp_8_a_dispatch_meets_a_reload: Dispatch Leave;
    dsp_8_an_enter_meets_a_cancel: Enter Cancel;
    dsp_8_an_enter_meets_a_drop: Enter Drop;
    dsp_8_an_enter_meets_a_hang_up: Enter HangUp;
    dsp_8_an_enter_meets_another_request: Enter Again;
    dsp_8_an_enter_meets_a_lapse: Enter Lapse;
    dsp_8_an_enter_meets_a_reload: Enter Leave;
    dsp_8_a_turn_meets_a_cancel: Turn Cancel;
    dsp_8_a_turn_meets_a_drop: Turn Drop;
    dsp_8_a_turn_meets_a_hang_up: Turn HangUp;
    dsp_8_a_turn_meets_another_request: Turn Again;
    dsp_8_a_turn_meets_a_lapse: Turn Lapse;
    dsp_8_a_turn_meets_a_reload: Turn Leave;
    dsp_8_a_claim_meets_a_cancel: Claim Cancel;
    dsp_8_a_claim_meets_a_drop: Claim Drop;
    dsp_8_a_claim_meets_a_hang_up: Claim HangUp;
    dsp_8_a_claim_meets_another_request: Claim Again;
    dsp_8_a_claim_meets_a_lapse: Claim Lapse;
    dsp_8_a_claim_meets_a_reload: Claim Leave;
}

// DSP-8: the place of another request of the player, taken over, is given up under the id that the transfer names. Told `lost`,
// the application leaves it to its time.
#[tokio::test]
async fn dsp_8_a_place_that_was_taken_over_is_given_up_like_any_other() {
    let fleet = Fleet::new(Kind::Token);
    let p1 = fleet.proxy("p1").await;
    let b1 = fleet.backend("b1", 1).await;
    sees(&p1, &[&b1]).await;
    for asks in [false, true] {
        let token = eventually("the backend has a place", LIMIT, async || {
            (b1.inventory().out() == 0).then_some(())?;
            Some(pending(&p1, "b1", "alice").await.token)
        })
        .await;
        let request = Request::new(player("alice"));
        let (asked, outcome) = match asks {
            true => (Some(request.id.clone()), p1.dispatch(request).await),
            false => (None, p1.take(&player("alice")).await),
        };
        let Outcome::Transfer(transfer) = outcome else { panic!("{outcome:?}") };
        assert_eq!(transfer.request, asked.unwrap_or(token.request));
        let told = p1.cancel(&player("alice"), &transfer.request).await.expect("the store answers");
        assert_eq!(told, CancelOutcome::Released);
        b1.inventory().all_home_within(Duration::from_secs(5)).await;
    }
}

// DSP-8: cancels that come at any moment of the hand-over, on as many threads as there are. One that is told that it is done
// is done, and none is told that another proxy moves the player whom nobody else knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dsp_8_a_cancel_at_any_moment_of_the_hand_over_says_what_is_so() {
    let fleet = Fleet::new(Kind::Token);
    let p1 = fleet.proxy("p1").await;
    let b1 = fleet.backend("b1", 0).await;
    sees(&p1, &[&b1]).await;
    let mut conn = fleet.conn().await;
    for n in 0..200_u64 {
        let name = format!("u{n}");
        let request = Request::new(player(&name));
        let id = request.id.clone();
        let Outcome::Waiting(mut waiting) = p1.dispatch(request).await else { panic!("{name} does not wait") };
        b1.inventory().restock(1);
        b1.restocked();
        sleep(Duration::from_micros(n * 25 % 5_000)).await;
        let told = p1.cancel(&player(&name), &id).await.expect("the store answers");
        let end = timeout(LIMIT, waiting.end()).await.expect("it ends");
        assert!(matches!(told, CancelOutcome::Marked | CancelOutcome::Released), "{name}: {told:?}, {end:?}");
        if let Some(WaitUpdate::Refused(refusal)) = &end {
            assert_eq!(refusal.reason, Reason::Cancelled, "{name}");
        }
        eventually("no live token is left", Duration::from_secs(5), async || {
            !matches!(state(&mut conn, &name).await.as_str(), "PENDING" | "CLAIMED")
        })
        .await;
        b1.inventory().all_home_within(Duration::from_secs(5)).await;
        b1.inventory().withdraw();
    }
}
