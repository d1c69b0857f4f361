//! `maitred doctor --probe`: one token through every step, and nothing of it left behind.

use super::*;

#[tokio::test]
async fn sto_15_the_probe_walks_every_step_and_leaves_nothing_behind() {
    let fixture = good().await;
    let before = fixture.contents().await;
    let told = json(&fixture, &["--probe"]).code(0).json();
    let steps = told["probe"].as_array().expect("steps");
    let names: Vec<&str> = steps.iter().filter_map(|step| step["step"].as_str()).collect();
    let want = [
        "join",
        "beat",
        "issue",
        "claim",
        "consume",
        "issue for expiry",
        "expire",
        "publish and hear",
        "leave",
        "forget",
    ];
    assert_eq!(names, want);
    for step in steps {
        assert!(step["good"] == true && step["answer"] == "ok", "{step}");
        assert!(step["micros"].as_u64().is_some_and(|micros| micros > 0), "{step}");
    }
    assert!(fixture.contents().await == before, "the probe left something behind");
    fixture.run(&["doctor", "--probe"]).code(0).shows(&["probe step", "publish and hear"]);
}

// A fleet sweeps everybody's tokens, also the one that the probe lets expire: the larger it is, the more often before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sto_15_a_probe_is_good_where_the_fleet_sweeps_its_token_first() {
    let fixture = good().await;
    let book =
        Book::new(fixture.store.clone(), fixture.verifier.clone(), fixture.control.clone(), BookOptions::default());
    let sweeping = tokio::spawn(async move {
        loop {
            reap(&book, None, ReapOptions::default()).await.expect("a sweep");
            tokio::task::yield_now().await;
        }
    });
    let told = json(&fixture, &["--probe"]).code(0).json();
    sweeping.abort();
    for step in told["probe"].as_array().expect("steps") {
        assert_eq!(step["good"], true, "{step}");
    }
}

// The switch stops the probe, not its cleaning up.
#[tokio::test]
async fn sto_15_a_probe_under_the_kill_switch_says_so_and_leaves_nothing_behind() {
    let fixture = good().await;
    fixture.control.put(&fixture.store, &fixture.verifier, KILL, "on", "ops").await.expect("it is on");
    let before = fixture.contents().await;
    says(json(&fixture, &["--probe"]), 0, "probe", "warn", &["kill switch", "when it is off"]);
    says(json(&fixture, &[]), 0, "control", "warn", &["on: kill", "maitred kill off"]);
    assert!(fixture.contents().await == before, "the probe left something behind");

    // One node's switch is no reason for concern about the store.
    fixture.control.put(&fixture.store, &fixture.verifier, KILL, "off", "ops").await.expect("it is off");
    let b1 = NodeId::new("b1").expect("valid");
    fixture.control.put(&fixture.store, &fixture.verifier, &kill_name(&b1), "on", "ops").await.expect("it is on");
    says(json(&fixture, &["--probe"]), 0, "control", "ok", &["kill:b1"]);
}

// Half-way: the answers of one step never come.
#[tokio::test]
async fn sto_15_a_probe_that_fails_half_way_cleans_up() {
    let times = "store: {commandTimeoutMs: 2000, connectTimeoutMs: 2000, operationTimeoutMs: 2500}\n";
    for script in [&scripts::TOKEN_ISSUE, &scripts::TOKEN_CLAIM, &scripts::TOKEN_CONSUME, &scripts::TOKEN_REAP] {
        let fixture = good().await;
        let config = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(config.path(), times).expect("the config is written");
        let wire = FaultProxy::start(&fixture.server);
        let before = fixture.contents().await;
        for _ in 0..200 {
            wire.drop_next_reply_of(&format!("EVALSHA {}", script.pinned()), Action::Cut);
        }
        let mut command = maitred(&["doctor", "--json", "--probe", "--zone", "eu", "--store", &wire.url()]);
        command.arg("--config").arg(config.path());
        says(run(command), 1, "probe", "fail", &[]);
        assert!(wire.dropped() > 0, "{}: it failed elsewhere", script.name());
        // What it gave up may have lived for a moment: rows of ended tokens go by themselves.
        eventually(&format!("nothing is left behind after {}", script.name()), LIMIT, async || {
            fixture.contents().await == before
        })
        .await;
    }
}

#[tokio::test]
async fn sto_15_a_probe_that_may_not_listen_fails_and_leaves_nothing_behind() {
    let fixture = good().await;
    let before = fixture.contents().await;
    fixture.by_hand(&["ACL", "SETUSER", "op", "on", ">pw", "+@all", "-subscribe", "~*", "&*"]).await;
    says(run(as_user(&fixture, "op:pw", &["doctor", "--json", "--probe"])), 1, "probe", "fail", &["NOPERM"]);
    assert!(fixture.contents().await == before, "the probe left something behind");
}
