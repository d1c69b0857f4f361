//! The naive lines that the real ones are held against: a list in memory of who is where.

use super::*;

/// Where one player is, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Where {
    Waiting(u64),
    Away(u64),
    Admitted {
        seq: u64,
        held: bool,
        fails: u32,
    },
    /// The place was not taken in time: it stands for the next enter.
    Gone {
        seq: u64,
        fails: u32,
    },
}

/// The naive lines: a list of who is where. `next` counts the places given.
#[derive(Debug, Default)]
pub struct Naive {
    pub players: BTreeMap<usize, Where>,
    /// Failures that stay with a player who waits again.
    pub fails: BTreeMap<usize, u32>,
    pub next: u64,
    /// Places taken for good.
    pub seated: usize,
}

impl Naive {
    pub fn used(&self) -> usize {
        let held = self.players.values().filter(|at| matches!(at, Where::Admitted { held: true, .. })).count();
        self.seated + held
    }

    pub fn waiting(&self, line: usize) -> Vec<Visitor> {
        let place = |(visitor, at): (&Visitor, &Where)| match at {
            Where::Waiting(seq) if line_of(*visitor) == line => Some((*seq, *visitor)),
            _ => None,
        };
        let mut waiting: Vec<(u64, usize)> = self.players.iter().filter_map(place).collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(_, name)| name).collect()
    }

    pub fn tickets(&self, line: usize) -> usize {
        let here = self.players.iter().filter(|(visitor, _)| line_of(**visitor) == line);
        here.filter(|(_, at)| matches!(at, Where::Waiting(_) | Where::Away(_))).count()
    }

    /// The word of the answer.
    pub fn enter(&mut self, name: usize) -> &'static str {
        match self.players.get(&name).cloned() {
            Some(Where::Admitted { .. }) => return "admitted",
            Some(Where::Waiting(seq) | Where::Away(seq)) => {
                self.players.insert(name, Where::Waiting(seq));
            }
            Some(Where::Gone { seq, fails }) => {
                self.fails.insert(name, fails);
                self.players.insert(name, Where::Waiting(seq));
            }
            None if self.tickets(line_of(name)) >= MOST => return "full",
            None => {
                self.next += 1;
                self.players.insert(name, Where::Waiting(self.next));
            }
        }
        "waiting"
    }

    pub fn admit(&mut self, line: usize, most: usize) -> Vec<Visitor> {
        let free = CAPACITY.saturating_sub(self.used());
        let admitted: Vec<usize> = self.waiting(line).into_iter().take(most.min(free)).collect();
        for name in &admitted {
            let Some(Where::Waiting(seq)) = self.players.get(name).cloned() else { unreachable!("it waits") };
            let fails = self.fails.remove(name).unwrap_or(0);
            self.players.insert(*name, Where::Admitted { seq, held: true, fails });
        }
        admitted
    }
}
