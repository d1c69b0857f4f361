use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use super::stage::claimant;
use super::tally::{Counts, Landing};
use super::verdict::{self, Check, Proof, equal, least};
use crate::view::line;
use maitred::store::ServerInfo;
use maitred::token::{TokenRow, TokenState};

/// A claim that the killed proxy left in the store.
#[derive(Debug, Clone)]
pub(super) struct Left {
    pub player: String,
    pub token: String,
}

/// Where a backend's places are at the end, as it says; `None` where it did not answer.
#[derive(Debug, Clone)]
pub(super) struct Home {
    pub server: String,
    pub given: u64,
    pub free: Option<u64>,
    pub promised: Option<u64>,
}

impl Home {
    /// Places that are nowhere: given − free − landed there − still promised. Below zero where there are too many.
    fn leaked(&self, counts: &Counts) -> i128 {
        let there = [self.free.unwrap_or(0), self.promised.unwrap_or(0), counts.landed_on(&self.server)];
        i128::from(self.given) - there.into_iter().map(i128::from).sum::<i128>()
    }

    /// Nothing is away, and every event of it has been heard.
    pub fn is_whole(&self, counts: &Counts) -> bool {
        let of = |events: &BTreeMap<String, u64>| events.get(&self.server).copied().unwrap_or(0);
        let kept = of(&counts.promised).checked_sub(of(&counts.returned));
        self.promised == Some(0) && self.leaked(counts) == 0 && kept == Some(counts.landed_on(&self.server))
    }
}

/// What the processes and the store said.
#[derive(Debug)]
pub(super) struct Evidence {
    pub players: usize,
    pub counts: Counts,
    pub homes: Vec<Home>,
    /// The players' rows at the end, verified.
    pub rows: BTreeMap<String, TokenRow>,
    pub bad_rows: u64,
    /// Servers with tokens that someone must still look at.
    pub open_servers: usize,
    pub victim: String,
    pub left: Vec<Left>,
    pub killed: u64,
    pub elapsed: Duration,
    pub info: ServerInfo,
}

/// The result for programs.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    ok: bool,
    players: u64,
    landed: u64,
    landed_twice: u64,
    lost: u64,
    places_promised: u64,
    places_returned: u64,
    places_leaked: u64,
    reanimated: u64,
    proxies_killed: u64,
    elapsed_ms: u64,
    store: ServerInfo,
}

/// How the claims that the dead proxy left have ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ends {
    /// Claimed again by another proxy, then consumed.
    finished: u64,
    /// Consumed by a player who had been told where to go before.
    arrived: u64,
    /// Nobody came; the place came home.
    home: u64,
    /// None of these.
    stuck: u64,
}

impl Evidence {
    fn ends(&self) -> Ends {
        let mut ends = Ends::default();
        for left in &self.left {
            let row = self.rows.get(&left.player).filter(|row| row.token.id.as_str() == left.token);
            let consumed = row.filter(|row| row.state == TokenState::Consumed);
            match consumed.map(claimant) {
                Some(Some(by)) if by != self.victim => ends.finished += 1,
                Some(_) => ends.arrived += 1,
                None if self.counts.home.contains(&left.token) => ends.home += 1,
                None => ends.stuck += 1,
            }
        }
        ends
    }

    /// Tokens that were reopened: as the channel said, and as the rows at the end still show.
    fn reanimated(&self) -> u64 {
        let rows = self.rows.values().filter(|row| row.last_claim.is_some());
        let mut tokens: BTreeSet<&str> = rows.map(|row| row.token.id.as_str()).collect();
        tokens.extend(self.counts.reopened.iter().map(String::as_str));
        count(tokens.len())
    }

    fn landings(&self) -> impl Iterator<Item = (&String, &Landing)> {
        self.counts.landed.iter().flat_map(|(player, landings)| landings.iter().map(move |landing| (player, landing)))
    }

    /// Landings whose token the store calls consumed, on that backend.
    fn consumed(&self) -> u64 {
        let consumed = self.landings().filter(|(player, landing)| {
            self.rows.get(*player).is_some_and(|row| {
                row.token.id.as_str() == landing.token
                    && row.token.server.as_str() == landing.server
                    && row.state == TokenState::Consumed
            })
        });
        count(consumed.count())
    }

    /// Places that were handed over more than once.
    fn shared_places(&self) -> u64 {
        let mut seen = BTreeSet::new();
        count(self.landings().filter(|(_, landing)| !seen.insert((&landing.server, &landing.place))).count())
    }

    fn summary(&self, ok: bool) -> Summary {
        let landed = count(self.counts.landed.len());
        Summary {
            ok,
            players: count(self.players),
            landed,
            landed_twice: count(self.counts.landed.values().filter(|landings| landings.len() > 1).count()),
            lost: count(self.players).saturating_sub(landed),
            places_promised: self.counts.promised.values().sum(),
            places_returned: self.counts.returned.values().sum(),
            places_leaked: self
                .homes
                .iter()
                .map(|home| u64::try_from(home.leaked(&self.counts).unsigned_abs()).unwrap_or(u64::MAX))
                .sum(),
            reanimated: self.reanimated(),
            proxies_killed: self.killed,
            elapsed_ms: u64::try_from(self.elapsed.as_millis()).unwrap_or(u64::MAX),
            store: self.info.clone(),
        }
    }

    fn checks(&self) -> Vec<Check> {
        let sum = self.summary(false);
        let landings = count(self.landings().count());
        let promised: u64 = self.homes.iter().map(|home| home.promised.unwrap_or(0)).sum();
        let accounted = landings + sum.places_returned + promised;
        let open = count(self.rows.values().filter(|row| row.state.is_open()).count()) + count(self.open_servers);
        let silent = count(self.homes.iter().filter(|home| home.free.is_none()).count());
        let unheard = self.counts.missed + self.counts.odd + self.bad_rows + silent;
        let ends = self.ends();
        let left = count(self.left.len());
        vec![
            equal("players who landed", sum.landed, sum.players),
            equal("players who landed twice", sum.landed_twice, 0),
            equal("players lost", sum.lost, 0),
            equal("places handed to two players", self.shared_places(), 0),
            equal("places promised that landed or came home", accounted, sum.places_promised),
            equal("places leaked", sum.places_leaked, 0),
            equal("used tokens that the store calls CONSUMED", self.consumed(), landings),
            equal("tokens still open in the store", open, 0),
            equal("proxies killed (SIGKILL)", sum.proxies_killed, 1),
            least("claims that the dead proxy left", left, 1),
            least("claims reopened by the reaper", sum.reanimated, 1),
            least("left claims finished by the other proxy", ends.finished, 1),
            equal("left claims that came to an end", left - ends.stuck, left),
            equal("things unheard or not believed", unheard, 0),
        ]
    }

    /// What stands behind the numbers.
    fn details(&self) {
        let (sum, ends) = (self.summary(false), self.ends());
        line(&format!(
            "Places: {} promised, {} used, {} returned; {} of the returned ran out because nobody came or said so.",
            sum.places_promised,
            self.landings().count(),
            sum.places_returned,
            self.counts.vanished
        ));
        line(&format!(
            "Claims of the dead proxy: {} finished by the other, {} players arrived by themselves, {} places came home.",
            ends.finished, ends.arrived, ends.home
        ));
        let refused: Vec<String> =
            self.counts.refused.iter().map(|(reason, times)| format!("{times} {reason}")).collect();
        line(&format!(
            "On the way: {} changes to the other proxy; refused and asked again: {}.",
            self.counts.reconnects,
            if refused.is_empty() { "nobody".to_owned() } else { refused.join(", ") },
        ));
    }
}

impl Proof for Evidence {
    type Summary = Summary;

    fn print(&self) -> bool {
        let checks = self.checks();
        verdict::print(&checks);
        self.details();
        for odd in &self.counts.odd_lines {
            line(&format!("odd: {odd}"));
        }
        let ok = checks.iter().all(|check| check.ok);
        let verdict = if ok { "Everything holds" } else { "NOT everything holds" };
        let seconds = self.elapsed.as_secs_f64();
        line(&format!("{verdict}, in {seconds:.1} s on {} {}.", self.info.name, self.info.version));
        ok
    }

    fn for_programs(&self) -> (bool, Summary) {
        let ok = self.checks().iter().all(|check| check.ok);
        (ok, self.summary(ok))
    }

    fn failures(&self) -> Vec<String> {
        let checks = self.checks();
        let lines = verdict::failures(&checks);
        lines.chain(self.counts.odd_lines.iter().map(|odd| format!("odd: {odd}"))).collect()
    }
}

fn count(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred::ids::{Epoch, NodeId, OperationId, Player, RequestId, TokenId};
    use maitred::token::{Claim, Token};

    fn row(player: &str, token: &str, by: &str, before: Option<&str>) -> TokenRow {
        let claim = |by: &str| Claim {
            claimant: NodeId::new(by).expect("valid"),
            claimant_epoch: Epoch(1),
            claimed_at_ms: 1,
            claim_op: OperationId::fresh(),
        };
        TokenRow {
            token: Token {
                id: TokenId::new(token).expect("valid"),
                player: Player::new(player).expect("valid"),
                server: NodeId::new("b1").expect("valid"),
                server_epoch: Epoch(1),
                request: RequestId::new("r1").expect("valid"),
                attempt: 1,
                payload: serde_json::value::to_raw_value(&()).expect("JSON"),
                issued_at_ms: 0,
                expires_at_ms: 9,
                sig: String::new(),
            },
            state: TokenState::Consumed,
            claim: Some(claim(by)),
            last_claim: before.map(claim),
            reason: None,
            consumed_at_ms: Some(2),
        }
    }

    fn landing(token: &str, number: u64) -> Landing {
        Landing { server: "b1".to_owned(), token: token.to_owned(), place: ("hall".to_owned(), number) }
    }

    /// Alice landed by p1, and bob by p1 with the claim that p2 left.
    fn whole() -> Evidence {
        let mut counts = Counts::default();
        counts.landed.insert("alice".to_owned(), vec![landing("t1", 1)]);
        counts.landed.insert("bob".to_owned(), vec![landing("t2", 2)]);
        counts.promised.insert("b1".to_owned(), 3);
        counts.returned.insert("b1".to_owned(), 1);
        counts.reopened.insert("t2".to_owned());
        let rows = [row("alice", "t1", "p1", None), row("bob", "t2", "p1", Some("p2"))];
        Evidence {
            players: 2,
            counts,
            homes: vec![Home { server: "b1".to_owned(), given: 5, free: Some(3), promised: Some(0) }],
            rows: rows.into_iter().map(|row| (row.token.player.to_string(), row)).collect(),
            bad_rows: 0,
            open_servers: 0,
            victim: "p2".to_owned(),
            left: vec![Left { player: "bob".to_owned(), token: "t2".to_owned() }],
            killed: 1,
            elapsed: Duration::from_millis(7),
            info: ServerInfo { name: "redis".to_owned(), version: "7".to_owned() },
        }
    }

    // CLI-2: exit 0 only when all invariants hold. A count that cannot fail would prove nothing.
    #[test]
    fn cli_2_each_broken_promise_is_found() {
        assert_eq!(whole().failures(), Vec::<String>::new());
        type Break = fn(&mut Evidence);
        let table: [(&str, Break); 14] = [
            ("landed:", |e| e.players = 3),
            ("landed twice", |e| e.counts.landed.get_mut("bob").expect("bob").push(landing("t3", 3))),
            ("lost", |e| {
                e.counts.landed.remove("alice");
            }),
            ("two players", |e| e.counts.landed.get_mut("bob").expect("bob")[0].place.1 = 1),
            ("came home", |e| {
                e.counts.returned.insert("b1".to_owned(), 0);
            }),
            ("leaked", |e| e.homes[0].free = Some(2)),
            ("leaked", |e| e.homes[0].free = Some(4)),
            ("CONSUMED", |e| e.rows.get_mut("alice").expect("alice").state = TokenState::Expired),
            ("still open", |e| e.open_servers = 1),
            ("killed", |e| e.killed = 0),
            ("dead proxy left", |e| e.left.clear()),
            ("finished", |e| e.rows.get_mut("bob").expect("bob").claim = None),
            ("came to an end", |e| {
                e.rows.remove("bob");
            }),
            ("unheard", |e| e.counts.missed = 1),
        ];
        for (what, break_it) in table {
            let mut evidence = whole();
            break_it(&mut evidence);
            let failures = evidence.failures();
            assert!(failures.iter().any(|failure| failure.contains(what)), "{what}: {failures:?}");
            assert!(!evidence.for_programs().0);
        }
        let mut evidence = whole();
        evidence.counts.reopened.clear();
        evidence.rows.get_mut("bob").expect("bob").last_claim = None;
        assert!(evidence.failures().iter().any(|failure| failure.contains("reopened")), "nothing was reanimated");
    }
}
