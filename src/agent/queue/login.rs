//! Login lines: what the application asks for a player who waits for a pass.

use std::sync::Arc;

use tracing::Span;

use crate::error::{Error, Result};
use crate::ids::{LineName, Player, SessionId};
use crate::queue::{Admission, Attributes, Failed, Left, Position, QueuedPlace};

use super::client::QueueClient;
use super::enter::Entrance;
use super::entry::{Departure, Entry};
use super::leave::Leaving;
use super::leaves::LeaveKind;
use super::line_handle::LineHandle;
use super::told::End;
use super::visit::{Entering, Failure, Visit};
use super::waiter::{Ending, Moment, Stage, Waiter};

/// Most players of one line that a node looks after, over those who may wait: admitted and on their way.
const ON_THEIR_WAY_MAX: u64 = 65_536;

/// An admitted player, as this node knows it.
struct Admitted {
    waiter: Arc<Waiter>,
    admission: Box<Admission>,
    failing: Option<SessionId>,
}

impl QueueClient {
    /// See [`ProxyAgent::enter`](crate::agent::ProxyAgent::enter).
    pub async fn enter_login_line(&self, entry: Entry) -> Result<Entering> {
        let line = self.line(&entry.line)?;
        let options = line.line.options();
        if usize::from(entry.lane) >= options.lanes.len() {
            return Err(Error::OutOfBounds {
                what: "lane",
                problem: format!("{}; line {} has {} lanes", entry.lane, entry.line, options.lanes.len()),
            });
        }
        let most = options.max_waiting.saturating_add(ON_THEIR_WAY_MAX);
        if u64::try_from(self.table().count(&entry.line)).is_ok_and(|count| count >= most) {
            return Ok(Entering::Full);
        }
        let offer = line.offer(&self.core.directory.recent_snapshot());
        let waiter = self.visitor(line, &entry.player, entry.lane, SessionId::fresh(), entry.attributes);
        let entering = match self.enter(&waiter, offer.as_ref()).await? {
            Entrance::Admitted(admitted) => Entering::Admitted(admitted),
            Entrance::Waits | Entrance::Over | Entrance::NoPass => Entering::Waiting(visit(&waiter)),
            Entrance::Full => Entering::Full,
        };
        Span::current().record("outcome", word(&entering));
        Ok(entering)
    }

    fn visitor(
        &self,
        line: Arc<LineHandle>,
        player: &Player,
        lane: u16,
        session: SessionId,
        attributes: Attributes,
    ) -> Arc<Waiter> {
        Waiter::new(line, player.clone(), lane, session, Ending::Pass(attributes), self.moment())
    }

    /// See [`ProxyAgent::left`](crate::agent::ProxyAgent::left).
    pub async fn leave_login_line_of(&self, line: &LineName, player: &Player, departure: Departure) -> Result<Left> {
        let key = (line.clone(), player.clone());
        let _turn = self.turns.lock(&key).await;
        let known = self.table().get(&key);
        let Some(waiter) = known else { return Ok(Left::None) };
        self.end(&waiter, End::Left);
        let kind = match departure {
            Departure::Dropped => LeaveKind::Keep,
            Departure::Quit => LeaveKind::Quit,
        };
        Ok(Leaving::new(self, &waiter, kind).send().await?.left)
    }

    fn admitted_one(&self, line: &LineName, player: &Player) -> Option<Admitted> {
        let waiter = self.table().get(&(line.clone(), player.clone()))?;
        match waiter.held().stage {
            Stage::Admitted { admission, failing } => Some(Admitted { waiter, admission, failing }),
            Stage::Entering { .. } | Stage::Waiting => None,
        }
    }

    /// See [`ProxyAgent::arrived`](crate::agent::ProxyAgent::arrived).
    pub async fn arrived(&self, line: &LineName, player: &Player) -> Result<bool> {
        let _turn = self.turns.lock(&(line.clone(), player.clone())).await;
        let Some(Admitted { waiter, admission, .. }) = self.admitted_one(line, player) else { return Ok(false) };
        let stands = waiter.line.line.arrived(&admission.pass).await?;
        self.table().remove(&waiter);
        Ok(stands)
    }

    /// See [`ProxyAgent::failed_admission`](crate::agent::ProxyAgent::failed_admission).
    pub async fn failed_admission(&self, line: &LineName, player: &Player, gone: bool) -> Result<Failure> {
        let _turn = self.turns.lock(&(line.clone(), player.clone())).await;
        let Some(Admitted { waiter, admission, failing }) = self.admitted_one(line, player) else {
            return Ok(Failure::Late);
        };
        let holder = self.core.acting()?;
        // The session is the operation: a report that had no answer is repeated under its own.
        let session = failing.unwrap_or_else(SessionId::fresh);
        waiter.fails_under(&session);
        let (now, attributes) = (self.moment(), waiter.attributes(&waiter.held())?);
        let (at, line) = (&waiter.line.line, &waiter.line);
        let failed = at.failed(&holder, &admission, &session, &attributes, gone).await?;
        self.table().remove(&waiter);
        if failed != Failed::Back {
            return Ok(match failed {
                Failed::Back | Failed::Away => Failure::Away,
                Failed::Out => Failure::Out,
                Failed::Late => Failure::Late,
                Failed::Landed => Failure::Landed,
            });
        }
        // A new visit, of a player who is back in front.
        let back = self.visitor(Arc::clone(line), player, admission.lane, session.clone(), attributes);
        let (seq, lane) = (admission.seq, admission.lane);
        let mut place = QueuedPlace { session, seq, lane, position: 1, estimate_ms: None };
        let (now, now_ms) = (Moment { epoch: holder.epoch, ..now }, self.core.store.clock().now_ms());
        // Waits from here on, whatever becomes of this future: the ticket stands.
        back.placed(&place, now, now_ms);
        self.table().insert(&back);
        match at.position(player).await {
            Ok(Position::Waiting { position, estimate_ms, .. }) => {
                (place.position, place.estimate_ms) = (position, estimate_ms)
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%player, %error, "no position yet; the next tick tells it"),
        }
        back.counted(place.position.saturating_sub(1), now_ms);
        self.tell_place(&back, place.shown(), place.estimate_ms);
        Ok(Failure::Back(visit(&back)))
    }
}

fn visit(waiter: &Waiter) -> Visit {
    Visit::new(waiter.line_name().clone(), waiter.player.clone(), waiter.session(), waiter.listen())
}

fn word(entering: &Entering) -> &'static str {
    match entering {
        Entering::Admitted(_) => "admitted",
        Entering::Waiting(_) => "waiting",
        Entering::Full => "full",
    }
}
