//! STO-3: scripts that are flushed again and again while everybody works.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use maitred::ids::{OperationId, Player, RequestId, TokenId};
use maitred::token::{
    BookOptions, CancelOutcome, ClaimOutcome, ConsumeOutcome, IssueOrder, IssueOutcome, ReapOptions, ReleaseOutcome,
    reap,
};
use serde_json::value::RawValue;
use tokio::time::MissedTickBehavior;

use crate::fixtures::command::{CliFixture, backend, proxy};

const WORKERS: u64 = 8;
const LONG: Duration = Duration::from_secs(4);
const LONGEST: Duration = Duration::from_secs(60);
const FLUSH_EVERY: Duration = Duration::from_millis(2);

// A failover or an operator's SCRIPT FLUSH must cost nobody their place, wherever between two calls it falls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sto_3_no_operation_of_the_book_fails_while_scripts_are_flushed_every_few_milliseconds() {
    let fixture = Arc::new(CliFixture::with_config("", BookOptions { ttl_ms: 20_000, ..BookOptions::default() }).await);
    let (_b1, b1) = fixture.join(backend("b1")).await;
    let (_p1, p1) = fixture.join(proxy("p1")).await;
    let done = Arc::new(AtomicBool::new(false));
    let (operations, flushes) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));

    let flusher = tokio::spawn({
        let (mut conn, done, flushes) = (fixture.conn().await, Arc::clone(&done), Arc::clone(&flushes));
        async move {
            let mut every = tokio::time::interval(FLUSH_EVERY);
            every.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while !done.load(Ordering::Relaxed) {
                every.tick().await;
                let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut conn).await.expect("SCRIPT FLUSH");
                flushes.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let sweeper = tokio::spawn({
        let (fixture, done) = (Arc::clone(&fixture), Arc::clone(&done));
        async move {
            while !done.load(Ordering::Relaxed) {
                reap(&fixture.book, None, ReapOptions::default()).await.expect("a sweep");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
    let end = Instant::now() + LONG;
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (fixture, b1, p1, operations) = (Arc::clone(&fixture), b1.clone(), p1.clone(), Arc::clone(&operations));
            let flushes = Arc::clone(&flushes);
            tokio::spawn(async move {
                let book = &fixture.book;
                for n in 0_u64.. {
                    // Longer on a slow machine, until enough of both has met.
                    let enough = operations.load(Ordering::Relaxed) > 500 && flushes.load(Ordering::Relaxed) > 100;
                    if Instant::now() >= end && (enough || Instant::now() >= end + LONGEST) {
                        break;
                    }
                    let player = Player::new(format!("w{worker}-{n}")).expect("valid");
                    let now = fixture.store.clock().now_ms();
                    let mut order = IssueOrder {
                        id: TokenId::fresh(),
                        player: player.clone(),
                        request: RequestId::fresh(),
                        attempt: 1,
                        payload: RawValue::NULL.to_owned(),
                        deadline_ms: now + 10_000,
                        earlier: Vec::new(),
                        issued_at_ms: now,
                    };
                    let issued = book.issue(&b1, &mut order).await.expect("issue");
                    let IssueOutcome::Issued(token) = issued else { panic!("{issued:?}") };
                    let op = OperationId::fresh();
                    let claimed = book.claim(&token, &p1, &op).await.expect("claim");
                    assert!(matches!(claimed, ClaimOutcome::Claimed(_)), "{claimed:?}");
                    match n % 3 {
                        0 => {
                            let op = OperationId::fresh();
                            let consumed = book.consume(&token.id, &player, &b1, &op).await.expect("consume");
                            assert_eq!(consumed, ConsumeOutcome::Consumed);
                        }
                        1 => {
                            let released = book.release_claim(&token, &p1, Some(&op), "test").await.expect("release");
                            assert_eq!(released, ReleaseOutcome::Released);
                        }
                        _ => {
                            let cancelled =
                                book.cancel(&player, &order.request, &p1, Some(&op), &[]).await.expect("cancel");
                            assert_eq!(cancelled, CancelOutcome::Released);
                        }
                    }
                    operations.fetch_add(3, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.expect("no operation failed");
    }
    done.store(true, Ordering::Relaxed);
    sweeper.await.expect("no sweep failed");
    flusher.await.expect("the flusher");
    let (flushes, operations) = (flushes.load(Ordering::Relaxed), operations.load(Ordering::Relaxed));
    assert!(flushes > 100 && operations > 500, "{flushes} flushes, {operations} operations: this showed nothing");
}
