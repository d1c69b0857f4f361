//! The calls of the application, as the desk does them.

use tracing::Span;

use crate::error::{Error, Result};
use crate::ids::{Epoch, LineName, Player, SessionId};
use crate::queue::{Admission, Attributes, Entered, Failed, Left, Position, Waiting};

use super::desk::Desk;
use super::entry::{Departure, Entering, Entry, Failure};
use super::goodbye::{Going, Goodbye};
use super::room::Room;
use super::turns::Key;
use super::visit::Visit;
use super::visits::Stage;

/// Most players of one line that a node looks after, over those who may wait: admitted and on their way.
const ON_THEIR_WAY_MAX: u64 = 65_536;

/// A visit that begins. Until it has begun the line is left in the background where this is dropped.
struct Entrance<'a> {
    desk: &'a Desk,
    key: Key,
    epoch: Epoch,
    session: SessionId,
    earlier: Option<SessionId>,
    departure: Departure,
    begun: bool,
}

impl Drop for Entrance<'_> {
    fn drop(&mut self) {
        if self.begun {
            return;
        }
        self.desk.forget(&self.key.0, &self.key.1, &self.session);
        // Which of the two holds the ticket is not known.
        for session in self.earlier.take().into_iter().chain([self.session.clone()]) {
            self.desk.goodbyes.leave_behind(Goodbye {
                key: self.key.clone(),
                epoch: self.epoch,
                what: Going::Visit { session, departure: self.departure },
            });
        }
    }
}

/// A goodbye that is on its way: left to the background where this is dropped.
struct Leaving<'a> {
    desk: &'a Desk,
    goodbye: Option<Goodbye>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if let Some(goodbye) = self.goodbye.take() {
            self.desk.goodbyes.leave_behind(goodbye);
        }
    }
}

impl Desk {
    pub(in crate::agent) async fn enter(&self, entry: Entry) -> Result<Entering> {
        let room = self.room(&entry.line)?;
        let lanes = room.config.lanes.len();
        if usize::from(entry.lane) >= lanes {
            return Err(Error::OutOfBounds {
                what: "lane",
                problem: format!("{}; line {} has {lanes} lanes", entry.lane, entry.line),
            });
        }
        let key = (entry.line.clone(), entry.player.clone());
        let _turn = self.turns.take(&key).await;
        let holder = self.core.acting()?;
        let most = room.config.max_waiting.saturating_add(ON_THEIR_WAY_MAX);
        if u64::try_from(self.visits().count(&entry.line)).is_ok_and(|count| count >= most) {
            return Ok(Entering::Full);
        }
        let session = SessionId::fresh();
        let earlier = self.visits().begin(&key, entry.lane, &entry.attributes, &session, holder.epoch);
        let mut entrance = Entrance {
            desk: self,
            key: key.clone(),
            epoch: holder.epoch,
            session: session.clone(),
            earlier,
            departure: Departure::Quit,
            begun: false,
        };
        let offer = room.offer(&self.core.directory.recent_snapshot());
        let breaks = self.core.store.connection_generation();
        let entered = room
            .line
            .enter(&holder, &entry.player, entry.lane, &session, &entry.attributes, offer.as_ref())
            .await
            // Who tries again within the grace has the place still.
            .inspect_err(|_| entrance.departure = Departure::Dropped)?;
        let entering = match entered {
            Entered::Admitted(admission) => {
                let admitted = self.hand_out(admission).await;
                self.admitted(&session, &admitted);
                Entering::Admitted(Box::new(admitted))
            }
            Entered::Waiting(waiting) => Entering::Waiting(self.waits(&room, &key, &waiting, breaks).await),
            Entered::Full => {
                self.forget(&entry.line, &entry.player, &session);
                Entering::Full
            }
        };
        entrance.begun = true;
        Span::current().record("outcome", word(&entering));
        Ok(entering)
    }

    /// The visit of a player who waits. Whoever was admitted before the answer was here is found at once.
    async fn waits(&self, room: &Room, key: &Key, waiting: &Waiting, breaks: u64) -> Visit {
        let (visit, was_heard) = self.visits().wait(key, waiting, self.core.store.clock().now_ms(), breaks);
        if was_heard && let Err(error) = self.inspect(room, vec![(key.1.clone(), waiting.session.clone())], false).await
        {
            tracing::debug!(player = %key.1, %error, "could not look after a player; the next tick does");
        }
        visit
    }

    pub(in crate::agent) async fn left(&self, line: &LineName, player: &Player, departure: Departure) -> Result<Left> {
        let key = (line.clone(), player.clone());
        let _turn = self.turns.take(&key).await;
        let Some(record) = self.visits().take(&key) else { return Ok(Left::None) };
        let what = match record.stage {
            // The place of a player who dropped is where the admission came from.
            Stage::Admitted { admission, failing } if departure == Departure::Dropped => Going::Dropped {
                admission: Box::new(admission),
                attributes: record.attributes,
                op: failing.unwrap_or_else(SessionId::fresh),
            },
            _ => Going::Visit { session: record.session, departure },
        };
        let goodbye = Goodbye { key, epoch: record.epoch, what };
        let mut leaving = Leaving { desk: self, goodbye: Some(goodbye.clone()) };
        let said = self.say(&goodbye).await;
        if said.as_ref().map_or_else(Error::is_retryable, |_| false) {
            return said;
        }
        leaving.goodbye = None;
        said
    }

    pub(in crate::agent) async fn arrived(&self, line: &LineName, player: &Player) -> Result<bool> {
        let key = (line.clone(), player.clone());
        let _turn = self.turns.take(&key).await;
        let Some((admission, ..)) = self.visits().admission(&key) else { return Ok(false) };
        let stands = self.known_room(line)?.line.arrived(&admission.pass).await?;
        self.visits().take(&key);
        Ok(stands)
    }

    pub(in crate::agent) async fn failed(&self, line: &LineName, player: &Player, gone: bool) -> Result<Failure> {
        let key = (line.clone(), player.clone());
        let _turn = self.turns.take(&key).await;
        let Some((admission, attributes, failing)) = self.visits().admission(&key) else { return Ok(Failure::Late) };
        let room = self.known_room(line)?;
        let holder = self.core.acting()?;
        // The session is the operation: a report that had no answer is repeated under its own.
        let session = failing.unwrap_or_else(SessionId::fresh);
        self.visits().failing(&key, &session);
        let breaks = self.core.store.connection_generation();
        let failed = room.line.failed(&holder, &admission, &session, &attributes, gone).await?;
        if failed == Failed::Back {
            let visit = self.back(&room, &key, (&admission, &attributes), &session, (holder.epoch, breaks)).await;
            return Ok(Failure::Back(visit));
        }
        self.visits().take(&key);
        Ok(match failed {
            Failed::Back | Failed::Away => Failure::Away,
            Failed::Out => Failure::Out,
            Failed::Late => Failure::Late,
            Failed::Landed => Failure::Landed,
        })
    }

    /// The new visit of a player who is back in front.
    async fn back(
        &self,
        room: &Room,
        key: &Key,
        (admission, attributes): (&Admission, &Attributes),
        session: &SessionId,
        (epoch, breaks): (Epoch, u64),
    ) -> Visit {
        self.visits().begin(key, admission.lane, attributes, session, epoch);
        let (seq, lane) = (admission.seq, admission.lane);
        let mut waiting = Waiting { session: session.clone(), seq, lane, position: 1, estimate_ms: None };
        match room.line.position(&key.1).await {
            Ok(Position::Waiting { position, estimate_ms, .. }) => {
                (waiting.position, waiting.estimate_ms) = (position, estimate_ms);
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(player = %key.1, %error, "no position yet; the next tick tells it"),
        }
        self.waits(room, key, &waiting, breaks).await
    }
}

fn word(entering: &Entering) -> &'static str {
    match entering {
        Entering::Admitted(_) => "admitted",
        Entering::Waiting(_) => "waiting",
        Entering::Full => "full",
    }
}
