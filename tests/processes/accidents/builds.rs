//! Two builds in one fleet, as in the middle of every upgrade.

use std::path::{Path, PathBuf};
use std::process::Command;

use maitred::store::scripts;
use serde_json::{Value, json};
use sha1::{Digest, Sha1};

use super::{Fleet, LIMIT, SECRET, ask, calls_of, lands, moved, ready, released, status, with_places};
use maitred_testkit::fault::FaultProxy;
use maitred_testkit::fleet::{Node, NodeOptions};
use maitred_testkit::wait::eventually;

/// A build in which one script is another one: a copy of this build with another letter in a comment of `token/claim`,
/// and the pin that goes with it. Scripts and pins are compiled in as they are, so the copy is what a compiler would have
/// made from the changed file, without a second compilation.
struct OtherBuild {
    program: PathBuf,
    pin: String,
}

impl OtherBuild {
    fn new(folder: &Path) -> Self {
        let script = &scripts::TOKEN_CLAIM;
        let (old, line) = (script.source(), "by exactly one of any number of racing claimants");
        let new = old.replacen(line, &line.to_uppercase(), 1);
        assert!(new != old && new.len() == old.len(), "the comment stands there, and the size stays");
        let pin = hex::encode(Sha1::digest(new.as_bytes()));
        let mut program = std::fs::read(maitred_testkit::program::maitred()).expect("the binary");
        assert!(replace(&mut program, old.as_bytes(), new.as_bytes()) > 0, "the script is in the binary");
        assert!(replace(&mut program, script.pinned().as_bytes(), pin.as_bytes()) > 0, "and so is its pin");
        let path = folder.join("maitred-next");
        std::fs::write(&path, program).expect("a second binary");
        let rights = std::fs::metadata(maitred_testkit::program::maitred()).expect("the binary").permissions();
        std::fs::set_permissions(&path, rights).expect("it can be run");
        Self { program: path, pin }
    }

    async fn node(&self, mut options: NodeOptions) -> Node {
        options.program.clone_from(&self.program);
        ready(&options).await.0
    }
}

/// Writes `new` over every `old`; how many there were.
fn replace(bytes: &mut [u8], old: &[u8], new: &[u8]) -> usize {
    let mut at = 0;
    let mut count = 0;
    while let Some(found) = find(&bytes[at..], old) {
        bytes[at + found..at + found + old.len()].copy_from_slice(new);
        at += found + old.len();
        count += 1;
    }
    count
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    let (first, mut at) = (wanted[0], 0);
    while let Some(step) = bytes[at..].iter().position(|byte| *byte == first) {
        at += step;
        if bytes[at..].starts_with(wanted) {
            return Some(at);
        }
        at += 1;
    }
    None
}

async fn asked_for(proxy: &mut Node, op: &str, player: &str) -> Value {
    ask(proxy, json!({ "op": op, "player": player })).await
}

// STO-2, STO-17, STO-3. If this fails, a release that touches a script needs the whole network to be switched off at once.
#[tokio::test]
async fn sto_17_two_builds_of_which_one_script_differs_work_in_one_fleet() {
    let fleet = Fleet::new(
        "heartbeat: { intervalMs: 400 }\ndirectory: { suspectMs: 1100, offlineMs: 1400 }\n\
         tokens: { claimReanimateMs: 500, reapIntervalMs: 300 }\n",
    );
    let next = OtherBuild::new(fleet.dir.path());
    let (wire_1, wire_2) = (FaultProxy::start(&fleet.store), FaultProxy::start(&fleet.store));
    let mut b1 = fleet.backend("b1").await;
    let mut b2 = with_places(next.node(fleet.options("b2", "backend", &fleet.store.url())).await, "b2").await;
    let (mut p1, _) = ready(&fleet.options("p1", "proxy", &wire_1.url())).await;
    let mut p2 = next.node(fleet.options("p2", "proxy", &wire_2.url())).await;
    let mut conn = fleet.store.conn().await;
    let (ours, theirs) = (calls_of(&scripts::TOKEN_CLAIM), format!("EVALSHA {}", next.pin));

    // Each step of a token's life by either build, from place to seat, twice: the second time the store has forgotten
    // all scripts.
    for round in 0..2 {
        for (proxy, name) in [(&mut p1, "p1"), (&mut p2, "p2")] {
            for (backend, region) in [(&mut b1, "b1"), (&mut b2, "b2")] {
                let transfer = moved(proxy, &format!("{name}-{region}-{round}"), region).await;
                lands(backend, &transfer).await;
                let transfer = moved(proxy, &format!("{name}-{region}-{round}-not"), region).await;
                assert_eq!(released(proxy, &transfer).await, "released");
            }
        }
        let _: () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut conn).await.expect("SCRIPT FLUSH");
    }
    assert!(wire_1.count(&ours) > 0 && wire_1.count(&theirs) == 0, "{:?}", wire_1.counts());
    assert!(wire_2.count(&theirs) > 0 && wire_2.count(&ours) == 0, "{:?}", wire_2.counts());

    // What one holds the other does not get.
    let first = moved(&mut p1, "alice", "b2").await;
    let second = asked_for(&mut p2, "take", "alice").await;
    assert_eq!((&second["outcome"], &second["reason"]), (&json!("refused"), &json!("lost")), "{second}");
    lands(&mut b2, &first).await;
    // And the other way round; here the claim is reopened, and the older build ends what the newer began.
    let first = moved(&mut p2, "bob", "b1").await;
    assert_eq!(asked_for(&mut p1, "take", "bob").await["reason"], "lost");
    p2.sigkill();
    let again = eventually("the older build takes over", LIMIT, async || {
        let answer = asked_for(&mut p1, "take", "bob").await;
        (answer["outcome"] == "transfer").then_some(answer)
    })
    .await;
    assert_eq!(again["token"], first["token"]);
    lands(&mut b1, &again).await;

    // Each build's own tools find nothing wrong with the store that they share.
    for program in [Path::new(maitred_testkit::program::maitred()), &next.program] {
        let mut doctor = Command::new(program);
        doctor.args(["doctor", "--store", &fleet.store.url(), "--zone", "eu"]).env("MAITRED_SECRET", SECRET);
        let said = doctor.output().expect("the doctor runs");
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
    }
    for node in [&mut b1, &mut b2, &mut p1] {
        assert_eq!(status(node).await["audit"], json!({}));
    }
}
