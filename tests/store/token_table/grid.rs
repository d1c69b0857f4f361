//! Runs the table: builds the state, does the operation, and compares the answer, the row, the index, the times to live
//! and what was heard on the token channel.

use maitred::ids::{Epoch, NodeEpoch, NodeId, OperationId, Player, RequestId, Role, TokenId};
use maitred::token::{IssueOrder, ReapOptions, Token, reap};

use super::table::{OPEN, OVER};
use crate::fixtures::tokens::{Bench, Member, player, request, say};
use maitred_testkit::store::TestStore;

/// What may pass between a script and the look at its times to live.
const SLACK_MS: i64 = 10_000;

struct Grid {
    bench: Bench,
    a: Member,
    b: Member,
    b1: Member,
    b2: Member,
    alice: Player,
    r1: RequestId,
}

/// The token that the state is about, as it was ordered, and the one that replaced it.
struct Cast {
    t: Token,
    order: IssueOrder,
    other: Option<TokenId>,
}

fn op(name: &str) -> OperationId {
    OperationId::new(name).unwrap()
}

impl Grid {
    async fn new(server: &TestStore) -> Self {
        let bench = Bench::new(server, "grid").await;
        // The old b1 leaves an epoch behind that is over.
        let mut old = bench.join("b1", Role::backend()).await;
        let b1 = bench.replace(&mut old).await;
        assert!(b1.who.epoch > old.who.epoch);
        Self {
            a: bench.join("A", Role::proxy()).await,
            b: bench.join("B", Role::proxy()).await,
            b1,
            b2: bench.join("b2", Role::backend()).await,
            alice: player("alice"),
            r1: request("r1"),
            bench,
        }
    }

    /// Every cell starts with no token and four members that have just beaten.
    async fn reset(&mut self) {
        self.bench.clear_tokens().await;
        for member in [&mut self.a, &mut self.b, &mut self.b1, &mut self.b2] {
            member.rejoin().await;
        }
    }

    fn over_ms(&self) -> u64 {
        self.bench.times.ttl_ms + 1
    }

    async fn cancel(&self, by: &Member, request: &RequestId) -> String {
        say(&by.book.cancel(&self.alice, request, &by.who, None, &[]).await)
    }

    async fn reap(&self) -> String {
        let report = reap(&self.b.book, None, ReapOptions::default()).await.unwrap();
        let words = [
            (report.expired, "Expired"),
            (report.reopened, "Reopened"),
            (report.kept, "Kept"),
            (report.healed, "Healed"),
            (report.skipped, "Skipped"),
        ];
        let said: Vec<&str> = words.iter().filter(|(count, _)| *count > 0).map(|(_, word)| *word).collect();
        if said.is_empty() { "Nothing".to_owned() } else { said.join("+") }
    }

    /// Brings the row into `state`.
    async fn build(&mut self, state: &str) -> Cast {
        let mut order = self.b1.order(&self.alice, &self.r1, 2);
        let issued = self.b1.book.issue(&self.b1.who, &mut order).await.unwrap();
        let maitred::token::IssueOutcome::Issued(t) = issued else { panic!("{issued:?}") };
        let mut cast = Cast { t, order, other: None };
        if matches!(state, "claimed" | "reopened" | "consumed" | "late-claimed") {
            assert_eq!(say(&self.a.book.claim(&cast.t, &self.a.who, &op("op-a")).await), "Claimed");
        }
        match state {
            "none" | "marked" => {
                self.bench.clear_tokens().await;
                if state == "marked" {
                    assert_eq!(self.cancel(&self.a, &self.r1).await, "Marked");
                }
            }
            "pending" | "claimed" => {}
            "reopened" => {
                let epoch = self.a.who.epoch;
                self.bench.lapse(&self.a.who.id).await;
                self.bench.age(self.bench.times.claim_reanimate_ms).await;
                assert_eq!(self.reap().await, "Reopened");
                self.a.rejoin().await;
                assert_eq!(self.a.who.epoch, epoch, "the former claimant is back as the same incarnation");
            }
            "replaced" => cast.other = Some(self.b1.issued(&self.alice, &self.r1, 3).await.id),
            "consumed" => {
                let consumed = self.b1.book.consume(&cast.t.id, &self.alice, &self.b1.who, &op("op-c")).await;
                assert_eq!(say(&consumed), "Consumed");
            }
            "released" => {
                let released = self.b1.book.release_own(&cast.t.id, &self.alice, &self.b1.who, "full").await;
                assert_eq!(say(&released), "Released");
            }
            "expired" => {
                self.bench.age(self.over_ms()).await;
                assert_eq!(self.reap().await, "Expired");
            }
            "late-pending" | "late-claimed" => self.bench.age(self.over_ms()).await,
            other => panic!("no state {other}"),
        }
        cast
    }

    fn server(&self, name: &str) -> (&Member, NodeEpoch) {
        let member = if name == "b2" { &self.b2 } else { &self.b1 };
        let mut who = member.who.clone();
        if name == "b1-old" {
            who.epoch = Epoch(who.epoch.0 - 1);
        }
        (member, who)
    }

    fn proxy(&self, name: &str) -> (&Member, NodeEpoch) {
        match name {
            "A" => (&self.a, self.a.who.clone()),
            "B" => (&self.b, self.b.who.clone()),
            _ => (&self.a, NodeEpoch { id: NodeId::new("router").unwrap(), epoch: Epoch::NONE }),
        }
    }

    /// What has to be true before the operation and is not part of it.
    async fn prepare(&mut self, words: &[&str]) {
        match words {
            ["reap", "due"] => self.bench.age(self.bench.times.claim_reanimate_ms).await,
            ["reap", "dead"] => {
                self.bench.lapse(&self.a.who.id).await;
                self.bench.age(self.bench.times.claim_reanimate_ms).await;
            }
            ["reap", "over"] => self.bench.age(self.over_ms()).await,
            _ => {}
        }
    }

    async fn act(&self, words: &[&str], cast: &Cast) -> String {
        let stranger = words.last() == Some(&"stranger");
        let id = if stranger { TokenId::new("stranger").unwrap() } else { cast.t.id.clone() };
        let operation = |name: &str| if name.starts_with("op-") { op(name) } else { OperationId::fresh() };
        match *words {
            ["issue", server, "again"] => {
                let (member, who) = self.server(server);
                say(&member.book.issue(&who, &mut cast.order.clone()).await)
            }
            ["issue", server, wish] => {
                let (member, who) = self.server(server);
                let (name, attempt) = wish.split_once('#').unwrap();
                let mut order = member.order(&self.alice, &request(name), attempt.parse().unwrap());
                say(&member.book.issue(&who, &mut order).await)
            }
            ["claim", proxy, under] => {
                let (member, who) = self.proxy(proxy);
                let token = Token { id, ..cast.t.clone() };
                say(&member.book.claim(&token, &who, &operation(under)).await)
            }
            ["consume", server, under] => {
                let (member, who) = self.server(server);
                say(&member.book.consume(&id, &self.alice, &who, &operation(under)).await)
            }
            ["release", "operator"] => {
                say(&self.b.book.release_any(&cast.t, &NodeId::new("cli").unwrap(), "asked").await)
            }
            ["release", proxy @ ("A" | "B")] => {
                let (member, who) = self.proxy(proxy);
                say(&member.book.release_claim(&cast.t, &who, None, "full").await)
            }
            ["release", server] => {
                let (member, who) = self.server(server);
                say(&member.book.release_own(&id, &self.alice, &who, "full").await)
            }
            ["cancel", proxy, wish] => self.cancel(self.proxy(proxy).0, &request(wish)).await,
            ["reap", _] => self.reap().await,
            _ => panic!("no operation {words:?}"),
        }
    }

    /// The row as the table writes it, and the id of its token.
    async fn stands(&self, cast: &Cast) -> (String, Option<String>) {
        let row = self.bench.row(&self.alice).await;
        let Some(id) = row.get("id") else {
            return (if row.is_empty() { "-" } else { "m" }.to_owned(), None);
        };
        let token = match TokenId::new(id).unwrap() {
            id if id == cast.t.id => "t",
            id if Some(&id) == cast.other.as_ref() => "o",
            _ => "n",
        };
        let state = match row["state"].as_str() {
            "CONSUMED" => "U",
            state => &state[..1],
        };
        (format!("{token}{state}"), Some(id.clone()))
    }

    /// Index and times to live fit the row, whatever led to it. STO-16, TOK-10
    async fn check_index(&self, cell: &str, stands: &str) {
        let bench = &self.bench;
        let row = bench.row(&self.alice).await;
        let ttl = bench.ttl("token:alice").await;
        let now = bench.now().await;
        let audit = i64::try_from(bench.times.audit_ms).unwrap();
        if stands.ends_with(['P', 'C']) {
            let server = NodeId::new(&row["server"]).unwrap();
            let expires: u64 = row["expires_at"].parse().unwrap();
            let due = bench.due_at(&server, &self.alice).await.unwrap_or_else(|| panic!("{cell}: nobody will look"));
            assert!(due <= expires, "{cell}: looked at {} ms after its expiry", due - expires);
            if stands.ends_with('P') {
                assert!(due <= now + bench.times.claim_reanimate_ms, "{cell}: a claim from now on is found too late");
            }
            assert_eq!(bench.due_servers().await, [server.as_str()], "{cell}");
            let kept = i64::try_from(expires).unwrap() + audit - i64::try_from(now).unwrap();
            // A cancel mark may keep the row of a token past its time for another audit time.
            let most = if row.contains_key("cancelled") { kept.max(audit) } else { kept };
            assert!((kept - SLACK_MS..=most + SLACK_MS).contains(&ttl), "{cell}: it lives for {ttl}, not {kept} ms");
        } else {
            assert!(bench.due_servers().await.is_empty(), "{cell}: the index still has servers");
            let left: Vec<String> = bench.token_keys().await.into_iter().filter(|key| key != "token:alice").collect();
            assert!(left.is_empty(), "{cell}: {left:?}");
            if stands != "-" {
                assert!(ttl > 0 && ttl <= audit, "{cell}: it lives for {ttl} ms after its end");
                let fresh = ttl > audit - SLACK_MS;
                assert!(fresh || cell.contains("="), "{cell}: it is readable for {ttl} ms only");
            }
        }
    }

    async fn run(&mut self, state: &str, operation: &str, expected: &str) {
        let cell = format!("{state} × {operation} → {expected}");
        let words: Vec<&str> = operation.split_whitespace().collect();
        let (answer, stands) = expected.split_once(' ').unwrap();
        self.reset().await;
        let cast = self.build(state).await;
        self.prepare(&words).await;

        let (before, id_before) = self.stands(&cast).await;
        let bytes = self.bench.dump().await;
        let mut ear = self.bench.listen().await;
        let said = self.act(&words, &cast).await;
        let heard = ear.heard().await;
        let (after, id_after) = self.stands(&cast).await;

        assert_eq!(said, answer, "{cell}: answered");
        if stands == "=" {
            assert_eq!(self.bench.dump().await, bytes, "{cell}: what is refused or repeated writes nothing");
        } else {
            assert_eq!(after, stands, "{cell}: stands");
        }
        self.check_index(&cell, &after).await;

        // Exactly what ended or was reopened is told, with its last server.
        let was_open = before.ends_with(['P', 'C']);
        let event = match id_before {
            Some(id) if was_open && id_after != Some(id.clone()) => {
                let end = if state.starts_with("late") { "EXPIRED" } else { "SUPERSEDED" };
                Some(format!("ended alice {id} b1 {end}"))
            }
            Some(id) if was_open && after.ends_with('R') => Some(format!("ended alice {id} b1 RELEASED")),
            Some(id) if was_open && after.ends_with('E') => Some(format!("ended alice {id} b1 EXPIRED")),
            Some(id) if before.ends_with('C') && after.ends_with('P') => Some(format!("reopened alice {id} b1")),
            _ => None,
        };
        assert_eq!(heard, event.into_iter().collect::<Vec<_>>(), "{cell}: heard");
    }

    async fn run_table(&mut self, (states, table): (&[&str], &str)) -> usize {
        let mut cells = 0;
        for line in table.trim().lines() {
            let mut columns = line.split('|').map(str::trim);
            let operation = columns.next().unwrap();
            let expected: Vec<&str> = columns.collect();
            assert_eq!(expected.len(), states.len(), "{line}");
            for (state, expected) in states.iter().zip(expected) {
                self.run(state, operation, expected).await;
                cells += 1;
            }
        }
        cells
    }
}

// TOK-1, TOK-2, TOK-3, TOK-4, TOK-5, R-1, R-12, R-13, R-15: every state against every operation.
#[tokio::test]
async fn tok_1_every_transition_from_every_state() {
    let server = TestStore::start();
    let mut grid = Grid::new(&server).await;
    let cells = grid.run_table(OPEN).await + grid.run_table(OVER).await;
    assert_eq!(cells, 30 * (6 + 5));
}
