//! What became of those who may not wait any more, and what follows from it: the one verdict over a ticket.
//!
//! The ticket is read before the pass or the token: it becomes one in one step, and the other way round neither might be there.
//! What was read is acted on in the player's turn, and only where nothing was changed meanwhile.

use std::sync::Arc;

use futures_util::{StreamExt, stream};

use crate::error::{Error, Result};
use crate::ids::{NodeEpoch, Player};
use crate::queue::{Line, Ticket, TicketText};

use super::client::{QueueClient, Why};
use super::turn::{Row, Turn};
use super::waiter::{Held, Waiter};

/// Players that are looked at in one piece.
const PIECE: usize = 256;
/// Players whose verdicts are followed at the same time.
const CONCURRENT: usize = 32;

/// Why somebody looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// An event said that the turn has come: the pass or token is looked at first.
    Turn,
    /// The player is not among those who wait through this node: the ticket may have been put away.
    Unlisted,
    Other,
}

/// What follows.
enum Verdict {
    /// The player waits, or nobody can say now.
    Stands,
    Take(Row),
    /// Again, as another visit.
    InFront,
    ReEnroll,
    End(Why),
    /// Over, unless the store has lost what it acknowledged since this time, in store ms.
    EndUnlessLost(Why, u64),
}

/// One waiter, as it was when it was looked at.
struct Seen {
    waiter: Arc<Waiter>,
    held: Held,
}

impl Seen {
    fn is_first_by_turn(&self, cause: Cause) -> bool {
        cause == Cause::Turn || self.held.doubtful
    }
}

impl QueueClient {
    /// Finds out what became of players of one line. Where the store does not answer it is asked again with the next tick.
    pub(super) async fn reconcile(&self, line: &Line, waiters: &[Arc<Waiter>], cause: Cause) -> Result<()> {
        for piece in waiters.chunks(PIECE) {
            let seen = piece.iter().map(|waiter| Seen { waiter: Arc::clone(waiter), held: waiter.held() });
            let seen: Vec<Seen> = seen.filter(|seen| seen.held.is_waiting() && !seen.waiter.is_over()).collect();
            if !seen.is_empty() {
                self.reconcile_piece(line, seen, cause).await?;
            }
        }
        Ok(())
    }

    async fn reconcile_piece(&self, line: &Line, seen: Vec<Seen>, cause: Cause) -> Result<()> {
        let me = self.core.acting().ok();
        let (by_turn, mut rest): (Vec<Seen>, Vec<Seen>) =
            seen.into_iter().partition(|seen| seen.is_first_by_turn(cause));
        let mut verdicts = Vec::new();
        for (seen, row) in self.with_rows(line, by_turn).await? {
            match self.turn(&seen.waiter, &seen.held, row) {
                Turn::Come(row) if Self::is_own(&seen.held, &row) => verdicts.push((seen, Verdict::Take(row))),
                _ => {
                    seen.waiter.settle_doubt(&seen.held.session);
                    let held = seen.waiter.held();
                    rest.push(Seen { held, ..seen });
                }
            }
        }
        let players: Vec<Player> = rest.iter().map(|seen| seen.waiter.player.clone()).collect();
        let tickets = line.tickets_of(&players).await?;
        let mut without = Vec::new();
        for (seen, ticket) in rest.into_iter().zip(tickets) {
            match ticket {
                None => without.push(seen),
                Some(ticket) => {
                    let verdict = self.by_ticket(&seen.held, &ticket, cause);
                    verdicts.push((seen, verdict));
                }
            }
        }
        for (seen, row) in self.with_rows(line, without).await? {
            let verdict = self.by_turn(&seen, row);
            verdicts.push((seen, verdict));
        }
        self.follow(me.as_ref(), verdicts).await
    }

    async fn with_rows(&self, line: &Line, seen: Vec<Seen>) -> Result<Vec<(Seen, Row)>> {
        if seen.is_empty() {
            return Ok(Vec::new());
        }
        let waiters: Vec<Arc<Waiter>> = seen.iter().map(|seen| Arc::clone(&seen.waiter)).collect();
        Ok(seen.into_iter().zip(self.rows_of(line, &waiters).await?).collect())
    }

    fn by_ticket(&self, held: &Held, ticket: &TicketText, cause: Cause) -> Verdict {
        let stands = !self.is_outdated(held) && cause != Cause::Unlisted;
        match ticket {
            TicketText::Good(ticket) if ticket.session == held.session && stands => Verdict::Stands,
            TicketText::Good(ticket) if self.is_elsewhere(held, ticket) => {
                let why = Why::Replaced("the player waits through another request or proxy");
                Verdict::EndUnlessLost(why, ticket.joined_at_ms)
            }
            // Put away, or of an earlier visit through this node: the present one writes it anew.
            TicketText::Good(_) => Verdict::ReEnroll,
            TicketText::Forged if cause == Cause::Unlisted => Verdict::ReEnroll,
            // Put out by whoever serves the line; or of another build, which looks after it.
            TicketText::Forged | TicketText::Strange => Verdict::Stands,
        }
    }

    fn is_elsewhere(&self, held: &Held, ticket: &Ticket) -> bool {
        ticket.session != held.session && ticket.holder.id != self.core.identity.id
    }

    fn by_turn(&self, seen: &Seen, row: Row) -> Verdict {
        let is_outdated = self.is_outdated(&seen.held);
        match self.turn(&seen.waiter, &seen.held, row) {
            Turn::Come(row) => Verdict::Take(row),
            Turn::Missed => Verdict::InFront,
            Turn::Over(why) => Verdict::End(why),
            Turn::Unknown => Verdict::Stands,
            // The sweep of another node may have been its end; with the lease it is entered again.
            Turn::OverIfLost(_) | Turn::NotYet if !self.core.lease.is_valid() => Verdict::Stands,
            Turn::OverIfLost(_) | Turn::NotYet if is_outdated => Verdict::ReEnroll,
            Turn::OverIfLost(why) => Verdict::End(why),
            Turn::NotYet if seen.waiter.is_outstayed() => Verdict::EndUnlessLost(Why::TooLong, u64::MAX),
            Turn::NotYet => Verdict::EndUnlessLost(Why::Gone, 0),
        }
    }

    async fn follow(&self, me: Option<&NodeEpoch>, mut verdicts: Vec<(Seen, Verdict)>) -> Result<()> {
        if verdicts.iter().any(|(_, verdict)| matches!(verdict, Verdict::EndUnlessLost(..))) {
            // With the store's data the membership is gone too: this proxy joins again, and enters its players again.
            let is_known = match me {
                Some(me) => self.core.is_known(me.epoch).await?,
                None => false,
            };
            // Asked after that answer: by now a break is known of.
            let now = self.moment();
            for (seen, verdict) in &mut verdicts {
                if let Verdict::EndUnlessLost(why, since_ms) = verdict {
                    let is_lost = seen.held.known.connection_generation != now.connection_generation
                        && *since_ms < seen.held.entered_ms;
                    *verdict = match (is_known, is_lost) {
                        (false, _) => Verdict::Stands,
                        (true, true) => Verdict::ReEnroll,
                        (true, false) => Verdict::End(why.clone()),
                    };
                }
            }
        }
        verdicts.sort_by_key(|(seen, _)| seen.held.seq);
        let (again, others): (Vec<_>, Vec<_>) =
            verdicts.into_iter().partition(|(_, verdict)| matches!(verdict, Verdict::ReEnroll));
        let following = others.into_iter().map(|(seen, verdict)| self.follow_one(seen, verdict));
        stream::iter(following).buffer_unordered(CONCURRENT).collect::<()>().await;
        let Some(me) = me else { return Ok(()) };
        let again = again.into_iter().map(|(seen, _)| (seen.waiter, seen.held.version)).collect();
        self.re_enroll_all(me, again).await
    }

    async fn follow_one(&self, seen: Seen, verdict: Verdict) {
        let Seen { waiter, held } = seen;
        if matches!(verdict, Verdict::Stands) {
            return;
        }
        let _turn = self.turns.lock(&waiter.key()).await;
        if waiter.is_over() || waiter.held().version != held.version {
            return;
        }
        let followed = async {
            let stands_in_front = match verdict {
                Verdict::Take(row) => !self.take_turn(&waiter, &held, row).await?,
                Verdict::End(why) => {
                    self.refuse(&waiter, why);
                    false
                }
                Verdict::InFront => true,
                Verdict::Stands | Verdict::ReEnroll | Verdict::EndUnlessLost(..) => false,
            };
            if stands_in_front {
                waiter.begin_again();
                self.re_enroll(&self.core.acting()?, &waiter).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(error) = followed.await {
            tracing::debug!(player = %waiter.player, %error, "looked after with the next tick");
        }
    }
}
