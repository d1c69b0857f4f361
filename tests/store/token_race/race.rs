//! Many at once: one winner, and everybody else knows that it is not them.

use std::sync::Arc;

use maitred::envelope::AuditReason;
use maitred::ids::{NodeEpoch, OperationId, Role};
use maitred::token::{ClaimOutcome, ConsumeOutcome, IssueOutcome, Ledger, LedgerState, Token};
use tokio::task::JoinSet;

use crate::fixtures::tokens::{Bench, Member, player, request, say};
use maitred_testkit::store::TestStore;

const ROUNDS: usize = 1_000;
const TASKS: usize = 64;
const CONNECTIONS: usize = 4;

/// Lets [`TASKS`] tasks loose over the connections of `racers`, each under an operation of its own, and gives back what
/// each was told.
async fn race<T, F>(racers: &[Arc<Member>], run: impl Fn(Arc<Member>, OperationId) -> F) -> Vec<(OperationId, T)>
where
    T: Send + 'static,
    F: Future<Output = (OperationId, T)> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for n in 0..TASKS {
        tasks.spawn(run(Arc::clone(&racers[n % racers.len()]), OperationId::fresh()));
    }
    tasks.join_all().await
}

// TOK-3: one proxy moves the player, whoever else tries.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tok_3_of_64_racing_claims_over_4_connections_one_wins_1000_times() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "claims").await;
    let b1 = bench.join("b1", Role::backend()).await;
    let mut proxies = Vec::new();
    for n in 0..CONNECTIONS {
        proxies.push(Arc::new(bench.join(&format!("p{n}"), Role::proxy()).await));
    }
    for round in 0..ROUNDS {
        let token = Arc::new(b1.issued(&player(&format!("player-{round}")), &request("r"), 1).await);
        let told = race(&proxies, |proxy, op| {
            let token = Arc::clone(&token);
            async move {
                let outcome = proxy.book.claim(&token, &proxy.who, &op).await.unwrap();
                (op, outcome)
            }
        })
        .await;
        let winners: Vec<&OperationId> =
            told.iter().filter(|(_, outcome)| matches!(outcome, ClaimOutcome::Claimed(_))).map(|(op, _)| op).collect();
        let lost = told.iter().filter(|(_, outcome)| *outcome == ClaimOutcome::Lost).count();
        assert_eq!((winners.len(), lost), (1, TASKS - 1), "round {round}");
        let row = bench.row(&token.player).await;
        assert_eq!(row["claim_op"], winners[0].as_str(), "round {round}: the store knows the same winner");
    }
}

// TOK-4: one join takes the place, every other one is a replay, and each of those is audited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tok_4_of_64_racing_consumes_over_4_connections_one_wins_1000_times() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "consumes").await;
    let b1 = Arc::new(bench.join("b1", Role::backend()).await);
    let a = bench.join("A", Role::proxy()).await;
    let mut books = Vec::new();
    for _ in 0..CONNECTIONS {
        books.push(bench.book().await);
    }
    for round in 0..ROUNDS {
        let token: Token = b1.issued(&player(&format!("player-{round}")), &request("r"), 1).await;
        assert_eq!(say(&a.claim(&token).await), "Claimed");
        let mut tasks = JoinSet::new();
        for n in 0..TASKS {
            let (book, who, op) = (books[n % CONNECTIONS].clone(), b1.who.clone(), OperationId::fresh());
            let (id, player) = (token.id.clone(), token.player.clone());
            tasks.spawn(async move { (book.consume(&id, &player, &who, &op).await.unwrap(), op) });
        }
        let told = tasks.join_all().await;
        let winners: Vec<&OperationId> =
            told.iter().filter(|(outcome, _)| *outcome == ConsumeOutcome::Consumed).map(|(_, op)| op).collect();
        let replays = told.iter().filter(|(outcome, _)| *outcome == ConsumeOutcome::Replay).count();
        assert_eq!((winners.len(), replays), (1, TASKS - 1), "round {round}");
        assert_eq!(bench.row(&token.player).await["consume_op"], winners[0].as_str(), "round {round}");
    }
    let audited = usize::try_from(bench.verifier.audit().count(AuditReason::TokenReplay)).unwrap();
    assert_eq!(audited, ROUNDS * (TASKS - 1));
    assert!(bench.due_servers().await.is_empty(), "STO-16: nobody has to look at them again");
}

/// What a backend does around an issue: a place is taken before and comes back unless the token stands.
async fn issue(server: &Member, order: &mut maitred::token::IssueOrder, free: &mut u32) -> (Ledger<u32>, IssueOutcome) {
    let mut ledger = Ledger::default();
    *free -= 1;
    ledger.issuing(order, server.who.epoch, 1, order.issued_at_ms + server.book.options().ttl_ms);
    let outcome = server.book.issue(&server.who, order).await.unwrap();
    match &outcome {
        IssueOutcome::Issued(token) => {
            ledger.issued(token);
        }
        _ => *free += ledger.not_issued(&order.id).expect("the place is still reserved"),
    }
    (ledger, outcome)
}

// TOK-2: two backends promise one player a place at the same moment. One token lives, the other place is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tok_2_of_two_racing_issues_one_lives_and_the_losers_place_is_back_1000_times() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "issues").await;
    let b1 = Arc::new(bench.join("b1", Role::backend()).await);
    let b2 = Arc::new(bench.join("b2", Role::backend()).await);
    let proxies = [bench.join("p1", Role::proxy()).await, bench.join("p2", Role::proxy()).await];
    for round in 0..ROUNDS {
        let player = player(&format!("player-{round}"));
        // Every third time both answer the same request, as after a repeated ask.
        let names = if round % 3 == 0 { ["r", "r"] } else { ["r1", "r2"] };
        let mut tasks = JoinSet::new();
        for (n, member) in [&b1, &b2].into_iter().enumerate() {
            let (member, mut order) = (Arc::clone(member), member.order(&player, &request(names[n]), 1));
            tasks.spawn(async move {
                let mut free = 1;
                let (ledger, outcome) = issue(&member, &mut order, &mut free).await;
                (member.who.id.clone(), order.id, free, ledger, outcome)
            });
        }
        let mut issued = None;
        let mut taken = None;
        for (server, id, free, ledger, outcome) in tasks.join_all().await {
            match outcome {
                IssueOutcome::Issued(token) => {
                    assert_eq!((free, ledger.state(&id)), (0, Some(LedgerState::Held)), "round {round}");
                    assert!(issued.replace(token).is_none(), "round {round}: two places for one player");
                }
                IssueOutcome::Taken(row) => {
                    assert_eq!((free, ledger.state(&id)), (1, Some(LedgerState::Returned)), "round {round}");
                    assert_ne!(row.token.server, server);
                    taken = Some(row.token);
                }
                other => panic!("round {round}: {other:?}"),
            }
        }
        let (issued, taken) = (issued.expect("one lives"), taken.expect("the other is told"));
        assert_eq!(issued.id, taken.id, "round {round}: the loser hands out the token that is there");
        // Both proxies have a token of the player in their hands now, and it is the same one: one of them moves him.
        let (one, two) = tokio::join!(proxies[0].claim(&issued), proxies[1].claim(&taken));
        let mut said = [say(&one), say(&two)];
        said.sort_unstable();
        assert_eq!(said, ["Claimed", "Lost"], "round {round}");
    }
}

// TOK-2, TOK-3: a higher attempt supersedes what is not claimed, and never what is: whoever comes first decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tok_2_a_claim_and_a_higher_attempt_never_both_win() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "supersede").await;
    let b1 = Arc::new(bench.join("b1", Role::backend()).await);
    let b2 = Arc::new(bench.join("b2", Role::backend()).await);
    let a = Arc::new(bench.join("A", Role::proxy()).await);
    let (mut claims, mut issues) = (0, 0);
    for round in 0..300 {
        let player = player(&format!("player-{round}"));
        let token = b1.issued(&player, &request("r"), 1).await;
        let claim = tokio::spawn({
            let (a, token) = (Arc::clone(&a), token.clone());
            async move { a.claim(&token).await }
        });
        let issue = tokio::spawn({
            let (b2, mut order) = (Arc::clone(&b2), b2.order(&player, &request("r"), 2));
            order.earlier = vec![b1.who.id.clone()];
            async move { b2.book.issue(&b2.who, &mut order).await }
        });
        let (claim, issue) = (say(&claim.await.unwrap()), say(&issue.await.unwrap()));
        match (claim.as_str(), issue.as_str()) {
            ("Claimed", "Taken") => claims += 1,
            ("Ended(SUPERSEDED)", "Issued") => issues += 1,
            other => panic!("round {round}: {other:?}"),
        }
    }
    assert_eq!(claims + issues, 300);
}

// TOK-5, R-13: the arrival and the giving up of one claim at once: one of them is true.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tok_5_a_consume_and_a_release_never_both_win() {
    let server = TestStore::start();
    let bench = Bench::new(&server, "give-up").await;
    let b1 = Arc::new(bench.join("b1", Role::backend()).await);
    let a = Arc::new(bench.join("A", Role::proxy()).await);
    for round in 0..300 {
        let token = b1.issued(&player(&format!("player-{round}")), &request("r"), 1).await;
        assert_eq!(say(&a.claim(&token).await), "Claimed");
        let consume = tokio::spawn({
            let (b1, token) = (Arc::clone(&b1), token.clone());
            async move { b1.consume(&token).await }
        });
        let release = tokio::spawn({
            let (a, token) = (Arc::clone(&a), token.clone());
            let who = NodeEpoch { ..a.who.clone() };
            async move { a.book.release_claim(&token, &who, None, "timeout").await }
        });
        let (consume, release) = (say(&consume.await.unwrap()), say(&release.await.unwrap()));
        match (consume.as_str(), release.as_str()) {
            ("Consumed", "Landed") | ("Ended(RELEASED)", "Released") => {}
            other => panic!("round {round}: {other:?}"),
        }
    }
}
