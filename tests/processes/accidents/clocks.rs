//! Machines whose clock is wrong: an hour ahead, an hour behind, and one that is set while the process runs. Done with
//! libfaketime (Debian: `faketime`), which shows the process another time of day than the kernel has. As on a real
//! machine that somebody sets, the monotonic clock goes on as it was.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use serde_json::{Value, json};

use super::{Fleet, LIMIT, ask, hash, lands, moved, number, ready, released, status, with_places};
use maitred_testkit::fleet::{Node, NodeOptions};
use maitred_testkit::wait::eventually;

const HOUR_S: i64 = 3_600;

/// The library that fakes the time, where the machine has it.
fn library() -> Option<PathBuf> {
    let below = |folder: &str| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let folders = below("/usr/lib").chain(["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(PathBuf::from));
    folders.map(|folder| folder.join("faketime/libfaketimeMT.so.1")).find(|library| library.is_file())
}

/// The process sees the time that `file` says, read anew at every look at the clock.
fn faked(options: NodeOptions, library: &Path, file: &Path) -> NodeOptions {
    options
        .env("LD_PRELOAD", &library.display().to_string())
        .env("FAKETIME_TIMESTAMP_FILE", &file.display().to_string())
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        .env("MAITRED_LOG", "info")
}

/// Sets the clock that reads `file`, in one step: it is read at every look, and an empty file is no clock.
fn set(file: &Path, clock: &str) {
    let whole = file.with_extension("whole");
    std::fs::write(&whole, clock).expect("a file");
    std::fs::rename(whole, file).expect("the clock is set");
}

/// Seconds since 1970 out of `2026-03-11T08:02:59…`.
fn seconds(text: &str) -> Option<i64> {
    let part = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    // Days of the civil calendar, in years that begin in March.
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 719_469;
    Some(((days * 24 + part(11, 13)?) * 60 + part(14, 16)?) * 60 + part(17, 19)?)
}

/// How far the process believes itself from the true time, by the last line of its log, in whole hours.
fn hours_off(node: &Node) -> Option<i64> {
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()?;
    let off = node.stderr().lines().rev().find_map(|line| seconds(line.trim_start()))? - now;
    Some((off + HOUR_S * 1_000 + HOUR_S / 2).div_euclid(HOUR_S) - 1_000)
}

/// Nothing of the machine's clock is in what the node signs and promises.
async fn signs_the_stores_time(conn: &mut MultiplexedConnection, ids: &[&str]) {
    for id in ids {
        let row = hash(conn, &format!("node:{id}")).await;
        let (sent_at, beat_at) = (number(&row, "sent_at"), number(&row, "beat_at"));
        assert!(sent_at.abs_diff(beat_at) < 60_000, "{id} signs a time of its own: {row:?}");
        assert!(number(&row, "epoch").abs_diff(beat_at) < 600_000, "{row:?}");
    }
}

async fn is_well(node: &mut Node, epoch: &Value) {
    let now = status(node).await;
    assert_eq!((&now["agent"]["status"], &now["epoch"]), (&json!("member"), epoch), "{now}");
    assert_eq!((&now["stale"], &now["audit"]), (&json!(false), &json!({})), "{now}");
}

#[test]
fn the_time_of_a_log_line_is_read() {
    assert_eq!(seconds("1970-01-01T00:00:07Z"), Some(7));
    assert_eq!(seconds("2000-02-29T23:59:59.5Z"), Some(951_868_799));
    assert_eq!(seconds("2026-11-30T08:02:59Z"), Some(1_796_025_779));
    assert_eq!(seconds("no time"), None);
}

// STO-9. If this fails, a machine without a time service expires other people's tokens, or is put
// out of the fleet when somebody sets its clock.
#[tokio::test]
async fn sto_9_clocks_that_are_an_hour_off_or_are_set_while_it_runs_change_nothing() {
    let Some(library) = library() else {
        eprintln!("skipped: no libfaketime here; Debian has it in the package faketime");
        return;
    };
    let fleet = Fleet::new("tokens: { claimReanimateMs: 1000, reapIntervalMs: 300 }");
    let mut conn = fleet.store.conn().await;
    let mut nodes = Vec::new();
    let clocks = [("b1", "backend", "+1h"), ("b2", "backend", "-1h"), ("p1", "proxy", "+1h"), ("p2", "proxy", "+0")];
    for (id, role, clock) in clocks {
        let file = fleet.dir.path().join(id);
        set(&file, clock);
        nodes.push(ready(&faked(fleet.options(id, role, &fleet.store.url()), &library, &file)).await);
    }
    let epochs: Vec<Value> = nodes.iter().map(|(_, first)| first["epoch"].clone()).collect();
    let mut nodes = nodes.into_iter().map(|(node, _)| node);
    let mut next = || nodes.next().expect("four nodes");
    let (b1, b2, mut p1, mut p2) = (next(), next(), next(), next());
    let (mut b1, mut b2) = (with_places(b1, "b1").await, with_places(b2, "b2").await);
    let ids = ["b1", "b2", "p1", "p2"];
    for (node, hours) in [(&b1, 1), (&b2, -1), (&p1, 1), (&p2, 0)] {
        eventually("the clock is faked", LIMIT, async || hours_off(node) == Some(hours)).await;
    }

    // The clock of p2 is set while it runs, forward and far back, with players on the way each time.
    for (step, hours, clock) in [(1, 1, "+1h"), (2, -1, "-1h"), (3, 0, "+0")] {
        let early = [
            moved(&mut p2, &format!("early-{step}"), "b1").await,
            moved(&mut p1, &format!("other-{step}"), "b2").await,
        ];
        set(&fleet.dir.path().join("p2"), clock);
        // Everybody logs who comes and goes.
        let visitor = format!("visitor-{step}");
        fleet.node(&visitor, "proxy").await.sigterm();
        eventually(&format!("p2 is {hours} h off"), LIMIT, async || hours_off(&p2) == Some(hours)).await;

        let seq = number(&hash(&mut conn, "node:p2").await, "seq");
        eventually("it beats on with its new clock", LIMIT, async || {
            number(&hash(&mut conn, "node:p2").await, "seq") > seq + 1
        })
        .await;

        let late = moved(&mut p2, &format!("late-{step}"), "b2").await;
        let row = hash(&mut conn, &format!("token:late-{step}")).await;
        let beat_at = number(&hash(&mut conn, "node:p2").await, "beat_at");
        assert!(number(&row, "issued_at").abs_diff(beat_at) < 60_000, "a token lives by the store's clock: {row:?}");
        signs_the_stores_time(&mut conn, &ids).await;
        let given_up = moved(&mut p2, &format!("stays-{step}"), "b1").await;
        assert_eq!(released(&mut p2, &given_up).await, "released");
        lands(&mut b1, &early[0]).await;
        lands(&mut b2, &early[1]).await;
        lands(&mut b2, &late).await;
    }
    for (node, epoch) in [&mut b1, &mut b2, &mut p1, &mut p2].into_iter().zip(&epochs) {
        is_well(node, epoch).await;
        assert!(!node.stderr().contains("Lost {"), "it lost its lease: {}", node.stderr());
    }
    let promised = ask(&mut b1, json!({ "op": "status" })).await;
    assert_eq!((&promised["promised"], &promised["free"]), (&json!(0), &json!(47)), "{promised}");
}
