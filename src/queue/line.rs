use std::sync::Arc;

use tracing::Span;
use tracing::field::Empty;

use crate::error::{Error, Result};
use crate::ids::{LineName, NodeEpoch, NodeId, OperationId, Player, SessionId};
use crate::node::{Arrivals, Control, MemberConversation};
use crate::store::{Answer, Conversation, Invocation, Key, Row, Store, Verifier, boot_ms, scripts};

use super::admission::{Destination, TargetNode};
use super::estimate::LineState;
use super::new_players::NewPlayers;
use super::options::LineOptions;
use super::outcome::{Admission, Entered, QueuedPlace};
use super::pass::{LoginPass, PassRow};
use super::ticket::{Attributes, Ticket};

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

    /// For a node that lines lead to. Tells `arrivals` of every pass that is redeemed here, so that a later heartbeat of this
    /// node counts the player; [`drain`](Self::drain) gives only what lines have left of the node's soft cap.
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

    /// Talks to a script that checks nobody's lease. `what` names it in the count of answers.
    pub(super) fn conversation(
        &self,
        during: &'static str,
        what: &'static str,
    ) -> Conversation<'_, impl Fn(&Answer) + '_> {
        Conversation::new(&self.store, during, move |answer| self.count(what, answer))
    }

    /// Talks to a script that checks the lease of `who`.
    pub(super) fn conversation_of<'a>(
        &'a self,
        who: &'a NodeEpoch,
        during: &'static str,
        what: &'static str,
    ) -> MemberConversation<'a, impl Fn(&Answer) + 'a> {
        let count = move |answer: &Answer| self.count(what, answer);
        MemberConversation::new(&self.store, &self.verifier, who, during, count).obeying(&self.control)
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

    /// Gives `player`, who is connected to `holder`, a ticket behind those of `lane`; the same one again, also through
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
        offer: Option<&Destination>,
    ) -> Result<Entered> {
        self.enter_at(holder, player, lane, session, attributes, offer, 0).await
    }

    /// Like [`enter`](Self::enter) without an offer, for a player who had the sequence `seq` and lost it: the turn had come and
    /// nothing came of it, or the store lost its data. Without a ticket the sequence is that one again.
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
        offer: Option<&Destination>,
        kept: u64,
    ) -> Result<Entered> {
        if usize::from(lane) >= self.options.lanes.len() {
            return Err(Error::OutOfBounds {
                what: "lane",
                problem: format!("{lane}; line {} has {} lanes", self.options.name, self.options.lanes.len()),
            });
        }
        let (mut lane, mut other) = (lane, None);
        let mut pass = self.draft_pass(player, offer);
        let mut asked = self.conversation_of(holder, "entering a line", "enter");
        loop {
            let call = || {
                pass.expires_at_ms = self.store.clock().now_ms().saturating_add(self.options.pass_ms);
                let ticket = self.ticket(holder, player, lane, session, attributes);
                self.enter_call(&ticket, other.as_ref(), offer, &pass, kept)
            };
            let answer = asked.ask(call).await?;
            match answer.word() {
                "ADMITTED" => {
                    metrics::counter!("maitred_admissions_total", "line" => self.options.name.to_string()).increment(1);
                    pass.serial = answer.number(0)?;
                    self.sent(&pass);
                    let (seq, session) = (answer.number(1)?, session.clone());
                    return Ok(Entered::Admitted(Admission { pass, seq, lane, session }));
                }
                "PASS" => return self.standing_pass(player, session, &answer).map(Entered::Admitted),
                "WAITING" => {
                    let (seq, lane, position, estimate_ms) = self.waiting_at(&answer)?;
                    let session = session.clone();
                    return Ok(Entered::Waiting(QueuedPlace { session, seq, lane, position, estimate_ms }));
                }
                "FULL" => return Ok(Entered::Full),
                "LANE" => lane = needed_lane(&answer)?,
                "NEED" => other = Some(self.needed_holder(answer.text(0)?, player)?),
                _ => return Err(answer.unexpected()),
            }
        }
    }

    /// The pass of an admission to where `offer` leads, of an operation of its own. When it ends is said with each call.
    fn draft_pass(&self, player: &Player, offer: Option<&Destination>) -> LoginPass {
        let id = |target: Option<&TargetNode>| target.map(|target| target.id.clone());
        LoginPass {
            line: self.options.name.clone(),
            player: player.clone(),
            server: id(offer.and_then(|pick| pick.server.as_ref())),
            link: id(offer.and_then(|pick| pick.link.as_ref())),
            serial: 0,
            expires_at_ms: 0,
            op: OperationId::fresh(),
        }
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
        let mut pass = self.draft_pass(player, None);
        pass.expires_at_ms = self.store.clock().now_ms().saturating_add(self.options.pass_ms);
        self.enter_call(&self.ticket(holder, player, 0, session, attributes), None, None, &pass, 0)
    }

    fn enter_call(
        &self,
        ticket: &Ticket,
        other: Option<&NodeEpoch>,
        offer: Option<&Destination>,
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
        Invocation::new(&scripts::QUEUE_ENTER, &key_list)
            .arg(name.as_str())
            .arg(ticket.player.as_str())
            .ticket(ticket)
            .arg(options.max_waiting)
            .arg(&options.lanes_text())
            .gate(&options.gate)
            .arg(options.pass_ms)
            .arg(&other.map(NodeEpoch::to_string).unwrap_or_default())
            .target(server)
            .target(link)
            .arg(pass.expires_at_ms)
            .arg(pass.op.as_str())
            .arg(&sig)
            .arg(options.arrive_ms)
            .arg(keys.line_events())
            .kills([
                self.control.kill_of_fleet(),
                self.control.kill_of(pass.server.as_ref()),
                self.control.kill_of(pass.link.as_ref()),
            ])
            .arg(kept)
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
    pub(super) fn waiting_at(&self, answer: &Answer) -> Result<(u64, u16, u64, Option<u64>)> {
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

    fn count(&self, what: &'static str, answer: &Answer) {
        Span::current().record("answer", answer.word());
        let labels =
            [("line", self.options.name.to_string()), ("what", what.to_owned()), ("answer", answer.word().to_owned())];
        metrics::counter!("maitred_lines_total", &labels).increment(1);
    }
}

/// `LANE lane`: the ticket is in another lane, which the ticket has to say.
pub(super) fn needed_lane(answer: &Answer) -> Result<u16> {
    u16::try_from(answer.number(0)?).map_err(|_| answer.unexpected())
}
