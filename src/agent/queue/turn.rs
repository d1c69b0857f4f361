//! Whether a player's turn has come, and taking it: a login line ends in a pass, a wait line in a token.

use std::sync::Arc;

use futures_util::{StreamExt, stream};

use crate::agent::core::Denied;
use crate::agent::model::{Reason, Request, Transfer};
use crate::error::{Class, Error, Result, StoreRefusal};
use crate::ids::{NodeId, OperationId, Player, SessionId};
use crate::node::roster::address_of;
use crate::queue::{Admission, Line, PassRow};
use crate::token::{ClaimOutcome, Token, TokenRow, TokenState};

use super::client::{QueueClient, Why};
use super::entry::Admitted;
use super::leaves::{LeaveKind, LeaveRequest};
use super::requests::Progress;
use super::told::End;
use super::waiter::{Ending, Held, Waiter};

/// Rows that are read at the same time.
const CONCURRENT: usize = 32;

/// What the store has of a player beside the ticket.
pub(super) enum Row {
    Pass(Box<PassRow>),
    Token(Box<TokenRow>),
    None,
    /// It does not verify, which was audited: nobody acts on it.
    Untrusted,
}

/// What that says of a wait.
pub(super) enum Turn {
    /// It has come.
    Come(Row),
    /// It had come, and nothing came of it: the player stands in front again.
    Missed,
    /// The wait is over.
    Over(Why),
    /// It is over unless the place is about to be entered again.
    OverIfLost(Why),
    /// It says nothing.
    NotYet,
    /// Nobody can say now.
    Unknown,
}

/// What came of claiming the token of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// This proxy moves the player.
    Moves,
    /// The wait is over without a place here.
    Over,
    /// Nothing: the player stands in front again.
    Missed,
    /// It is claimed anew with the next tick.
    Later,
}

impl QueueClient {
    /// The rows of these players of a line, each beside its ticket.
    pub(super) async fn rows_of(&self, line: &Line, waiters: &[Arc<Waiter>]) -> Result<Vec<Row>> {
        let players: Vec<Player> = waiters.iter().map(|waiter| waiter.player.clone()).collect();
        if waiters.first().is_some_and(|waiter| matches!(waiter.ending, Ending::Token(_))) {
            let finds = players.into_iter().map(|player| async move { self.core.book.find(&player).await });
            let rows: Vec<Result<Option<TokenRow>>> = stream::iter(finds).buffered(CONCURRENT).collect().await;
            return rows
                .into_iter()
                .map(|row| read(row, |row| Row::Token(Box::new(row)), Row::None, Row::Untrusted))
                .collect();
        }
        let rows = line.passes_of(&players).await?;
        rows.into_iter().map(|row| read(row, |row| Row::Pass(Box::new(row)), Row::Untrusted, Row::None)).collect()
    }

    /// What a row says of a wait.
    pub(super) fn turn(&self, waiter: &Waiter, held: &Held, row: Row) -> Turn {
        match row {
            Row::Pass(row) => self.turn_by_pass(held, row),
            Row::Token(row) => self.turn_by_token(waiter, held, row),
            Row::None => Turn::NotYet,
            Row::Untrusted => Turn::Unknown,
        }
    }

    fn turn_by_pass(&self, held: &Held, row: Box<PassRow>) -> Turn {
        let is_own = row.session.as_ref().is_none_or(|own| *own == held.session);
        if row.redeemed_at_ms.is_none()
            && !row.void
            && is_own
            && self.core.store.clock().now_ms() < row.pass.expires_at_ms
        {
            return Turn::Come(Row::Pass(row));
        }
        // Of another visit, and it came from the place of this one. One that is older than the place says nothing: the
        // player has been in before.
        if !row.void && !is_own && row.pass.serial / 1_000 >= held.seq {
            return Turn::Over(Why::Elsewhere("another visit of the player was admitted".to_owned()));
        }
        Turn::NotYet
    }

    fn turn_by_token(&self, waiter: &Waiter, held: &Held, row: Box<TokenRow>) -> Turn {
        let (is_live, server) = (row.is_live(self.core.store.clock().now_ms()), &row.token.server);
        if row.token.request == held.wish {
            return match (row.state, row.reason.as_deref()) {
                (TokenState::Consumed, _) => Turn::Over(Why::Elsewhere("the player has landed already".to_owned())),
                (TokenState::Released, Some("cancelled")) => Turn::Over(Why::Cancelled("it was cancelled")),
                _ if is_live => Turn::Come(Row::Token(row)),
                _ => Turn::Missed,
            };
        }
        let wanted = waiter.request().and_then(|request| request.ask.server.as_ref());
        if is_live && row.state == TokenState::Pending && wanted.is_none_or(|only| only == server) {
            // Another request of the player left it, and nobody moves them to it.
            return Turn::Come(Row::Token(row));
        }
        if is_live {
            return Turn::Over(Why::Elsewhere(format!("another request of the player has a place at {server}")));
        }
        if row.consumed_at_ms.is_some_and(|at| at >= held.seq) {
            return Turn::OverIfLost(Why::Elsewhere(format!("the player has landed at {server}")));
        }
        Turn::NotYet
    }

    /// True for the token of this very wait, which may stand beside its ticket.
    pub(super) fn is_own(held: &Held, row: &Row) -> bool {
        match row {
            Row::Pass(_) => true,
            Row::Token(row) => row.token.request == held.wish,
            Row::None | Row::Untrusted => false,
        }
    }

    /// Hands a player over whose turn has come. False where nothing came of it: the player stands in front again. Whoever calls
    /// this has the player's turn, and enters them again.
    pub(super) async fn take_turn(&self, waiter: &Arc<Waiter>, held: &Held, row: Row) -> Result<bool> {
        match row {
            Row::Pass(row) => {
                let PassRow { pass, seq, lane, .. } = *row;
                self.admit(waiter, Admission { pass, seq, lane, session: held.session.clone() }).await;
                Ok(true)
            }
            Row::Token(row) => self.claim(waiter, held, *row).await,
            Row::None | Row::Untrusted => Ok(true),
        }
    }

    /// The player of a login line is in: whoever listens hears it.
    pub(super) async fn admit(&self, waiter: &Arc<Waiter>, admission: Admission) -> Admitted {
        let admitted = self.hand_out(admission).await;
        if waiter.is_over() {
            return admitted;
        }
        waiter.admitted(admitted.admission.clone());
        self.table().admitted(waiter, admitted.admission.pass.expires_at_ms);
        if self.end(waiter, End::Admitted(Box::new(admitted.clone()))) {
            metrics::histogram!("maitred_line_wait_seconds", "line" => waiter.line_name().to_string())
                .record(waiter.waited().as_secs_f64());
        }
        admitted
    }

    /// What the application is handed for an admission.
    async fn hand_out(&self, admission: Admission) -> Admitted {
        let (core, pass) = (&self.core, &admission.pass);
        let picked = [pass.server.as_ref(), pass.link.as_ref()];
        let is_unknown = |id: &NodeId| core.directory.view_of(id).is_none();
        if picked.into_iter().flatten().any(is_unknown) {
            // Whoever admitted knows a node that is new.
            if let Err(error) = core.directory.refresh().await {
                tracing::debug!(%error, "could not look for the address of an admission");
            }
        }
        let addr = |id: Option<&NodeId>| core.directory.view_of(id?).map(|view| view.record.addr.clone());
        let [addr, link_addr] = picked.map(addr);
        Admitted {
            line: pass.line.clone(),
            player: pass.player.clone(),
            server: pass.server.clone(),
            addr,
            link: pass.link.clone(),
            link_addr,
            pass: pass.seal(&core.verifier),
            admission,
        }
    }

    /// Charges the request and claims the token of its turn. Where nothing comes of it the charge goes back; where nobody knows
    /// what came of it, both are repeated.
    async fn claim(&self, waiter: &Arc<Waiter>, held: &Held, row: TokenRow) -> Result<bool> {
        let Ending::Token(wish) = &waiter.ending else { return Ok(false) };
        let mut charge = wish.charge.lock().await;
        match charge.take(&wish.request).await {
            Ok(None) => {}
            Ok(Some(Denied { retry_after_ms, detail })) => {
                self.give_up_turn(waiter, Why::Limited(retry_after_ms, detail));
                return Ok(true);
            }
            Err(error) if error.is_retryable() => return Err(error),
            Err(error) => {
                self.give_up_turn(waiter, Why::Failed(Reason::of(&error), error.to_string()));
                return Ok(true);
            }
        }
        let claimed = self.claim_charged(waiter, &wish.request, held, row).await?;
        if claimed == Claim::Moves {
            charge.served();
        } else {
            charge.refund().await;
        }
        Ok(claimed != Claim::Missed)
    }

    async fn claim_charged(
        &self,
        waiter: &Arc<Waiter>,
        request: &Request,
        held: &Held,
        row: TokenRow,
    ) -> Result<Claim> {
        let (core, token) = (&self.core, row.token);
        let addr = match core.directory.snapshot().get(&token.server) {
            Some(view) => Some(view.record.addr.clone()),
            None => address_of(&core.store, &core.verifier, &token.server).await?,
        };
        let Some(addr) = addr else { return Ok(Claim::Missed) };
        if token.request != held.wish {
            waiter.change(|held| held.claiming = Some(token.clone()));
        }
        match core.book.claim(&token, &core.acting()?, &held.op).await {
            Ok(ClaimOutcome::Claimed(_)) => {
                let turn_ms = token.issued_at_ms;
                let transfer = Transfer::claimed(&core.store, request.id.clone(), token, addr, held.op.clone());
                let key = (waiter.player.clone(), request.id.clone());
                // Known here first: a cancel finds the transfer or the wait. Where the wait is over, whoever ended it gives the
                // claim up.
                let is_known = self.requests.advance(&key, Progress::Moving(Box::new(transfer.clone())));
                let moves = is_known && self.end(waiter, End::Transfer(Box::new(transfer)));
                if is_known && !moves {
                    self.requests.forget(&key);
                }
                if held.may_stand_twice(turn_ms) {
                    self.leave_ticket(waiter, held, held.session.clone(), LeaveKind::Quit);
                }
                Ok(if moves { Claim::Moves } else { Claim::Over })
            }
            // Reopened since, by somebody who took this proxy for dead: nobody else moves them, and another claim will do.
            Ok(ClaimOutcome::Lost) if self.is_pending(&token).await? => {
                waiter.change(|held| held.op = OperationId::fresh());
                Ok(Claim::Later)
            }
            Ok(ClaimOutcome::Lost) => {
                self.refuse(waiter, Why::Elsewhere(format!("another proxy moves them to {}", token.server)));
                Ok(Claim::Over)
            }
            Ok(ClaimOutcome::Expired | ClaimOutcome::Ended(_) | ClaimOutcome::None | ClaimOutcome::ServerGone) => {
                Ok(Claim::Missed)
            }
            // Asked again with the next tick, for as long as the token lives; by then as another epoch where this one is over.
            Err(error @ (Error::KillSwitch { .. } | Error::Fenced { .. })) => Err(error),
            Err(error) if error.is_retryable() => Err(error),
            Err(error) => {
                self.give_up_turn(waiter, Why::Failed(Reason::of(&error), error.to_string()));
                Ok(Claim::Over)
            }
        }
    }

    /// Ends a wait whose turn nobody will take. The place that was kept for it goes back.
    fn give_up_turn(&self, waiter: &Arc<Waiter>, why: Why) {
        if self.refuse(waiter, why) {
            self.leaves.leave_behind(LeaveRequest::Waiter(Arc::clone(waiter), LeaveKind::Quit));
        }
    }

    async fn is_pending(&self, token: &Token) -> Result<bool> {
        let row = self.core.book.find(&token.player).await?;
        Ok(row.is_some_and(|row| row.token.id == token.id && row.state == TokenState::Pending))
    }

    /// Takes a ticket away that nobody here waits for.
    pub(super) fn leave_ticket(&self, waiter: &Waiter, held: &Held, session: SessionId, kind: LeaveKind) {
        self.leaves.leave_behind(LeaveRequest::Ticket {
            line: Arc::clone(&waiter.line),
            player: waiter.player.clone(),
            holder: self.holder(held),
            session,
            kind,
        });
    }
}

/// A row that could be read; what stands for one that does not verify, and for a key of another type.
fn read<T>(row: Result<Option<T>>, found: impl FnOnce(T) -> Row, distrusted: Row, of_another_type: Row) -> Result<Row> {
    match row {
        Ok(row) => Ok(row.map_or(Row::None, found)),
        Err(Error::Refused { refusal: StoreRefusal::WrongType, .. }) => Ok(of_another_type),
        Err(error) if error.class() == Class::Trust => Ok(distrusted),
        Err(error) => Err(error),
    }
}
