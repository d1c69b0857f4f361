use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::value::RawValue;

use crate::Failure;
use maitred::error::{Error, Result};
use maitred::ids::NodeEpoch;
use maitred::store::{BareCall, Store};
use maitred::token::{Book, ClaimOutcome, ConsumeOutcome, IssueOrder, IssueOutcome};

use super::bare;
use super::calls::{Life, payload};
use super::figure::Figure;
use super::flight::fly;
use super::stage::Stage;

/// How long one side of one round takes.
const LEG: Duration = Duration::from_millis(60);
/// Lives whose calls the floor sends again and again: its script does nothing, so they do not run out.
const PREPARED: usize = 256;
/// Life of a token.
const TTL_MS: u64 = 30_000;

/// Whole lives per second through the book, against three EVALSHA that do nothing, with the same keys and arguments.
pub(super) async fn measure(stage: &Stage, rounds: usize, bar: &ProgressBar) -> Result<Vec<Figure>, Failure> {
    let nothing = stage.store.load_bare(bare::NOTHING).await?;
    let mut prepared = Vec::with_capacity(PREPARED);
    for _ in 0..PREPARED {
        prepared.push(Life::fresh()?.calls(stage, TTL_MS).map(|call| call.bare(&nothing)));
    }
    let floor = Arc::new(Floor { store: stage.store.clone(), prepared });
    let ours = Arc::new(Ours {
        book: stage.book.clone(),
        backend: stage.backend.clone(),
        proxy: stage.proxy.clone(),
        payload: RawValue::from_string(payload(0)).map_err(|error| Failure::io("making a payload", &error))?,
    });
    let mut figures: Vec<(usize, Vec<f64>, Vec<f64>)> =
        [1, 64].map(|in_flight| (in_flight, Vec::new(), Vec::new())).into();
    for round in 0..rounds {
        for (in_flight, ours_all, floor_all) in &mut figures {
            for floor_now in [round % 2 == 1, round % 2 == 0] {
                if floor_now {
                    let floor = Arc::clone(&floor);
                    let lives = fly(*in_flight, LEG, move |lane, turn| {
                        let floor = Arc::clone(&floor);
                        async move { floor.life(lane, turn).await }
                    });
                    floor_all.push(lives.await?.per_second);
                } else {
                    let ours = Arc::clone(&ours);
                    let lives = fly(*in_flight, LEG, move |_, _| {
                        let ours = Arc::clone(&ours);
                        async move { ours.life().await }
                    });
                    ours_all.push(lives.await?.per_second);
                }
            }
        }
        bar.inc(1);
    }
    let figures = figures.iter().filter_map(|(in_flight, ours, floor)| {
        Figure::of(format!("lives of a token, {in_flight} in flight"), "1/s", ours, floor)
    });
    Ok(figures.collect())
}

struct Floor {
    store: Store,
    prepared: Vec<[BareCall; 3]>,
}

impl Floor {
    async fn life(&self, lane: usize, turn: usize) -> Result<(), Failure> {
        let place = lane.wrapping_mul(31).wrapping_add(turn) % self.prepared.len().max(1);
        for call in self.prepared.get(place).into_iter().flatten() {
            self.store.run_bare(call).await?;
        }
        Ok(())
    }
}

struct Ours {
    book: Book,
    backend: NodeEpoch,
    proxy: NodeEpoch,
    payload: Box<RawValue>,
}

impl Ours {
    async fn life(&self) -> Result<(), Failure> {
        let Life { id, player, request, claim, consume } = Life::fresh()?;
        let now = self.book.store().clock().now_ms();
        let mut order = IssueOrder {
            id,
            player,
            request,
            attempt: 1,
            payload: self.payload.clone(),
            deadline_ms: now + TTL_MS,
            earlier: Vec::new(),
            issued_at_ms: now,
        };
        let IssueOutcome::Issued(token) = self.book.issue(&self.backend, &mut order).await? else {
            return Err(refused("issuing"));
        };
        let ClaimOutcome::Claimed(_) = self.book.claim(&token, &self.proxy, &claim).await? else {
            return Err(refused("claiming"));
        };
        match self.book.consume(&token.id, &token.player, &self.backend, &consume).await? {
            ConsumeOutcome::Consumed => Ok(()),
            _ => Err(refused("consuming")),
        }
    }
}

fn refused(during: &'static str) -> Failure {
    Error::Protocol { during, detail: "a token that nobody else knows was refused".to_owned() }.into()
}
