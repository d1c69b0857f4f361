use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use maitred::agent::{Admitted, Departure, Entering, Entry, Failure, ProxyAgent, Update, Visit};
use maitred::ids::{LineName, Player, SessionId};
use maitred::queue::{Attributes, Left};

use super::line::{Line, error};
use super::session::Outputs;

/// Admissions that are remembered until a client says what became of them.
const REMEMBERED: usize = 65_536;

/// Calls of lines that are under way at the store at once. Thousands of players at the same moment must not stand before
/// this node's heartbeat, nor time out behind each other and be asked again.
const UNDER_WAY_MAX: usize = 128;

/// What was last told of a player in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Known {
    Waits(SessionId),
    /// Admitted: the serial, and the visit that was let in.
    In(u64, SessionId),
}

impl Known {
    fn session(&self) -> &SessionId {
        match self {
            Self::Waits(session) | Self::In(_, session) => session,
        }
    }

    fn is_in(&self, serial: u64) -> bool {
        matches!(self, Self::In(own, _) if *own == serial)
    }
}

#[derive(Debug, Default)]
struct Visits {
    known: HashMap<(LineName, Player), Known>,
    /// The admissions among them, oldest first, and some that are over.
    admitted: VecDeque<((LineName, Player), u64)>,
}

impl Visits {
    fn admit(&mut self, key: (LineName, Player), serial: u64, session: SessionId) {
        self.known.insert(key.clone(), Known::In(serial, session));
        self.admitted.push_back((key, serial));
        while self.admitted.len() > REMEMBERED {
            if let Some((key, serial)) = self.admitted.pop_front()
                && self.known.get(&key).is_some_and(|known| known.is_in(serial))
            {
                self.known.remove(&key);
            }
        }
    }
}

/// A proxy's players in login lines, and how their clients hear of them.
pub(super) struct Queue {
    outputs: Outputs,
    tasks: TaskTracker,
    stop: CancellationToken,
    known: Arc<Mutex<Visits>>,
    room: Semaphore,
}

/// A line of a client's that is about a player in a login line.
struct About {
    id: Option<String>,
    line: LineName,
    player: Player,
}

impl About {
    fn key(&self) -> (LineName, Player) {
        (self.line.clone(), self.player.clone())
    }

    fn told(&self, outcome: &str) -> Value {
        json!({ "id": self.id, "outcome": outcome, "player": self.player, "line": self.line })
    }
}

impl Queue {
    /// `tasks` own those that tell of visits, until `stop`.
    pub fn new(outputs: Outputs, tasks: TaskTracker, stop: CancellationToken) -> Self {
        Self { outputs, tasks, stop, known: Arc::default(), room: Semaphore::new(UNDER_WAY_MAX) }
    }

    /// Answers the ops of login lines; those of others have their answers elsewhere.
    pub async fn answer(&self, proxy: &ProxyAgent, line: Line) -> Value {
        // In the order of the lines; it is never closed.
        let _place = self.room.acquire().await;
        match line {
            Line::Enter { id, player, line, lane, attributes } => {
                let about = About { id: Some(id), line, player };
                let attributes = match Attributes::new(attributes) {
                    Ok(attributes) => attributes,
                    Err(why) => return error(about.id.as_deref(), &why),
                };
                let entry = Entry { line: about.line.clone(), player: about.player.clone(), lane, attributes };
                match proxy.enter(entry).await {
                    Ok(Entering::Admitted(admitted)) => self.admitted(&about, &admitted),
                    Ok(Entering::Waiting(visit)) => self.waits(&about, "waiting", visit),
                    Ok(Entering::Full) => about.told("full"),
                    Err(why) => error(about.id.as_deref(), &why),
                }
            }
            Line::Left { id, player, line, quit, session } => {
                let about = About { id, line, player };
                // The late goodbye of an old connection must not end the visit of the new one.
                if let (Some(session), Some(known)) = (&session, self.of(&about))
                    && session != known.session()
                {
                    return about.told("other");
                }
                // From here on the visit is over by its own wish: nobody is told that it ended.
                if matches!(self.of(&about), Some(Known::Waits(_))) {
                    self.forget(&about);
                }
                let departure = if quit { Departure::Quit } else { Departure::Dropped };
                match proxy.left(&about.line, &about.player, departure).await {
                    Ok(left) => {
                        if left != Left::Other {
                            self.forget(&about);
                        }
                        about.told(match left {
                            Left::Left => "left",
                            Left::Away => "away",
                            Left::Other => "other",
                            Left::None => "none",
                        })
                    }
                    Err(why) => error(about.id.as_deref(), &why),
                }
            }
            Line::Arrived { id, player, line, serial } => {
                let about = About { id, line, player };
                if self.is_late(&about, serial) {
                    return about.told("late");
                }
                match proxy.arrived(&about.line, &about.player).await {
                    Ok(true) => {
                        self.forget(&about);
                        about.told("arrived")
                    }
                    Ok(false) => about.told("late"),
                    Err(why) => error(about.id.as_deref(), &why),
                }
            }
            Line::Failed { id, player, line, gone, serial } => {
                let about = About { id, line, player };
                if self.is_late(&about, serial) {
                    return about.told("late");
                }
                let word = match proxy.failed_admission(&about.line, &about.player, gone).await {
                    Ok(Failure::Back(visit)) => return self.waits(&about, "back", visit),
                    Ok(Failure::Late) => return about.told("late"),
                    Ok(Failure::Away) => "away",
                    Ok(Failure::Out) => "out",
                    Ok(Failure::Landed) => "landed",
                    Err(why) => return error(about.id.as_deref(), &why),
                };
                self.forget(&about);
                about.told(word)
            }
            Line::Admits { id, on } => {
                proxy.admits(on);
                json!({ "id": id, "outcome": "ok" })
            }
            other => other.not_here("a proxy"),
        }
    }

    fn known(&self) -> MutexGuard<'_, Visits> {
        lock(&self.known)
    }

    fn of(&self, about: &About) -> Option<Known> {
        self.known().known.get(&about.key()).cloned()
    }

    fn forget(&self, about: &About) {
        self.known().known.remove(&about.key());
    }

    /// True where the player has a newer admission than the one with `serial`, or waits again.
    fn is_late(&self, about: &About, serial: Option<u64>) -> bool {
        let Some(serial) = serial else { return false };
        self.of(about).is_some_and(|known| !known.is_in(serial))
    }

    fn admitted(&self, about: &About, admitted: &Admitted) -> Value {
        note(&self.known, admitted);
        let mut answer = about.told("admitted");
        describe(&mut answer, admitted);
        answer
    }

    /// Answers with the place, and tells what becomes of it.
    fn waits(&self, about: &About, outcome: &str, mut visit: Visit) -> Value {
        let mut answer = about.told(outcome);
        answer["session"] = json!(visit.session());
        answer["position"] = visit.position().into();
        answer["estimate_ms"] = visit.estimate_ms().into();
        self.known().known.insert(about.key(), Known::Waits(visit.session().clone()));
        let (outputs, stop, known) = (self.outputs.clone(), self.stop.clone(), Arc::clone(&self.known));
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = follow(&mut visit, &outputs, &known) => {}
            }
        });
        answer
    }
}

fn lock(known: &Mutex<Visits>) -> MutexGuard<'_, Visits> {
    known.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(known: &Mutex<Visits>, admitted: &Admitted) {
    let admission = &admitted.admission;
    let key = (admitted.line.clone(), admitted.player.clone());
    lock(known).admit(key, admission.pass.serial, admission.session.clone());
}

/// Tells every client of a visit until it ends.
async fn follow(visit: &mut Visit, outputs: &Outputs, known: &Mutex<Visits>) {
    let event = |what: &str, visit: &Visit| json!({ "event": what, "player": visit.player(), "line": visit.line(), "session": visit.session() });
    loop {
        match visit.next().await {
            Some(Update::Position { position, estimate_ms }) => {
                let mut line = event("position", visit);
                line["position"] = position.into();
                line["estimate_ms"] = estimate_ms.into();
                outputs.tell(&line);
            }
            Some(Update::Admitted(admitted)) => {
                note(known, &admitted);
                let mut line = event("admitted", visit);
                describe(&mut line, &admitted);
                return outputs.deliver(&line).await;
            }
            Some(Update::Out { why }) => {
                ended(visit, known);
                let mut line = event("out", visit);
                line["why"] = why.as_str().into();
                return outputs.deliver(&line).await;
            }
            // Who left was answered; where the agent stopped the place is kept for the grace.
            None => {
                if ended(visit, known) {
                    let mut line = event("out", visit);
                    line["why"] = "stopped".into();
                    outputs.deliver(&line).await;
                }
                return;
            }
        }
    }
}

/// Forgets the visit; true where it was the player's last one.
fn ended(visit: &Visit, known: &Mutex<Visits>) -> bool {
    let (key, mut visits) = ((visit.line().clone(), visit.player().clone()), lock(known));
    let is_last = visits.known.get(&key) == Some(&Known::Waits(visit.session().clone()));
    if is_last {
        visits.known.remove(&key);
    }
    is_last
}

/// Where an admitted player goes, and with what.
fn describe(line: &mut Value, admitted: &Admitted) {
    let admission = &admitted.admission;
    let fields = json!({
        "server": admitted.server, "addr": admitted.addr, "link": admitted.link, "link_addr": admitted.link_addr,
        "pass": admitted.pass, "serial": admission.pass.serial, "seq": admission.seq, "lane": admission.lane,
        "session": admission.session,
    });
    if let (Some(line), Value::Object(fields)) = (line.as_object_mut(), fields) {
        line.extend(fields);
    }
}
