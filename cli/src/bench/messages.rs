use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use crate::Failure;
use maitred::agent::{Agent, Setup};
use maitred::ids::{NodeId, Role};
use maitred::message::{Post, ServiceRegistration, handler_fn};
use maitred::node::LoadSample;

use super::figure::Figure;
use super::flight::{Flight, fly};
use super::pingpong::{PingPong, Subscription};
use super::stage::Stage;

/// How long one side of one round takes.
const LEG: Duration = Duration::from_millis(60);
/// How long members may take to know each other.
const READY_MAX: Duration = Duration::from_secs(5);
/// Longest wait for one answer.
const CALL_MAX: Duration = Duration::from_secs(5);
/// What a call asks and is answered, in bytes.
const BODY_BYTES: usize = 100;

/// Calls between two members of this process, against a ping-pong of messages as long over the same store.
pub(super) async fn measure(stage: &Stage, rounds: usize, bar: &ProgressBar) -> Result<Vec<Figure>, Failure> {
    let pair = Pair::start(stage).await?;
    let outcome = pair.measure(rounds, bar).await;
    pair.leave().await;
    outcome
}

struct Pair {
    caller: Agent,
    callee: Agent,
    _service: ServiceRegistration,
    asked: Arc<Asked>,
}

/// What the calls ask, and whom.
struct Asked {
    target: String,
    body: Box<RawValue>,
}

impl Asked {
    async fn call(&self, post: &Post) -> Result<(), Failure> {
        post.call_raw(&self.target, "echo", &self.body, CALL_MAX).await?;
        Ok(())
    }
}

impl Pair {
    /// Two members that can call each other.
    async fn start(stage: &Stage) -> Result<Self, Failure> {
        let (caller, callee) = (member(stage, "caller")?, member(stage, "callee")?);
        let registration = callee.services().register("echo", handler_fn(|call| async move { Ok(call.body) }))?;
        let body = RawValue::from_string(format!("\"{}\"", "x".repeat(BODY_BYTES - 2)))
            .map_err(|error| Failure::io("making a body", &error))?;
        let asked = Arc::new(Asked { target: "callee:echo".to_owned(), body });
        let pair = Self { caller, callee, _service: registration, asked };
        pair.caller.joined().await?;
        pair.callee.joined().await?;
        pair.callee.beat_now();
        let end = Instant::now() + READY_MAX;
        while let Err(error) = pair.asked.call(pair.caller.post()).await {
            if Instant::now() >= end {
                return Err(error);
            }
            pair.caller.directory().refresh().await?;
            sleep(Duration::from_millis(10)).await;
        }
        Ok(pair)
    }

    async fn leave(self) {
        tokio::join!(self.caller.leave(), self.callee.leave());
    }

    async fn measure(&self, rounds: usize, bar: &ProgressBar) -> Result<Vec<Figure>, Failure> {
        let (request_bytes, answer_bytes) = self.sizes().await?;
        let floor = PingPong::start([self.caller.store(), self.callee.store()], request_bytes, answer_bytes).await?;
        let mut sides = [1, 64].map(|in_flight| (in_flight, Side::default(), Side::default()));
        for round in 0..rounds {
            for (in_flight, ours_all, floor_all) in &mut sides {
                for floor_now in [round % 2 == 1, round % 2 == 0] {
                    if floor_now {
                        let floor = floor.clone();
                        floor_all.add(&fly(*in_flight, LEG, move |lane, _| floor.clone().trip(lane)).await?);
                    } else {
                        let (post, asked) = (self.caller.post().clone(), Arc::clone(&self.asked));
                        let call = move |_, _| {
                            let (post, asked) = (post.clone(), Arc::clone(&asked));
                            async move { asked.call(&post).await }
                        };
                        ours_all.add(&fly(*in_flight, LEG, call).await?);
                    }
                }
            }
            bar.inc(1);
        }
        let figures = sides.iter().flat_map(|(in_flight, ours, floor)| {
            let name = |what: &str| format!("calls, {in_flight} in flight{what}");
            [
                Figure::of(name(""), "1/s", &ours.per_second, &floor.per_second),
                Figure::of(name(", p50"), "us", &ours.p50, &floor.p50),
                Figure::of(name(", p99"), "us", &ours.p99, &floor.p99),
            ]
        });
        Ok(figures.flatten().collect())
    }

    /// Bytes of one call and of its answer on the wire.
    async fn sizes(&self) -> Result<(usize, usize), Failure> {
        let keys = self.callee.store().keys();
        let (caller, callee) = (NodeId::new("caller")?, NodeId::new("callee")?);
        let mut requests = Subscription::open(self.callee.store(), keys.inbox(&callee).to_string()).await?;
        let mut answers = Subscription::open(self.caller.store(), keys.inbox(&caller).to_string()).await?;
        self.asked.call(self.caller.post()).await?;
        Ok((requests.next().await?.len(), answers.next().await?.len()))
    }
}

/// The rounds of one side.
#[derive(Debug, Default)]
struct Side {
    per_second: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
}

impl Side {
    fn add(&mut self, flight: &Flight) {
        self.per_second.push(flight.per_second);
        self.p50.extend(flight.percentile(50));
        self.p99.extend(flight.percentile(99));
    }
}

fn member(stage: &Stage, id: &str) -> Result<Agent, Failure> {
    let mut config = stage.config.clone();
    config.node.id = Some(NodeId::new(id)?);
    config.node.role = Role::new("service")?;
    Ok(Setup::with_keyring(config, stage.keyring()?)?.node(LoadSample::default)?)
}
