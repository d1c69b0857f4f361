use std::sync::Arc;

use tracing::Span;
use tracing::field::Empty;

use crate::envelope::SCHEMA_VERSION_TEXT;
use crate::error::{Error, Result};
use crate::ids::{LineName, NodeEpoch, NodeId, OperationId, Player, SessionId};
use crate::node::{Arrivals, Control, KILL, KillArg, kill_name};
use crate::store::{Answer, Invocation, Key, Row, Store, Verifier, boot_ms, scripts};

use super::admission::Pick;
use super::estimate::LineState;
use super::new_players::NewPlayers;
use super::options::LineOptions;
use super::outcome::{Admission, Entered, Waiting};
use super::pass::{LoginPass, PassRow};
use super::ticket::{Attributes, Ticket};

/// How often one call may be asked for other keys, another lane, other control entries or another time before it gives
/// up.
pub(super) const REASKS: usize = 8;

/// One line of a zone. Cheap to clone. Every operation is repeated under its own session or operation while the store
/// does not answer; after [`Error::Unreachable`] the same call gives the definite answer.
#[derive(Debug, Clone)]
pub struct Line {
    pub(super) store: Store,
    pub(super) verifier: Verifier,
    pub(super) control: Control,
    pub(super) options: Arc<LineOptions>,
    pub(super) arrivals: Option<Arrivals>,
    pub(super) new_players: NewPlayers,
}

impl Line {
    /// The line of `options`. Errors with [`Error::OutOfBounds`] where they are not usable.
    pub fn new(store: Store, verifier: Verifier, control: Control, options: LineOptions) -> Result<Self> {
        options.check()?;
        Ok(Self {
            store,
            verifier,
            control,
            options: Arc::new(options),
            arrivals: None,
            new_players: NewPlayers::default(),
        })
    }

    /// Tells `arrivals` of every pass that is redeemed here, so that a later heartbeat of this node counts the player.
    #[must_use]
    pub fn counting(mut self, arrivals: Arrivals) -> Self {
        self.arrivals = Some(arrivals);
        self
    }

    /// What it was told.
    pub fn options(&self) -> &LineOptions {
        &self.options
    }

    /// Its name.
    pub fn name(&self) -> &LineName {
        &self.options.name
    }

    /// The store behind it.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A player was sent where the pass says.
    pub(super) fn sent(&self, pass: &LoginPass) {
        for id in [&pass.server, &pass.link].into_iter().flatten() {
            self.new_players.sent(id, 1, self.options.gate.per_backend, boot_ms());
        }
    }

    /// How many may be sent to a node now.
    pub(super) fn new_left(&self, id: &NodeId) -> u64 {
        self.new_players.left(id, self.options.gate.per_backend, boot_ms())
    }

    pub(super) fn kill(&self, id: Option<&NodeId>) -> KillArg {
        id.map_or(KillArg { bytes: Vec::new(), on: false }, |id| self.control.kill_arg(&kill_name(id)))
    }

    /// What stands behind `via:` in the name of the set of those who wait through `holder`.
    pub(super) fn via_name(&self, holder: &NodeEpoch) -> String {
        format!("{}:{holder}", self.options.name)
    }

    pub(super) fn pass_name(&self, player: &Player) -> String {
        format!("{}:{player}", self.options.name)
    }

    /// A ticket for `player` that `holder` signs now.
    pub(super) fn ticket(
        &self,
        holder: &NodeEpoch,
        player: &Player,
        lane: u16,
        session: &SessionId,
        attributes: &Attributes,
    ) -> Ticket {
        let mut ticket = Ticket {
            line: self.options.name.clone(),
            player: player.clone(),
            seq: 0,
            lane,
            holder: holder.clone(),
            session: session.clone(),
            joined_at_ms: self.store.clock().now_ms(),
            attributes: attributes.clone(),
            sig: String::new(),
        };
        ticket.sign(&self.verifier);
        ticket
    }

    /// Gives `player`, who is connected to `holder`, a place behind those of `lane`; the same place again, also through
    /// another proxy, which then holds the ticket; the live pass where there is one; or admission in the same call where
    /// nobody waits, the gate is open and `offer` has a place. `session` is the operation: new for each visit, kept for
    /// repeats. The ticket is signed anew each time, so that a repeat is also how a proxy signs its tickets with a new
    /// secret. Runs `queue/enter`.
    ///
    /// Errors besides those of the store: [`Error::LeaseLost`], [`Error::Fenced`], [`Error::OutOfBounds`] for a lane that
    /// the line does not have, [`Error::Untrusted`] where the player's pass did not verify.
    #[tracing::instrument(
        level = "debug",
        skip_all,
        fields(line = %self.options.name, player = %player, holder = %holder.id, answer = Empty)
    )]
    pub async fn enter(
        &self,
        holder: &NodeEpoch,
        player: &Player,
        lane: u16,
        session: &SessionId,
        attributes: &Attributes,
        offer: Option<&Pick>,
    ) -> Result<Entered> {
        self.enter_at(holder, player, lane, session, attributes, offer, 0).await
    }

    /// Like [`enter`](Self::enter) without an offer, for a player who had the place `seq` and lost it: the turn had come and
    /// nothing came of it, or the store lost its data. Without a ticket the place is that one again.
    pub async fn enter_again(
        &self,
        holder: &NodeEpoch,
        player: &Player,
        session: &SessionId,
        attributes: &Attributes,
        (lane, seq): (u16, u64),
    ) -> Result<Entered> {
        self.enter_at(holder, player, lane, session, attributes, None, seq).await
    }

    #[expect(clippy::too_many_arguments, reason = "they are the script's")]
    async fn enter_at(
        &self,
        holder: &NodeEpoch,
        player: &Player,
        lane: u16,
        session: &SessionId,
        attributes: &Attributes,
        offer: Option<&Pick>,
        kept: u64,
    ) -> Result<Entered> {
        if usize::from(lane) >= self.options.lanes.len() {
            return Err(Error::OutOfBounds {
                what: "lane",
                problem: format!("{lane}; line {} has {} lanes", self.options.name, self.options.lanes.len()),
            });
        }
        let (mut lane, mut other) = (lane, None);
        let op = OperationId::fresh();
        for _ in 0..REASKS {
            let ticket = self.ticket(holder, player, lane, session, attributes);
            let expires_at_ms = self.store.clock().now_ms().saturating_add(self.options.pass_ms);
            let mut pass = LoginPass {
                line: self.options.name.clone(),
                player: player.clone(),
                server: offer.and_then(|pick| pick.server.as_ref()).map(|target| target.id.clone()),
                link: offer.and_then(|pick| pick.link.as_ref()).map(|target| target.id.clone()),
                serial: 0,
                expires_at_ms,
                op: op.clone(),
            };
            let answer = self.store.run(&self.enter_call(&ticket, other.as_ref(), offer, &pass, kept)).await?;
            self.count("enter", &answer);
            match answer.word() {
                "ADMITTED" => {
                    metrics::counter!("maitred_admissions_total", "line" => self.options.name.to_string()).increment(1);
                    pass.serial = answer.number(0)?;
                    self.sent(&pass);
                    return Ok(Entered::Admitted(Admission {
                        pass,
                        seq: answer.number(1)?,
                        lane,
                        session: session.clone(),
                    }));
                }
                "PASS" => return self.standing_pass(player, session, &answer).map(Entered::Admitted),
                "WAITING" => {
                    let place = self.place(&answer)?;
                    return Ok(Entered::Waiting(Waiting {
                        session: session.clone(),
                        seq: place.0,
                        lane: place.1,
                        position: place.2,
                        estimate_ms: place.3,
                    }));
                }
                "FULL" => return Ok(Entered::Full),
                "LANE" => lane = u16::try_from(answer.number(0)?).map_err(|_| answer.unexpected())?,
                "NEED" => other = Some(self.needed_holder(answer.text(0)?, player)?),
                _ => self.refused(&answer, holder).await?,
            }
        }
        Err(asked_too_often("entering a line"))
    }

    /// The call of an enter without an offer, for many in one pipeline.
    #[doc(hidden)]
    pub fn enter_call_for(
        &self,
        holder: &NodeEpoch,
        player: &Player,
        session: &SessionId,
        attributes: &Attributes,
    ) -> Invocation {
        let pass = LoginPass {
            line: self.options.name.clone(),
            player: player.clone(),
            server: None,
            link: None,
            serial: 0,
            expires_at_ms: self.store.clock().now_ms().saturating_add(self.options.pass_ms),
            op: OperationId::fresh(),
        };
        self.enter_call(&self.ticket(holder, player, 0, session, attributes), None, None, &pass, 0)
    }

    fn enter_call(
        &self,
        ticket: &Ticket,
        other: Option<&NodeEpoch>,
        offer: Option<&Pick>,
        pass: &LoginPass,
        kept: u64,
    ) -> Invocation {
        let (keys, name, options) = (self.store.keys(), &self.options.name, &self.options);
        let (own_via, pass_name) = (self.via_name(&ticket.holder), self.pass_name(&ticket.player));
        let other_via = other.map(|holder| self.via_name(holder));
        let (own_node, away) = (keys.node(&ticket.holder.id), keys.away(name));
        let server = offer.and_then(|pick| pick.server.as_ref());
        let link = offer.and_then(|pick| pick.link.as_ref());
        let mut key_list = vec![
            keys.lines(),
            keys.line(name),
            keys.tickets(name),
            away,
            keys.gate(name),
            keys.vias(name),
            keys.via(&own_via),
            own_node,
            keys.pass(&pass_name),
            keys.control(),
            keys.roster(&options.gate.counted),
            keys.via(other_via.as_deref().unwrap_or(&own_via)),
        ];
        for target in [server, link] {
            key_list.extend(match target {
                Some(target) => [keys.node(&target.id), keys.held(&target.id), keys.due(&target.id)],
                None => [own_node, away, away],
            });
        }
        let sig = if offer.is_some() { pass.sign(&self.verifier) } else { String::new() };
        let mut call = Invocation::new(&scripts::QUEUE_ENTER, &key_list).arg(name.as_str()).arg(ticket.player.as_str());
        call = signed(call, ticket).arg(options.max_waiting);
        call = self
            .gate_args(call.arg(&options.lanes_text()))
            .arg(options.pass_ms)
            .arg(&other.map(NodeEpoch::to_string).unwrap_or_default());
        for target in [server, link] {
            call =
                call.arg(target.map_or("", |target| target.id.as_str())).arg(target.map_or(0, |target| target.epoch.0));
        }
        call =
            call.arg(pass.expires_at_ms).arg(pass.op.as_str()).arg(&sig).arg(options.arrive_ms).arg(keys.line_events());
        let kills = [self.control.kill_arg(KILL), self.kill(pass.server.as_ref()), self.kill(pass.link.as_ref())];
        kills.iter().fold(call, |call, kill| call.arg(&kill.bytes).arg(kill.verdict())).arg(kept)
    }

    /// Fixed rate, rate a backend, burst: as enter and admit take them.
    pub(super) fn gate_args(&self, call: Invocation) -> Invocation {
        let gate = &self.options.gate;
        call.arg(gate.fixed_per_second.unwrap_or(0)).arg(gate.per_backend).arg(gate.burst.unwrap_or(0))
    }

    /// `PASS serial server link expires_at op v sig seq lane`, verified.
    fn standing_pass(&self, player: &Player, session: &SessionId, answer: &Answer) -> Result<Admission> {
        const NAMES: [&str; 9] = ["serial", "server", "link", "expires_at", "op", "v", "sig", "seq", "lane"];
        let row: Row = NAMES.iter().copied().zip(answer.values().iter().map(String::as_str)).collect();
        let row = PassRow::from_row(&self.verifier, &self.options.name, player, &row)?;
        let row = row.ok_or_else(|| answer.unexpected())?;
        Ok(Admission { pass: row.pass, seq: row.seq, lane: row.lane, session: session.clone() })
    }

    /// Sequence, lane, position and estimate out of `WAITING seq lane rank …`.
    pub(super) fn place(&self, answer: &Answer) -> Result<(u64, u16, u64, Option<u64>)> {
        let (seq, lane, rank) = (answer.number(0)?, answer.number(1)?, answer.number(2)?);
        let lane = u16::try_from(lane).map_err(|_| answer.unexpected())?;
        let state = LineState::read(answer.values().get(3..).unwrap_or_default()).ok_or_else(|| answer.unexpected())?;
        let ahead = state.players_ahead(&self.options, usize::from(lane), rank);
        Ok((seq, lane, ahead.saturating_add(1), state.wait_ms(ahead, self.store.clock().now_ms())))
    }

    /// The `held:` key of a node, or one of no use.
    pub(super) fn held<'a>(&'a self, id: Option<&'a NodeId>) -> Key<'a> {
        let keys = self.store.keys();
        id.map_or_else(|| keys.away(&self.options.name), |id| keys.held(id))
    }

    pub(super) fn needed_holder(&self, text: &str, player: &Player) -> Result<NodeEpoch> {
        NodeEpoch::read(text).ok_or_else(|| Error::Protocol {
            during: "a line",
            detail: format!("the ticket of {player} names a holder that is none: {text:?}"),
        })
    }

    /// Server and link from the value `from` on.
    pub(super) fn needed_places(&self, answer: &Answer, from: usize) -> Result<[Option<NodeId>; 2]> {
        let id = |index: usize| -> Result<Option<NodeId>> {
            let text = answer.text(index)?;
            if text.is_empty() { Ok(None) } else { Ok(Some(NodeId::new(text)?)) }
        };
        Ok([id(from)?, id(from + 1)?])
    }

    /// The answers that several scripts share: Ok where the call can be repeated.
    pub(super) async fn refused(&self, answer: &Answer, who: &NodeEpoch) -> Result<()> {
        match answer.word() {
            "CONTROL" => self.control.refresh(&self.store, &self.verifier).await,
            "SKEW" => self.store.sync_clock().await,
            "KILLED" => {
                let entry = answer.text(0)?;
                Err(Error::KillSwitch { scope: entry.strip_prefix("kill:").unwrap_or("fleet").to_owned() })
            }
            "NO_LEASE" => Err(Error::LeaseLost { id: who.id.clone() }),
            "FENCED" => Err(Error::Fenced { id: who.id.clone(), epoch: who.epoch }),
            _ => Err(answer.unexpected()),
        }
    }

    pub(super) fn count(&self, what: &'static str, answer: &Answer) {
        Span::current().record("answer", answer.word());
        let labels =
            [("line", self.options.name.to_string()), ("what", what.to_owned()), ("answer", answer.word().to_owned())];
        metrics::counter!("maitred_lines_total", &labels).increment(1);
    }
}

/// The arguments that are a ticket's: lane to attributes.
pub(super) fn signed(call: Invocation, ticket: &Ticket) -> Invocation {
    call.arg(u32::from(ticket.lane))
        .arg(ticket.holder.id.as_str())
        .arg(ticket.holder.epoch.0)
        .arg(ticket.session.as_str())
        .arg(ticket.joined_at_ms)
        .arg(SCHEMA_VERSION_TEXT)
        .arg(&ticket.sig)
        .arg(ticket.attributes.as_str())
}

pub(super) fn text(id: Option<&NodeId>) -> &str {
    id.map_or("", NodeId::as_str)
}

pub(super) fn asked_too_often(during: &'static str) -> Error {
    Error::Unreachable { during, reason: "the store's state changed at every try".to_owned() }
}
