//! This node's share in the admission: one loop a line, on its own tick as well as on events (QUE-14).

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};

use crate::agent::core::{LineHint, jitter};
use crate::error::Result;
use crate::ids::LineName;
use crate::queue::{Admitter, GateOptions, LineEvent, ROUND_MAX, Round, Stop};

use super::client::QueueClient;
use super::line_handle::LineHandle;

/// How often the config is looked at for new lines.
const CONFIG_EVERY: Duration = Duration::from_secs(1);
/// How often one looks, without asking the store, whether a place has come in.
const PLACES_EVERY: Duration = Duration::from_millis(100);
/// Rounds in a row that admitted nobody and would still be followed by another at once.
const IDLE_ROUNDS: u32 = 3;
/// Most that a round at the gate comes late on purpose: well below what the gate makes up for.
const LATE_MAX: Duration = Duration::from_millis(10);
/// Pause after these, doubled with each further one.
const IDLE_PAUSE: Duration = Duration::from_millis(5);

/// Keeps a loop for each line of the config, and for one that was taken out of it until that is empty.
pub(in crate::agent) async fn admit_lines(client: Arc<QueueClient>) {
    let mut loops: HashMap<LineName, JoinHandle<()>> = HashMap::new();
    let mut pushes = client.core.live.version();
    loop {
        loops.retain(|_, running| !running.is_finished());
        for name in client.known_lines() {
            loops.entry(name).or_insert_with_key(|name| {
                let hints = client.core.line_events.subscribe();
                client.core.tasks.spawn(admit(Arc::clone(&client), name.clone(), hints))
            });
        }
        tokio::select! {
            () = client.core.stop.cancelled() => return,
            changed = pushes.changed() => if changed.is_err() { return },
            () = sleep(CONFIG_EVERY) => {}
        }
    }
}

/// Admits one line's players. Where the line is taken out of the config, those who are in it are admitted as under the last one
/// that had it, until it is empty.
async fn admit(client: Arc<QueueClient>, name: LineName, mut hints: broadcast::Receiver<LineHint>) {
    let mut admits = client.admits();
    let mut memberships = client.core.status.subscribe();
    let part = client.core.admitting.part(&name);
    let mut present: Option<(Arc<LineHandle>, Admitter)> = None;
    let mut idle = 0;
    loop {
        if !*admits.borrow_and_update() {
            part.works(false);
            tokio::select! {
                () = client.core.stop.cancelled() => return,
                changed = admits.changed() => if changed.is_err() { return },
            }
            continue;
        }
        // Another config makes another handle.
        let Ok(line) = client.known_line(&name) else { return };
        let (line, admitter) = match &mut present {
            Some((known, admitter)) if Arc::ptr_eq(known, &line) => (known, admitter),
            _ => {
                let Some(admitter) = line.admitter() else { return };
                let (line, admitter) = present.insert((line, admitter));
                (line, admitter)
            }
        };
        let tick = line.tick;
        let round = tokio::select! {
            () = client.core.stop.cancelled() => return,
            round = round(&client, admitter) => round,
        };
        part.works(round.is_ok());
        if round.as_ref().is_ok_and(|round| round.stop == Stop::Empty) && client.forget_line(&name) {
            return;
        }
        let (pause, wakes) = match &round {
            Ok(round) => {
                let pause = pace(round, &admitter.line().options().gate, tick);
                idle = if pause.is_zero() && !round.progressed() { idle + 1 } else { 0 };
                (spread(round.stop, pause).max(idle_pause(idle).min(tick)), Wakes::of(round.stop))
            }
            Err(error) => {
                tracing::debug!(line = %name, %error, "admitted nobody; the next tick tries again");
                (jitter(tick), Wakes::Event)
            }
        };
        if !pause.is_zero() {
            let until = Instant::now() + pause;
            let woken = rest(&client, admitter, &name, &mut hints, until, wakes);
            tokio::select! {
                () = client.core.stop.cancelled() => return,
                // Who becomes a member can admit from now on.
                changed = memberships.changed() => if changed.is_err() { return },
                flow = woken => if flow.is_break() { return },
            }
        }
    }
}

/// One round. One that puts players away is broken off where this node may not judge any more.
async fn round(client: &QueueClient, admitter: &mut Admitter) -> Result<Round> {
    let (me, judges) = (client.core.acting()?, client.core.may_judge());
    admitter.judges(judges);
    admitter.believes_for(client.core.config().stale_after_ms());
    let snapshot = client.core.directory.recent_snapshot();
    let round = admitter.round(&me, &snapshot);
    if judges { client.core.judge(round).await } else { round.await }
}

/// What ends a pause before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wakes {
    /// Nothing does.
    Tick,
    /// Somebody waits, or an operator lets the line go on.
    Event,
    /// Also a place that comes in.
    Place,
}

impl Wakes {
    fn of(stop: Stop) -> Self {
        match stop {
            Stop::Empty | Stop::Paused => Self::Event,
            Stop::Full => Self::Place,
            Stop::More | Stop::Changed | Stop::Gate | Stop::Blocked | Stop::Silent => Self::Tick,
        }
    }
}

/// Waits, at most until then. Breaks where the agent has no events any more.
async fn rest(
    client: &QueueClient,
    admitter: &mut Admitter,
    name: &LineName,
    hints: &mut broadcast::Receiver<LineHint>,
    until: Instant,
    wakes: Wakes,
) -> ControlFlow<()> {
    loop {
        let look = if wakes == Wakes::Place { until.min(Instant::now() + PLACES_EVERY) } else { until };
        tokio::select! {
            () = sleep_until(look) => {
                let is_over = Instant::now() >= until;
                if is_over || admitter.offer(&client.core.directory.recent_snapshot()).is_some() {
                    return ControlFlow::Continue(());
                }
            }
            hint = hints.recv() => match hint {
                Ok(LineHint::Event(event)) if wakes != Wakes::Tick && goes_on(&event, name) => {
                    return ControlFlow::Continue(());
                }
                Ok(LineHint::Gap) | Err(RecvError::Lagged(_)) if wakes != Wakes::Tick => {
                    return ControlFlow::Continue(());
                }
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return ControlFlow::Break(()),
            },
        }
    }
}

fn goes_on(event: &LineEvent, name: &LineName) -> bool {
    match event {
        LineEvent::Entered { line } => line == name,
        LineEvent::Paused { line, paused } => line == name && !paused,
        LineEvent::Admitted { .. } | LineEvent::Left { .. } | LineEvent::Drained { .. } => false,
    }
}

/// How long to wait after a round. At a shut gate until it lets a few through at once: a round for each of five hundred
/// players a second would cost the store more than the admissions do.
fn pace(round: &Round, gate: &GateOptions, tick: Duration) -> Duration {
    let pause = round.pause(tick);
    if round.stop != Stop::Gate || round.rate == 0 {
        return pause;
    }
    let burst = gate.burst.map_or(round.rate / 4, u64::from).max(1);
    let few = (burst / 2).clamp(1, u64::try_from(ROUND_MAX / 2).unwrap_or(1));
    let opens_in = round.gate_opens_in.unwrap_or(pause);
    pause.max(opens_in + Duration::from_millis((few - 1).saturating_mul(1_000) / round.rate)).min(tick)
}

/// Keeps many admitters from coming at the same moment. The gate opens at a time that was computed: whoever comes before it
/// comes for nothing, and a little later nothing is lost.
fn spread(stop: Stop, pause: Duration) -> Duration {
    if stop == Stop::Gate { pause + (pause - jitter(pause)).min(LATE_MAX) } else { jitter(pause) }
}

fn idle_pause(idle: u32) -> Duration {
    match idle.checked_sub(IDLE_ROUNDS) {
        Some(more) => IDLE_PAUSE.saturating_mul(2_u32.saturating_pow(more)),
        None => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(stop: Stop, rate: u64, opens_in_ms: u64) -> Round {
        Round {
            admitted: Vec::new(),
            away: Vec::new(),
            evicted: Vec::new(),
            stop,
            gate_opens_in: Some(Duration::from_millis(opens_in_ms)),
            rate,
            waiting: 9,
            room: false,
        }
    }

    // QUE-4, QUE-11: a pause longer than the bucket holds would admit fewer than the gate allows; a shorter one asks the
    // store for each player.
    #[test]
    fn que_4_a_shut_gate_is_asked_again_when_it_lets_a_few_through_and_never_too_late_for_its_burst() {
        let tick = Duration::from_secs(1);
        for (rate, burst, opens_in_ms, want_ms) in [
            (500, None, 2, 64),
            (500, Some(1), 2, 5),
            (500, Some(10), 2, 10),
            (5, None, 200, 200),
            (1, None, 5_000, 1_000),
            (100_000, None, 0, 5),
        ] {
            let gate = GateOptions { burst, ..GateOptions::default() };
            let pause = pace(&round(Stop::Gate, rate, opens_in_ms), &gate, tick);
            assert_eq!(pause.as_millis(), want_ms, "{rate} a second, burst {burst:?}");
        }
        assert_eq!(pace(&round(Stop::Gate, 0, 1), &GateOptions::default(), tick), Duration::from_millis(5));
        assert_eq!(pace(&round(Stop::More, 500, 0), &GateOptions::default(), tick), Duration::ZERO);
        assert_eq!(pace(&round(Stop::Empty, 500, 0), &GateOptions::default(), tick), tick);
    }

    // who wakes before the gate opens finds it shut, and a pause anew makes that half the rate.
    #[test]
    fn r_51_nobody_wakes_before_the_gate_opens() {
        for ms in [1, 5, 64, 1_000] {
            let pause = Duration::from_millis(ms);
            for _ in 0..100 {
                let spread = spread(Stop::Gate, pause);
                assert!(spread >= pause && spread <= pause + LATE_MAX, "{spread:?} for {pause:?}");
            }
        }
        let gate = GateOptions { burst: Some(1), ..GateOptions::default() };
        let early = pace(&round(Stop::Gate, 1, 125), &gate, Duration::from_secs(1));
        assert_eq!(early, Duration::from_millis(125), "what is left, and not another second");
    }

    // QUE-14: admitters that run into each other must not do so as fast as they can.
    #[test]
    fn que_14_rounds_that_admit_nobody_get_slower() {
        assert_eq!(idle_pause(2), Duration::ZERO);
        assert_eq!(idle_pause(3), Duration::from_millis(5));
        assert_eq!(idle_pause(6), Duration::from_millis(40));
        assert!(idle_pause(u32::MAX) > Duration::from_secs(3_600));
    }
}
