use maitred::token::BookOptions;

use crate::fixtures::command::{CliFixture, backend, maitred, run};
use maitred_testkit::store::TestStore;

const COMMANDS: &[&[&str]] = &[
    &["nodes"],
    &["tokens"],
    &["tokens", "alice"],
    &["tokens", "release", "alice"],
    &["queues"],
    &["queue", "login"],
    &["queue", "login", "--player", "alice"],
    &["reap"],
    &["reap", "--dry-run"],
    &["scripts", "load"],
    &["scripts", "verify", "--loaded"],
    &["scripts", "list"],
];

// ENV-2: the one thing that is missing is named, before any store is asked.
#[test]
fn env_2_a_missing_secret_is_one_line_that_names_the_variable() {
    for args in COMMANDS.iter().filter(|args| args[0] != "scripts") {
        let mut command = maitred(args);
        command.args(["--store", "redis://127.0.0.1:1"]).env_remove("MAITRED_SECRET");
        run(command).code(2).complains(&["MAITRED_SECRET", "not set"]);
        let mut command = maitred(args);
        command.args(["--store", "redis://127.0.0.1:1", "--json"]).env("MAITRED_SECRET", "c2hvcnQ=");
        let ran = run(command).code(2);
        assert!(ran.err.is_empty() && !ran.out.contains("c2hvcnQ"), "{ran:?}");
        assert!(ran.json()["error"].as_str().is_some_and(|error| error.contains("fewer than 32 bytes")), "{ran:?}");
    }
}

// CLI-1: a store that is down is one line with the address and what to do.
#[test]
fn cli_1_a_store_that_is_down_is_one_line_with_its_address() {
    for args in COMMANDS.iter().filter(|args| args != &&["scripts", "list"]) {
        let mut command = maitred(args);
        command.env("MAITRED_STORE", "redis://op:hunter2@127.0.0.1:1/4");
        let ran = run(command).code(1).complains(&["Connection refused", "127.0.0.1:1/4", "MAITRED_STORE"]);
        assert!(!ran.err.contains("hunter2") && !ran.err.contains("op:"), "{ran:?}");
    }
    run(maitred(&["nodes", "--store", "http://hunter2@x"])).code(2).complains(&["--store", "redis://"]);
}

// CLI-1: a command may ask another store than its options say, and whoever is sent to look at the wrong one looks in vain.
#[test]
fn cli_1_an_error_names_the_store_that_was_asked() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("push.yml");
    std::fs::write(&file, "store: {url: \"redis://127.0.0.1:1/7\"}\ndispatch: {maxRetries: 5}\n").expect("written");
    let ran = run(maitred(&["config", "push", &file.display().to_string()])).code(1);
    let said = ran.complains(&["127.0.0.1:1/7", "Connection refused"]);
    assert!(!said.err.contains("6379"), "{said:?}");
}

// STO-12: neither what works nor what fails shows the password.
#[test]
fn sto_12_a_password_shows_in_no_output_and_a_wrong_one_is_told() {
    let store = TestStore::with_args(&["--requirepass", "hunter2"]);
    let address = store.url().replace("redis://", "");
    for args in COMMANDS {
        for json in [&[][..], &["--json"]] {
            let args = [args, json].concat();
            for (password, code) in [("hunter2", 0), ("hunter3", 1)] {
                let mut command = maitred(&args);
                command.env("MAITRED_LOG", "trace").env("MAITRED_STORE", format!("redis://:{password}@{address}"));
                // A trace may show colours of nobody's choosing; only its words matter here.
                let output = command.output().expect("the binary starts");
                let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
                assert!(!text.contains("hunter"), "{args:?}: {text}");
                let listing = args.starts_with(&["scripts", "list"]);
                assert_eq!(output.status.code(), Some(if listing { 0 } else { code }), "{args:?}: {text}");
                assert!(code == 0 || text.contains("check user and password"), "{args:?}: {text}");
            }
        }
    }
}

// REL-4: what the store refuses is one line with the reason and what to do.
#[tokio::test]
async fn rel_4_each_refusal_of_the_store_says_what_to_do() {
    let fixture = CliFixture::new().await;
    let (_b1, b1) = fixture.join(backend("b1")).await;
    fixture.issue(&b1, "alice", "{}").await;
    let release = &["tokens", "release", "alice"][..];

    fixture.by_hand(&["CONFIG", "SET", "maxmemory", "1"]).await;
    fixture.run(&["kill", "on"]).code(1).complains(&["OOM", "raise maxmemory"]);
    fixture.run(&["tokens", "alice"]).code(0).shows(&["PENDING"]);
    fixture.by_hand(&["CONFIG", "SET", "maxmemory", "0"]).await;

    fixture.by_hand(&["REPLICAOF", "127.0.0.1", "1"]).await;
    fixture.run(release).code(1).complains(&["READONLY", "point the store URL at the primary"]);
    fixture.by_hand(&["REPLICAOF", "NO", "ONE"]).await;

    fixture.by_hand(&["ACL", "SETUSER", "op", "on", ">pw", "+@all", "-evalsha", "~*", "&*"]).await;
    let mut command = fixture.command(release);
    command.args(["--store", &fixture.server.url().replace("redis://", "redis://op:pw@")]);
    let ran = run(command);
    assert_eq!(ran.code, Some(2), "a store given twice is wrong usage: {ran:?}");
    let mut command = maitred(release);
    command.args(["--zone", "eu", "--store", &fixture.server.url().replace("redis://", "redis://op:pw@")]);
    run(command).code(1).complains(&["NOPERM", "docs/operating.md"]);

    fixture.by_hand(&["SET", "maitred:{eu}:roles", "x"]).await;
    fixture.run(&["nodes"]).code(1).complains(&["WRONGTYPE", "maitred:{eu}:roles", "look at the key with TYPE"]);
    fixture.run(release).code(0);
    // A script names itself and its keys: which of them it was the store does not say.
    let fixture = CliFixture::with_config("lines: {login: {}}\n", BookOptions::default()).await;
    fixture.by_hand(&["SET", "maitred:{eu}:gate:login", "x"]).await;
    let pause = &["queue", "login", "pause"];
    fixture.run(pause).code(1).complains(&["queue/pause at maitred:{eu}:gate:login", "WRONGTYPE"]);
}

// CLI-1: colours are for terminals; a pipe gets none (every run here checks that), nor does NO_COLOR.
#[tokio::test]
async fn cli_1_no_color_is_honoured() {
    let fixture = CliFixture::new().await;
    fixture.join(backend("b1")).await;
    let mut command = fixture.command(&["nodes"]);
    command.env("NO_COLOR", "1");
    run(command).code(0).shows(&["b1"]);
}
