use std::time::Duration;

use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::ids::{Epoch, Incarnation, Role};
use crate::store::{Answer, Invocation, Store, Verifier, boot_ms, scripts};

use super::control::drain_name;
use super::record::{Identity, NodeRecord, NodeTexts};
use super::{Arrivals, Control, Lease, LeaseEvent};

/// Tries of one join: the store may ask for another epoch, another time and another roster.
const JOIN_TRIES: usize = 6;

/// How a beat ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BeatOutcome {
    /// Acknowledged. True where control entries changed since they were last looked at.
    Acknowledged {
        /// Read the control entries again.
        control_changed: bool,
    },
    /// There is no row any more: join again.
    Gone,
    /// Another incarnation holds the id.
    Fenced,
}

/// One process's membership of the fleet: the calls of `node/join`, `node/beat` and `node/leave`.
///
/// Join and beat ask again by themselves and not as a `Conversation`: they go ahead of every other call, a beat has a time of
/// its own, each try has a new sequence number, and where a time was off the answer has brought the store's clock with it, so
/// that nothing more is asked for.
#[derive(Debug)]
pub struct Membership {
    store: Store,
    verifier: Verifier,
    identity: Identity,
    incarnation: Incarnation,
    replaces: Option<Incarnation>,
    lease: Lease,
    /// The epoch of a join that was sent and not answered: it may stand.
    unanswered: Option<Epoch>,
    /// Grows over a whole run and not only within an epoch: a process that resumes its epoch would else be older than
    /// its own earlier beats, for the directories and for a beat that is still under way.
    seq: u64,
    arrivals: Arrivals,
}

impl Membership {
    /// A process that has not joined yet, with a fresh incarnation.
    pub fn new(store: Store, verifier: Verifier, identity: Identity, lease: Lease) -> Self {
        Self {
            store,
            verifier,
            identity,
            incarnation: Incarnation::fresh(),
            replaces: None,
            lease,
            unanswered: None,
            seq: 0,
            arrivals: Arrivals::default(),
        }
    }

    /// Lets the first join take over the live row of `incarnation`: what a supervisor that knows its old child is dead
    /// may pass on.
    #[must_use]
    pub fn replacing(mut self, incarnation: Incarnation) -> Self {
        self.replaces = Some(incarnation);
        self
    }

    /// What it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// This run of the process.
    pub fn incarnation(&self) -> &Incarnation {
        &self.incarnation
    }

    /// The lease it keeps up.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Names those whom `arrivals` is told of in its heartbeats, so that their places are no longer held.
    #[must_use]
    pub fn counting(mut self, arrivals: Arrivals) -> Self {
        self.arrivals = arrivals;
        self
    }

    /// The arrivals that its heartbeats name.
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Fills in what this membership knows of itself.
    fn complete(&self, mut record: NodeRecord, epoch: Epoch, seq: u64) -> NodeRecord {
        record.id = self.identity.id.clone();
        record.role = self.identity.role.clone();
        record.addr.clone_from(&self.identity.addr);
        record.epoch = epoch;
        record.incarnation = self.incarnation.clone();
        record.seq = seq;
        record.sent_at_ms = self.store.clock().now_ms();
        record
    }

    /// Joins, or joins again after the row was lost. A process that had an epoch keeps it where nobody took the id and
    /// the store still has it as the last one given; else it gets a new one.
    ///
    /// Errors with [`Error::DuplicateNode`] while another live process holds the id. Not cancel safe: a join that was
    /// sent may stand; the next one takes it over, because the incarnation is the same, and [`leave`](Self::leave) takes
    /// it away.
    pub async fn join(&mut self, record: NodeRecord) -> Result<Epoch> {
        let own = self.lease.epoch();
        let asked_before = self.unanswered;
        let mut epoch = match asked_before {
            // Where that join stands it is answered now.
            Some(asked) => asked,
            None if own == Epoch::NONE => Epoch(self.store.clock().now_ms()),
            None => own,
        };
        let mut old_role = self.identity.role.clone();
        let mut skewed = false;
        for _ in 0..JOIN_TRIES {
            self.seq += 1;
            let record = self.complete(record.clone(), epoch, self.seq);
            let sent = boot_ms();
            self.unanswered = Some(epoch);
            let answer = self.store.run_first(&self.join_call(&record, own, &old_role)).await?;
            match answer.word() {
                "JOINED" => {
                    self.store.clock().observe(answer.number(0)?, sent, boot_ms());
                    (self.replaces, self.unanswered) = (None, None);
                    self.lease.extend(epoch, sent);
                    self.lease.notify(match own {
                        Epoch::NONE => LeaseEvent::Joined { epoch },
                        own if own == epoch => LeaseEvent::Resumed { epoch },
                        old => LeaseEvent::Rejoined { old, new: epoch },
                    });
                    return Ok(epoch);
                }
                "EPOCH" => {
                    epoch = Epoch(answer.number(0)?);
                    self.store.clock().observe(answer.number(1)?, sent, boot_ms());
                }
                "SKEW" => {
                    let store_ms = answer.number(0)?;
                    self.store.clock().observe(store_ms, sent, boot_ms());
                    if std::mem::replace(&mut skewed, true) {
                        return Err(Error::Skew { store_ms });
                    }
                    if own == Epoch::NONE && asked_before.is_none() {
                        epoch = Epoch(self.store.clock().now_ms());
                    }
                }
                "NEED" => old_role = self.needed_role(&answer)?,
                "DUPLICATE" => {
                    self.unanswered = None;
                    return Err(Error::DuplicateNode {
                        id: self.identity.id.clone(),
                        addr: answer.text(0)?.to_owned(),
                        lease_left_ms: answer.number(1)?,
                    });
                }
                _ => return Err(answer.unexpected()),
            }
        }
        Err(Error::Contended { during: "joining" })
    }

    fn needed_role(&self, answer: &Answer) -> Result<Role> {
        Role::new(answer.text(0)?).map_err(|_| Error::Protocol {
            during: "node/join",
            detail: format!("the row of {} has a role that is no name", self.identity.id),
        })
    }

    fn join_call(&self, record: &NodeRecord, own: Epoch, old_role: &Role) -> Invocation {
        let texts = record.texts(self.verifier.keyring());
        let keys = self.store.keys();
        let id = &self.identity.id;
        let call = Invocation::new(
            &scripts::NODE_JOIN,
            &[keys.node(id), keys.roster(&record.role), keys.roles(), keys.epochs(), keys.roster(old_role)],
        );
        let call = call
            .arg(id.as_str())
            .arg(record.role.as_str())
            .arg(&record.addr)
            .arg(&texts.epoch)
            .arg(record.incarnation.as_str())
            .arg(&texts.seq)
            .arg(&texts.sent_at);
        changing(call, record, &texts)
            .arg(crate::envelope::SCHEMA_VERSION_TEXT)
            .arg(&texts.sig)
            .arg(self.replaces.as_ref().map_or("", Incarnation::as_str))
            .arg(own.0)
            .arg(self.lease.length_ms())
            .arg(old_role.as_str())
            .arg(keys.node_events())
            .arg(texts.wire.as_slice())
    }

    /// Sends one heartbeat. The lease is counted from the moment it was first sent, so a repeat after a lost reply
    /// gains nothing. `control` says which control entries were last looked at.
    pub async fn beat(&mut self, record: NodeRecord, control: &Control) -> Result<BeatOutcome> {
        let epoch = self.lease.epoch();
        let mut skewed = false;
        let arrived = self.arrivals.take();
        loop {
            self.seq += 1;
            let record = self.complete(record.clone(), epoch, self.seq);
            let sent = boot_ms();
            let answer =
                self.store.run_until(&self.beat_call(&record, control, &arrived), self.beat_deadline()).await?;
            match answer.word() {
                "BEAT" => {
                    self.store.clock().observe(answer.number(0)?, sent, boot_ms());
                    self.lease.extend(epoch, sent);
                    // A beat that was sent before says no more than that it was.
                    self.arrivals.named(arrived.len(), answer.number(2).ok());
                    metrics::counter!("maitred_beats_sent_total").increment(1);
                    return Ok(BeatOutcome::Acknowledged { control_changed: answer.text(1)? == "1" });
                }
                "GONE" => {
                    self.store.clock().observe(answer.number(0)?, sent, boot_ms());
                    return Ok(BeatOutcome::Gone);
                }
                "FENCED" => {
                    self.lease.end();
                    self.lease.notify(LeaseEvent::Fenced { epoch, by: answer.text(1)?.to_owned() });
                    return Ok(BeatOutcome::Fenced);
                }
                "SKEW" => {
                    let store_ms = answer.number(0)?;
                    self.store.clock().observe(store_ms, sent, boot_ms());
                    if std::mem::replace(&mut skewed, true) {
                        return Err(Error::Skew { store_ms });
                    }
                }
                _ => return Err(answer.unexpected()),
            }
        }
    }

    /// A beat is not repeated into the time of the next one, which carries fresher numbers.
    fn beat_deadline(&self) -> Instant {
        let interval = Duration::from_millis(self.lease.length_ms() * 2 / 7);
        Instant::now() + interval.max(self.store.options().command_timeout)
    }

    fn beat_call(&self, record: &NodeRecord, control: &Control, arrived: &[String]) -> Invocation {
        let texts = record.texts(self.verifier.keyring());
        let keys = self.store.keys();
        let id = &self.identity.id;
        let call = Invocation::new(
            &scripts::NODE_BEAT,
            &[keys.node(id), keys.roster(&record.role), keys.roles(), keys.control(), keys.held(id)],
        );
        let call = call
            .arg(id.as_str())
            .arg(record.role.as_str())
            .arg(&texts.epoch)
            .arg(record.incarnation.as_str())
            .arg(&texts.seq)
            .arg(&texts.sent_at);
        changing(call, record, &texts)
            .arg(&texts.sig)
            .arg(self.lease.length_ms())
            .arg(keys.node_events())
            .arg(texts.wire.as_slice())
            .arg(&control.kill_of_fleet().bytes)
            .arg(&control.kill_of(id).bytes)
            .arg(&control.kill_arg(&drain_name(id)).bytes)
            .arg(control.config_tail().as_slice())
            .arg(&arrived.join("\n"))
    }

    /// Leaves: the row and the roster entry go at once and everyone hears it, also where a join was sent and its answer
    /// never came. Safe to repeat. A process that was fenced has nothing to take away.
    pub async fn leave(&mut self) -> Result<()> {
        let last = self.lease.epoch();
        self.lease.end();
        if let Some(epoch) = self.unanswered.filter(|epoch| *epoch != last) {
            self.leave_as(epoch).await?;
        }
        if last != Epoch::NONE {
            self.leave_as(last).await?;
        }
        self.unanswered = None;
        Ok(())
    }

    /// Takes the row away where it has `epoch`, of this incarnation.
    async fn leave_as(&self, epoch: Epoch) -> Result<()> {
        let keys = self.store.keys();
        let (id, role) = (&self.identity.id, &self.identity.role);
        let call =
            Invocation::new(&scripts::NODE_LEAVE, &[keys.node(id), keys.roster(role), keys.roles(), keys.epochs()])
                .arg(id.as_str())
                .arg(role.as_str())
                .arg(epoch.0)
                .arg(self.incarnation.as_str())
                .arg(keys.node_events());
        let answer = self.store.run_first(&call).await?;
        match answer.word() {
            "LEFT" | "FENCED" => Ok(()),
            _ => Err(answer.unexpected()),
        }
    }
}

/// The arguments that join and beat share, from `state` to `labels`.
fn changing(call: Invocation, record: &NodeRecord, texts: &NodeTexts) -> Invocation {
    call.arg(record.state.as_str())
        .arg(record.accepting)
        .arg(record.kill)
        .arg(&texts.players)
        .arg(&texts.soft_cap)
        .arg(&texts.load)
        .arg(&texts.services)
        .arg(&texts.labels)
}
