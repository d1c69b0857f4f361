use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::envelope::SCHEMA_VERSION_TEXT;
use crate::error::Result;
use crate::ids::{NodeEpoch, OperationId, Role};
use crate::node::{NodeRecord, Snapshot};
use crate::store::{Answer, Invocation, scripts};

use super::admission::{Choice, Destination, Places, SeededRng, TARGETS_MAX, TargetNode, assign, shortlist, targets};
use super::heads::Head;
use super::line::Line;
use super::outcome::{Admission, Round, Stop};
use super::pass::LoginPass;

/// Most players that one round admits.
pub const ROUND_MAX: usize = 64;
/// Age from which a heartbeat is not believed any more, in ms, unless the config says otherwise.
const STALE_AFTER_MS: u64 = 3_000;

/// One node's share in the admission of a line. Any number may run at once, on any nodes: a player is admitted by one,
/// in order, at the rate that all of them share.
#[derive(Debug)]
pub struct Admitter {
    line: Line,
    choice: Choice,
    places: Arc<Mutex<[Places; 2]>>,
    stale_after_ms: Arc<AtomicU64>,
    judges: bool,
    rng: SeededRng,
}

impl Admitter {
    /// An admitter that picks by `choice`. `seed` makes the picks repeatable.
    pub fn new(line: Line, choice: Choice, seed: u64) -> Self {
        let stale_after_ms = Arc::new(STALE_AFTER_MS.into());
        Self { line, choice, places: Arc::default(), stale_after_ms, judges: true, rng: SeededRng::new(seed) }
    }

    /// Another one for the same line that shares what this one learns of free places, and how long it believes a heartbeat:
    /// for the offers of those who enter while a round is under way.
    #[must_use]
    pub fn sharing(&self, seed: u64) -> Self {
        Self {
            line: self.line.clone(),
            choice: self.choice,
            places: Arc::clone(&self.places),
            stale_after_ms: Arc::clone(&self.stale_after_ms),
            judges: self.judges,
            rng: SeededRng::new(seed),
        }
    }

    /// Age from which it sends nobody to a node whose heartbeat is that old, in ms. Default 3,000.
    pub fn believes_for(&self, stale_after_ms: u64) {
        self.stale_after_ms.store(stale_after_ms, Ordering::Relaxed);
    }

    /// Whether it may put players away whose proxy seems to be dead (default true). Whoever was away itself, or hears another
    /// store, cannot know: to it everybody seems to be silent. Then a round ends at the first such player.
    pub fn judges(&mut self, on: bool) {
        self.judges = on;
    }

    fn places(&self) -> MutexGuard<'_, [Places; 2]> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The line.
    pub fn line(&self) -> &Line {
        &self.line
    }

    /// True where an operator stops or drains a node.
    fn is_stopped(&self, record: &NodeRecord) -> bool {
        let switches = self.line.control.switches();
        switches.stops(record) || switches.is_draining(&record.id)
    }

    /// The nodes to pick from: backends, then links.
    fn candidates(&mut self, snapshot: &Snapshot) -> [Vec<(TargetNode, u64)>; 2] {
        let (backend, link) = self.choice.picks();
        let most = self.line.options.gate.per_backend;
        let roles = [(backend, Role::backend()), (link, Role::link())];
        let mut lists = [Vec::new(), Vec::new()];
        for (at, (wanted, role)) in roles.iter().enumerate() {
            if !wanted {
                continue;
            }
            let stale_after_ms = self.stale_after_ms.load(Ordering::Relaxed);
            let mut all = targets(snapshot, role, stale_after_ms, Some(most), |record| self.is_stopped(record));
            for target in &mut all {
                target.new_left = target.new_left.map(|_| self.line.new_left(&target.id));
            }
            let mut known = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            if let (Some(places), Some(list)) = (known.get_mut(at), lists.get_mut(at)) {
                places.retain(&all);
                *list = shortlist(&all, places, TARGETS_MAX, &mut self.rng);
            }
        }
        lists
    }

    /// Where a player who enters now could go at once; the offer of [`Line::enter`].
    pub fn offer(&mut self, snapshot: &Snapshot) -> Option<Destination> {
        let lists = self.candidates(snapshot);
        let (backend, link) = self.choice.picks();
        let [servers, links] = &lists;
        let mut one = |list: &[(TargetNode, u64)]| {
            assign(1, list, &mut self.rng).first().and_then(|at| list.get(*at)).map(|(target, _)| target.clone())
        };
        let pick = Destination { server: one(servers), link: one(links) };
        (pick.server.is_some() == backend && pick.link.is_some() == link).then_some(pick)
    }

    /// One round: reads the heads of the line, picks where each would go, and admits as many as gate and places allow, up
    /// to [`ROUND_MAX`]. `who` has to hold its lease. Runs `queue/peek` and `queue/admit`.
    ///
    /// Errors besides those of the store: [`LeaseLost`](crate::Error::LeaseLost), [`Fenced`](crate::Error::Fenced),
    /// [`KillSwitch`](crate::Error::KillSwitch).
    pub async fn round(&mut self, who: &NodeEpoch, snapshot: &Snapshot) -> Result<Round> {
        let mut heads = self.line.heads(ROUND_MAX).await?;
        let is_held_up = !self.judges && self.line.stop_at_the_silent(&mut heads).await?;
        let lists = self.candidates(snapshot);
        let [servers, links] = lists;
        let (backend, link) = self.choice.picks();
        let mut picks = [(backend, &servers), (link, &links)]
            .map(|(wanted, list)| wanted.then(|| assign(heads.len(), list, &mut self.rng).into_iter()));
        let mut passes: Vec<(LoginPass, [usize; 2])> = Vec::with_capacity(heads.len());
        for head in &heads {
            let [server, link] = picks.each_mut().map(|picks| match picks {
                Some(picks) => picks.next().map(|at| at + 1),
                None => Some(0),
            });
            // Where a pick is wanted and none is there, the player is offered nothing at all.
            let numbers = server.zip(link).map_or([0, 0], |(server, link)| [server, link]);
            let id = |list: &[(TargetNode, u64)], number: usize| {
                number.checked_sub(1).and_then(|at| list.get(at)).map(|(target, _)| target.id.clone())
            };
            let [server, link] = numbers;
            passes.push((
                LoginPass {
                    line: self.line.options.name.clone(),
                    player: head.player.clone(),
                    server: id(&servers, server),
                    link: id(&links, link),
                    serial: 0,
                    expires_at_ms: 0,
                    op: OperationId::fresh(),
                },
                numbers,
            ));
        }
        let line = &self.line;
        let call = || {
            let expires_at_ms = line.store.clock().now_ms().saturating_add(line.options.pass_ms);
            passes.iter_mut().for_each(|(pass, _)| pass.expires_at_ms = expires_at_ms);
            self.admit_call(who, &heads, &passes, [&servers, &links], expires_at_ms)
        };
        let answer = line.conversation_of(who, "admitting", "admit").ask(call).await?;
        if answer.word() != "ROUND" {
            return Err(answer.unexpected());
        }
        let mut round = self.read(&answer, &heads, &passes, [&servers, &links])?;
        round.admitted.iter().for_each(|admission| line.sent(&admission.pass));
        if is_held_up && heads.is_empty() {
            round.stop = Stop::Silent;
        }
        let label = line.options.name.to_string();
        metrics::gauge!("maitred_line_waiting", "line" => label.clone())
            .set(f64::from(u32::try_from(round.waiting).unwrap_or(u32::MAX)));
        metrics::counter!("maitred_admissions_total", "line" => label)
            .increment(round.admitted.len().try_into().unwrap_or(0));
        Ok(round)
    }

    fn admit_call(
        &self,
        who: &NodeEpoch,
        heads: &[Head],
        passes: &[(LoginPass, [usize; 2])],
        lists: [&[(TargetNode, u64)]; 2],
        expires_at_ms: u64,
    ) -> Invocation {
        let line = &self.line;
        let (keys, name, options) = (line.store.keys(), &line.options.name, &line.options);
        let mut holders: BTreeMap<&NodeEpoch, usize> = BTreeMap::new();
        for holder in heads.iter().filter_map(|head| head.holder.as_ref()) {
            let number = holders.len() + 1;
            holders.entry(holder).or_insert(number);
        }
        let mut ordered: Vec<(&NodeEpoch, usize)> = holders.iter().map(|(holder, number)| (*holder, *number)).collect();
        ordered.sort_by_key(|(_, number)| *number);
        let vias: Vec<String> = ordered.iter().map(|(holder, _)| line.via_name(holder)).collect();
        let [servers, links] = lists;
        let targets: Vec<&TargetNode> = servers.iter().chain(links).map(|(target, _)| target).collect();
        let pass_names: Vec<String> = heads.iter().map(|head| line.pass_name(&head.player)).collect();

        let mut key_list = vec![
            keys.lines(),
            keys.line(name),
            keys.tickets(name),
            keys.away(name),
            keys.gate(name),
            keys.vias(name),
            keys.node(&who.id),
            keys.control(),
            keys.roster(&options.gate.counted),
        ];
        for ((holder, _), via) in ordered.iter().zip(&vias) {
            key_list.extend([keys.node(&holder.id), keys.via(via)]);
        }
        for target in &targets {
            key_list.extend([keys.node(&target.id), keys.held(&target.id), keys.due(&target.id)]);
        }
        key_list.extend(pass_names.iter().map(|name| keys.pass(name)));

        let mut call = Invocation::new(&scripts::QUEUE_ADMIT, &key_list)
            .arg(name.as_str())
            .member(who)
            .arg(&options.lanes_text())
            .gate(&options.gate)
            .arg(options.pass_ms)
            .arg(expires_at_ms)
            .arg(options.arrive_ms)
            .arg(options.reconnect_grace_ms)
            .arg(SCHEMA_VERSION_TEXT)
            .arg(keys.line_events())
            .arg(ordered.len())
            .arg(targets.len())
            .kills([line.control.kill_of_fleet(), line.control.kill_of(&who.id)]);
        for (holder, _) in &ordered {
            call = call.arg(&holder.to_string());
        }
        for target in &targets {
            call = call.target(Some(target)).kills([line.control.kill_of(&target.id)]);
        }
        for (head, (pass, [server, link])) in heads.iter().zip(passes) {
            let holder = head.holder.as_ref().and_then(|holder| holders.get(holder)).copied().unwrap_or(0);
            let link = if *link == 0 { 0 } else { servers.len() + link };
            let sig = if head.verdict == "ok" { pass.sign(&line.verifier) } else { String::new() };
            call = call
                .arg(head.lane)
                .arg(head.player.as_str())
                .arg(&head.text)
                .arg(head.verdict)
                .arg(holder)
                .arg(*server)
                .arg(link)
                .arg(pass.op.as_str())
                .arg(&sig);
        }
        call
    }

    fn read(
        &self,
        answer: &Answer,
        heads: &[Head],
        passes: &[(LoginPass, [usize; 2])],
        lists: [&[(TargetNode, u64)]; 2],
    ) -> Result<Round> {
        let strange = || answer.unexpected();
        let stop = match answer.text(0)? {
            "EMPTY" => Stop::Empty,
            "MORE" => Stop::More,
            "CHANGED" | "DONE" => Stop::Changed,
            "GATE" => Stop::Gate,
            "FULL" => Stop::Full,
            "BLOCKED" => Stop::Blocked,
            "PAUSED" => Stop::Paused,
            _ => return Err(strange()),
        };
        let mut values = answer.values().iter().skip(4);
        let (backend, link) = self.choice.picks();
        let mut room = true;
        for ((list, places), wanted) in lists.iter().zip(self.places().iter_mut()).zip([backend, link]) {
            let mut found = !wanted;
            for (target, _) in *list {
                let free: i64 = values.next().and_then(|text| text.parse().ok()).ok_or_else(strange)?;
                // A repeat counts nothing.
                if answer.text(0)? != "DONE" {
                    places.counted(target, free);
                }
                found |= free > 0;
            }
            room &= found;
        }
        let mut round = Round {
            admitted: Vec::new(),
            away: Vec::new(),
            evicted: Vec::new(),
            stop,
            gate_opens_in: answer.number(1).ok().map(Duration::from_millis),
            rate: answer.number(2)?,
            waiting: answer.number(3)?,
            room,
        };
        for ((head, (pass, _)), word) in heads.iter().zip(passes).zip(values) {
            match word.split_once(':') {
                Some(("ADMITTED", place)) => {
                    let (serial, seq) = place.split_once(':').ok_or_else(strange)?;
                    let mut pass = pass.clone();
                    pass.serial = serial.parse().map_err(|_| strange())?;
                    let seq = seq.parse().map_err(|_| strange())?;
                    // Only a ticket that verified is admitted.
                    let (lane, session) = head.signed.clone().ok_or_else(strange)?;
                    round.admitted.push(Admission { pass, seq, lane, session });
                }
                _ if word == "AWAY" => round.away.push(head.player.clone()),
                _ if word == "EVICTED" => round.evicted.push(head.player.clone()),
                _ => {}
            }
        }
        round.admitted.sort_by_key(|admission| admission.pass.serial);
        Ok(round)
    }
}
